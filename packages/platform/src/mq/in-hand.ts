/** Messages that were taken and are not settled yet: how many there are, and when there are none. */

export class InHand {
  readonly #open = new Set<Promise<unknown>>();

  get size(): number {
    return this.#open.size;
  }

  /** @param work never rejects */
  add(work: Promise<unknown>): void {
    this.#open.add(work);
    void work.then(() => this.#open.delete(work));
  }

  /** When all that are open now have been settled, or the time is over. */
  async settled(withinMs: number): Promise<void> {
    if (this.#open.size === 0) return;
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((done) => {
      timer = setTimeout(done, withinMs);
    });
    await Promise.race([Promise.all(this.#open), late]);
    clearTimeout(timer);
  }
}
