/** What a reading thread is told, and what it says. */
import type { SqlValue, StatementResult } from "./database.ts";

export interface ReaderData {
  readonly path: string;
  /** Milliseconds that it waits for a writer. */
  readonly budgetMs: number;
}

export interface ReaderOrder {
  readonly id: number;
  readonly statements: readonly { readonly sql: string; readonly args: readonly SqlValue[] }[];
}

export type ReaderAnswer =
  | { readonly id: number; readonly results: readonly StatementResult[] }
  | { readonly id: number; readonly failure: { readonly message: string; readonly errcode: number | undefined } };
