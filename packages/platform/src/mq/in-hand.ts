/** Messages that were taken and are not settled yet: how many there are, and when there are none. */
import { atMost } from "./sockets.ts";

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
    if (this.#open.size > 0) await atMost(withinMs, Promise.all(this.#open));
  }
}
