/** What a reading thread is told, and what it says. */
import type { SqlValue, StatementResult } from "./database.ts";

export interface ReaderData {
  readonly path: string;
  /** Milliseconds that it waits for a writer. */
  readonly budgetMs: number;
}

/** The next one is told when this one has been answered. */
export interface ReaderOrder {
  readonly statements: readonly { readonly sql: string; readonly args: readonly SqlValue[] }[];
}

export type ReaderAnswer =
  | { readonly results: readonly StatementResult[] }
  | { readonly failure: { readonly message: string; readonly errcode: number | undefined } };
