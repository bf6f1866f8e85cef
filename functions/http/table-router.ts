/**
 * Hono's tree for paths with parameters; a look into a table for those without, which is where most
 * requests go. A path that is given whole comes before one that a pattern describes.
 */
import type { Result, Router } from "hono/router";
import { TrieRouter } from "hono/router/trie-router";

export class TableRouter<T> implements Router<T> {
  readonly name = "TableRouter";
  readonly #table = new Map<string, Map<string, Result<T>>>();
  readonly #tree = new TrieRouter<T>();

  add(method: string, path: string, handler: T): void {
    if (/[:*]/.test(path)) {
      this.#tree.add(method, path, handler);
      return;
    }
    const paths = this.#table.get(method) ?? new Map<string, Result<T>>();
    this.#table.set(method, paths.set(path, [[[handler, {}]]]));
  }

  match(method: string, path: string): Result<T> {
    return this.#table.get(method)?.get(path) ?? this.#tree.match(method, path);
  }
}
