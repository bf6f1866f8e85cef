/** Files that nodes have given, for as long as a conversation goes on with them; of this process, and few. */
import type { Clock } from "../../ports/clock.ts";

const mostCharacters = 33_554_432;
const keptMs = 60_000;

export class FileCache {
  readonly #clock: Clock;
  readonly #files = new Map<string, { readonly file: string; readonly at: number }>();
  #characters = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get(key: string): string | undefined {
    const found = this.#files.get(key);
    if (found === undefined) return undefined;
    if (this.#clock.now() - found.at < keptMs) return found.file;
    this.#drop(key);
    return undefined;
  }

  put(key: string, file: string): void {
    this.#drop(key);
    if (file.length > mostCharacters) return;
    this.#files.set(key, { file, at: this.#clock.now() });
    this.#characters += file.length;
    // The one that was put first goes first.
    for (const oldest of this.#files.keys()) {
      if (this.#characters <= mostCharacters) return;
      this.#drop(oldest);
    }
  }

  #drop(key: string): void {
    const found = this.#files.get(key);
    if (found !== undefined && this.#files.delete(key)) this.#characters -= found.file.length;
  }
}
