/** Gives other requests a turn: what is large takes seconds, and there is one thread for everybody. */
export class Pace {
  static readonly #sliceMs = 20;
  #since = performance.now();

  async turn(): Promise<void> {
    if (performance.now() - this.#since < Pace.#sliceMs) return;
    await new Promise<void>((done) => {
      setImmediate(done);
    });
    this.#since = performance.now();
  }
}
