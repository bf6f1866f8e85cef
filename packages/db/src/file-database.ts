/**
 * A database in a file of this machine, through Node's own SQLite: one connection, statements prepared
 * once, every transaction begun and ended without giving up the event loop. Several processes may share
 * the file (write-ahead log); while another one writes, we wait asleep.
 */
import { statSync } from "node:fs";
import { mkdir, open } from "node:fs/promises";
import { dirname } from "node:path";
import { setImmediate as nextTurn, setTimeout as sleep } from "node:timers/promises";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { DatabaseSync, type StatementSync } from "node:sqlite";
import type {
  BatchContent,
  BatchOptions,
  Database,
  LongRead,
  SqlValue,
  Statement,
  StatementResult,
} from "./database.ts";
import { backoffMs, sqlFailureOf, statementRefused, storeBroken, unavailable, wronglySet } from "./failures.ts";
import { ThreadReader } from "./thread-reader.ts";
import { defineVectorFunctions } from "./vectors.ts";

/** Batches that one transaction takes. */
const groupLimit = 64;
/** Beyond that nobody waits for others. */
const longestGatherMs = 2;
const preparedLimit = 500;
/** Between two looks at whether what is open is still what everybody else finds at its path. */
const lookEveryMs = 1_000;
const backoff = { first: 1, ceiling: 25 };

interface Prepared {
  readonly native: StatementSync;
  readonly returnsRows: boolean;
  readonly writes: boolean;
}

interface Waiting {
  readonly statements: readonly Statement[];
  readonly resolve: (results: readonly StatementResult[]) => void;
  readonly reject: (error: unknown) => void;
}

interface Asked extends Omit<Waiting, "statements"> {
  readonly content: BatchContent;
}

/** @throws GatewayError `database_unavailable` naming the file */
export async function openFileDatabase(path: string, options: { readonly budgetMs: number }): Promise<Database> {
  try {
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    await makePrivate(path);
    // A busy timeout would block the event loop of the whole process.
    const connection = new DatabaseSync(path, { timeout: 0, enableForeignKeyConstraints: false });
    defineVectorFunctions(connection);
    const database = new FileDatabase(connection, path, options.budgetMs);
    await database.prepareFile();
    return database;
  } catch (error) {
    if (error instanceof GatewayError) throw error;
    throw wronglySet(`file '${path}' cannot be opened`, error);
  }
}

/** What is new is read by nobody else of the machine; SQLite gives the files beside it the same rights. */
async function makePrivate(path: string): Promise<void> {
  try {
    await (await open(path, "wx", 0o600)).close();
  } catch (error) {
    if (!(error instanceof Error && "code" in error && error.code === "EEXIST")) throw error;
  }
}

const moved = "file was moved, removed or replaced while it was open; put it back, or start the process anew";

function identityOf(path: string): string | undefined {
  try {
    const { dev, ino } = statSync(path);
    return `${dev}:${ino}`;
  } catch {
    return undefined;
  }
}

class FileDatabase implements Database {
  readonly #connection: DatabaseSync;
  readonly #path: string;
  /** Which file it is. */
  readonly #file: string | undefined;
  readonly #budgetMs: number;
  readonly #prepared = new Map<string, Prepared>();
  readonly #waiting: Asked[] = [];
  readonly #reader: ThreadReader;
  #draining: Promise<void> | undefined;
  #looksAgainAt = 0;
  #closed = false;

  constructor(connection: DatabaseSync, path: string, budgetMs: number) {
    this.#connection = connection;
    this.#path = path;
    this.#file = identityOf(path);
    this.#reader = new ThreadReader({ path, budgetMs });
    this.#budgetMs = budgetMs;
  }

  async prepareFile(): Promise<void> {
    await this.#whenFree(() => {
      this.#connection.exec("PRAGMA journal_mode = WAL");
      // A commit survives the end of the process; power loss may take the last ones, never the file.
      this.#connection.exec("PRAGMA synchronous = NORMAL");
      // Pages that every commit writes go to the main file, and are synced, a fourth as often; the log may
      // grow to 16 MB for it.
      this.#connection.exec("PRAGMA wal_autocheckpoint = 4000");
    });
  }

  batch(content: BatchContent, options: BatchOptions = {}): Promise<readonly StatementResult[]> {
    if (this.#closed) return Promise.reject(unavailable("is closed"));
    if (options.readonly === true) return this.#read(composed(content), options.long);
    return new Promise((resolve, reject) => {
      this.#waiting.push({ content, resolve, reject });
      this.#draining ??= this.#drain();
    });
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await Promise.all([this.#draining, this.#reader.close()]);
    this.#prepared.clear();
    this.#connection.close();
  }

  /** The system goes on writing into a file that was removed, without a word: whatever was answered would be lost. */
  #checkPlace(): void {
    const now = performance.now();
    if (now < this.#looksAgainAt) return;
    if (identityOf(this.#path) !== this.#file) throw unavailable(moved);
    this.#looksAgainAt = now + lookEveryMs;
  }

  /** Readers are not held up by a writer, so they need not queue either. */
  async #read(statements: readonly Statement[], long: LongRead | undefined): Promise<readonly StatementResult[]> {
    try {
      this.#checkPlace();
      if (long !== undefined) {
        const bound = statements.map(({ sql, args }) => ({ sql, args: args.map(toBound) }));
        return await this.#reader.read(bound, long);
      }
      return await this.#whenFree(() => this.#transact("BEGIN", () => this.#runReads(statements)));
    } catch (error) {
      throw toGatewayError(error);
    }
  }

  /** Group commit: all that has come together is one transaction. */
  async #drain(): Promise<void> {
    await nextTurn();
    while (this.#waiting.length > 0) {
      await this.#gather();
      const group = this.#waiting.splice(0, groupLimit);
      await this.#commit(
        // Member by member: V8 leaves rest and spread to its runtime, for every batch.
        group.map(({ content, resolve, reject }) => ({ statements: composed(content), resolve, reject })),
      );
      if (this.#waiting.length > 0) await nextTurn();
    }
    this.#draining = undefined;
  }

  /**
   * Where several wait for the same commit, others are on their way to it: as long as every turn of the event
   * loop brings some, their share of a commit is worth more than the wait. Whoever is alone waits for nobody.
   */
  async #gather(): Promise<void> {
    const until = performance.now() + longestGatherMs;
    let before = 1;
    for (let size = this.#size(); size > before && performance.now() < until; size = this.#size()) {
      if (this.#waiting.length >= groupLimit) return;
      before = size;
      await nextTurn();
    }
  }

  #size(): number {
    let size = 0;
    for (const { content } of this.#waiting) size += "compose" in content ? content.size : 1;
    return size;
  }

  async #commit(group: readonly Waiting[]): Promise<void> {
    const [first] = group;
    // One statement is a transaction of its own.
    const isOne = group.length === 1 && first?.statements.length === 1;
    const runAll = (): readonly (readonly StatementResult[])[] => group.map(({ statements }) => this.#run(statements));
    try {
      this.#checkPlace();
      const results = await this.#whenFree(() => (isOne ? runAll() : this.#transact("BEGIN IMMEDIATE", runAll)));
      group.forEach(({ resolve }, index) => resolve(results[index] ?? []));
    } catch (error) {
      if (group.length === 1) first?.reject(toGatewayError(error));
      else if (sqlFailureOf(error) === "busy") for (const waiting of group) waiting.reject(toGatewayError(error));
      // One of them is at fault; alone, it can fail nobody but itself.
      else for (const waiting of group) await this.#commit([waiting]);
    }
  }

  /** Repeats `work` while another process holds the file; what was busy has been rolled back. */
  async #whenFree<T>(work: () => T): Promise<T> {
    const deadline = performance.now() + this.#budgetMs;
    for (let attempt = 0; ; attempt += 1) {
      try {
        return work();
      } catch (error) {
        if (sqlFailureOf(error) !== "busy" || performance.now() >= deadline) throw error;
        await sleep(backoffMs(attempt, backoff));
      }
    }
  }

  #transact<T>(begin: "BEGIN" | "BEGIN IMMEDIATE", work: () => T): T {
    this.#prepare(begin).native.run();
    try {
      const result = work();
      this.#prepare("COMMIT").native.run();
      return result;
    } catch (error) {
      if (this.#connection.isTransaction) this.#connection.exec("ROLLBACK");
      throw error;
    }
  }

  #runReads(statements: readonly Statement[]): readonly StatementResult[] {
    for (const { sql } of statements) {
      if (this.#prepare(sql).writes) throw new TypeError("A batch marked readonly holds a statement that writes.");
    }
    return this.#run(statements);
  }

  #run(statements: readonly Statement[]): readonly StatementResult[] {
    return statements.map(({ sql, args }) => {
      const { native, returnsRows, writes } = this.#prepare(sql);
      const bound = args.map(toBound);
      if (!returnsRows) return { rows: [], changes: Number(native.run(...bound).changes) };
      const rows = native.all(...bound);
      // A statement that writes and has rows to show has one for each row that it changed.
      return { rows, changes: writes ? rows.length : 0 };
    });
  }

  #prepare(sql: string): Prepared {
    const known = this.#prepared.get(sql);
    if (known !== undefined) return known;
    const native = this.#connection.prepare(sql);
    const prepared = { native, returnsRows: native.columns().length > 0, writes: isWrite(sql) };
    if (this.#prepared.size >= preparedLimit) {
      const oldest = this.#prepared.keys().next().value;
      if (oldest !== undefined) this.#prepared.delete(oldest);
    }
    this.#prepared.set(sql, prepared);
    return prepared;
  }
}

function composed(content: BatchContent): readonly Statement[] {
  return "compose" in content ? content.compose() : content;
}

function isWrite(sql: string): boolean {
  const first = /^\s*(\w+)/.exec(sql)?.[1]?.toLowerCase();
  if (first === "select" || first === "values" || first === "explain") return false;
  if (first !== "with") return true;
  return /\b(?:insert|replace)\s+(?:or\s+\w+\s+)?into\b|\bdelete\s+from\b|\bupdate\s+[^\s(]+\s+set\b/i.test(sql);
}

/** The binding takes every number for a float. */
function toBound(value: SqlValue): SqlValue {
  if (typeof value === "number") return Number.isSafeInteger(value) ? BigInt(value) : value;
  if (value === null || typeof value === "string" || typeof value === "bigint" || value instanceof Uint8Array)
    return value;
  throw new TypeError(`A ${typeof value} cannot be bound in SQL.`);
}

function toGatewayError(error: unknown): GatewayError {
  if (error instanceof GatewayError) return error;
  switch (sqlFailureOf(error)) {
    case "busy":
      return unavailable("file is held by another process", error);
    case "store":
      return storeBroken("file cannot be read or written", error);
    case "statement":
    case undefined:
      return statementRefused(error);
  }
}
