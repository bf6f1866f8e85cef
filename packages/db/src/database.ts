/**
 * What repositories see of a database: batches of statements, each batch one transaction and one
 * round trip. There are no interactive transactions (facts: they fail under concurrency).
 */
export type SqlValue = string | number | bigint | null | Uint8Array;

export interface Statement {
  readonly sql: string;
  readonly args: readonly SqlValue[];
}

export interface StatementResult {
  readonly rows: readonly Readonly<Record<string, unknown>>[];
  readonly changes: number;
}

export interface BatchOptions {
  /** Only reads: need no write transaction and may be repeated. */
  readonly readonly?: boolean;
  /** Of reads that take so long that others must not wait for them, where that can be had. */
  readonly long?: LongRead;
  /**
   * Sending it twice has the same effect as once, so that a batch whose reply was lost is sent again.
   * Without it a lost reply is `database_unavailable`.
   */
  readonly repeatable?: boolean;
}

export interface LongRead {
  /** Those of different ones take turns; a tenant. */
  readonly owner: string;
  /** Once it is aborted nobody wants the rows any more. */
  readonly signal?: AbortSignal | undefined;
}

/** Makes the statements of a batch when it is about to be sent: what was asked for until then is in it. */
export interface GrowingBatch {
  /** How much has been asked for so far. */
  readonly size: number;
  /** Called once, and not before `Database.batch` has returned. */
  compose(): readonly Statement[];
}

export type BatchContent = readonly Statement[] | GrowingBatch;

export interface Database {
  /**
   * Local writes of several callers are committed together (group commit), so statements must be
   * conflict-free: `ON CONFLICT`, conditions and `RETURNING`, never an expected constraint error.
   * @throws GatewayError `database_unavailable`; of long reads also `concurrency_limited`, `call_cancelled`
   */
  batch(content: BatchContent, options?: BatchOptions): Promise<readonly StatementResult[]>;
  close(): Promise<void>;
}

/** Which database holds a tenant's rows. */
export interface Shards {
  /** Tenants, issuers, global NATIVE rows. */
  readonly directory: Database;
  databaseFor(tenant: string): Database;
  all(): readonly Database[];
}
