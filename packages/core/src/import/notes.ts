/** Remarks on what was cut, left out or guessed while something was read; each once, in order. */
export class Notes {
  readonly #texts = new Set<string>();

  add(text: string): void {
    if (this.#texts.size < mostNotes) this.#texts.add(text);
  }

  get texts(): readonly string[] {
    return [...this.#texts];
  }
}

/** More than somebody would read about one operation. */
const mostNotes = 20;
