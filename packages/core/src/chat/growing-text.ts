/** Pieces that are kept as they came. */
const mostPieces = 32;

/**
 * Text that comes in thousands of pieces. They are copied into one now and then: a piece may hold on to all of the chunk
 * that it was cut out of, ten times its size.
 */
export class GrowingText {
  #text = "";
  #pieces: string[] = [];

  append(piece: string): void {
    if (piece === "" || this.#pieces.push(piece) < mostPieces) return;
    this.#text += this.#pieces.join("");
    this.#pieces = [];
  }

  get text(): string {
    return this.#text + this.#pieces.join("");
  }
}
