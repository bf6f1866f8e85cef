/**
 * The program that makes tables of files and answers one question about them, as a process: it can be ended whatever
 * a statement does, and what it takes can be limited. Input: frames of a length and so many bytes; the first is the
 * job, then the parts of each file, an empty one after the last. Output: the answer as JSON.
 */
import { DatabaseSync } from "node:sqlite";
import type { TableAnswer, TableFormat, TextEncoding } from "@toolyard/core/ports/data-tables";
import { TableFault } from "./fault.ts";
import { Tables, type Loader } from "./load.ts";
import { closeForWriting, runQuery } from "./query.ts";

/** As it is sent. */
export interface SentJob {
  readonly sources: readonly { readonly name: string; readonly format: TableFormat }[];
  readonly delimiter?: string;
  readonly encoding?: TextEncoding;
  readonly header?: boolean;
  readonly sql?: string;
  readonly describe: boolean;
  readonly maxRows: number;
  readonly maxBytes: number;
  readonly diskBytes: number;
  readonly memoryBytes: number;
}

export type SentAnswer =
  | { readonly answer: TableAnswer }
  | { readonly fault: { readonly message: string; readonly param: string } };

const pageBytes = 8_192;
const sampleRows = 5;

function openDatabase({ diskBytes, memoryBytes }: SentJob): DatabaseSync {
  // Without a name it is a file that has none, and is gone with us.
  const database = new DatabaseSync("", { allowExtension: false });
  database.exec(`
    PRAGMA page_size = ${pageBytes};
    PRAGMA max_page_count = ${Math.trunc(diskBytes / pageBytes)};
    PRAGMA hard_heap_limit = ${memoryBytes};
    PRAGMA cache_size = -65536;
    PRAGMA journal_mode = OFF;
    PRAGMA synchronous = OFF;
    PRAGMA temp_store = FILE;
    PRAGMA trusted_schema = OFF;
    BEGIN`);
  return database;
}

class Program {
  #job: SentJob | undefined;
  #database: DatabaseSync | undefined;
  #tables: Tables | undefined;
  #loader: Loader | undefined;
  #source = 0;
  #answered = false;

  frame(body: Buffer): void {
    if (this.#job === undefined) {
      this.#job = JSON.parse(body.toString("utf8")) as SentJob;
      this.#database = openDatabase(this.#job);
      this.#tables = new Tables(this.#database, this.#job);
      return;
    }
    this.#loader ??= this.#tables?.loaderOf(this.#job.sources[this.#source] ?? { name: "", format: "csv" });
    if (body.byteLength > 0) {
      this.#loader?.add(body);
      return;
    }
    this.#loader?.end();
    this.#loader = undefined;
    this.#source += 1;
    if (this.#source === this.#job.sources.length) this.#finish(this.#job);
  }

  #finish(job: SentJob): void {
    const tables = this.#tables?.all ?? [];
    const database = this.#database;
    if (database === undefined) return;
    database.exec("COMMIT");
    const limits = { maxRows: job.maxRows, maxBytes: job.maxBytes };
    const descriptions = tables.map((table) => table.describe(job.describe));
    closeForWriting(database);
    if (job.sql !== undefined) {
      const result = runQuery(database, job.sql, { tables, limits });
      send({ answer: { tables: descriptions, result } });
    } else {
      const sampled = descriptions.map((description) => {
        const sql = `SELECT * FROM "${description.name.replaceAll('"', '""')}" LIMIT ${sampleRows}`;
        return { ...description, sample: runQuery(database, sql, { tables, limits }).rows };
      });
      send({ answer: { tables: sampled } });
    }
    this.#answered = true;
  }

  get answered(): boolean {
    return this.#answered;
  }
}

function send(answer: SentAnswer): void {
  process.stdout.write(JSON.stringify(answer));
}

function toFault(thrown: unknown): TableFault {
  if (thrown instanceof TableFault) return thrown;
  const said = thrown instanceof Error ? thrown.message : String(thrown);
  if (/database or disk is full/i.test(said))
    return new TableFault("The files come to more than the database for them may hold.");
  if (/out of memory/i.test(said))
    return new TableFault("The files and the SQL need more memory than they may have.", "sql");
  return new TableFault(`The files cannot be read: ${said.slice(0, 300)}`);
}

async function main(): Promise<void> {
  const program = new Program();
  let rest: Buffer = Buffer.alloc(0);
  try {
    for await (const part of process.stdin as AsyncIterable<Buffer>) {
      rest = rest.byteLength === 0 ? part : Buffer.concat([rest, part]);
      let at = 0;
      while (rest.byteLength - at >= 4) {
        const length = rest.readUInt32LE(at);
        if (rest.byteLength - at - 4 < length) break;
        program.frame(rest.subarray(at + 4, at + 4 + length));
        at += 4 + length;
      }
      rest = rest.subarray(at);
    }
  } catch (thrown) {
    const { message, param } = toFault(thrown);
    send({ fault: { message, param } });
    // Whoever still writes must not wait for us to read.
    process.stdin.destroy();
    return;
  }
  if (!program.answered) process.exitCode = 1;
}

void main();
