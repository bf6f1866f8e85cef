/**
 * A libSQL server for tests: Hrana over HTTP as `@libsql/client` speaks it, above a file and the native
 * binding. Each stream has a connection of its own, as with a real server, so writers can meet.
 */
import { randomUUID } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import Native from "libsql";
import * as z from "zod";

export interface HranaServer {
  readonly url: string;
  close(): Promise<void>;
}

const valueSchema = z.discriminatedUnion("type", [
  z.object({ type: z.literal("null") }),
  z.object({ type: z.literal("integer"), value: z.string() }),
  z.object({ type: z.literal("float"), value: z.number() }),
  z.object({ type: z.literal("text"), value: z.string() }),
  z.object({ type: z.literal("blob"), base64: z.string() }),
]);
const sqlSchema = z.object({ sql: z.string().nullish(), sql_id: z.number().nullish() });
const statementSchema = sqlSchema.extend({ args: z.array(valueSchema).nullish() });

type Condition =
  | { readonly type: "ok" | "error"; readonly step: number }
  | { readonly type: "not"; readonly cond: Condition }
  | { readonly type: "and" | "or"; readonly conds: readonly Condition[] }
  | { readonly type: "is_autocommit" };
const conditionSchema: z.ZodType<Condition> = z.lazy(() =>
  z.union([
    z.object({ type: z.enum(["ok", "error"]), step: z.number() }),
    z.object({ type: z.literal("not"), cond: conditionSchema }),
    z.object({ type: z.enum(["and", "or"]), conds: z.array(conditionSchema) }),
    z.object({ type: z.literal("is_autocommit") }),
  ]),
);

const requestSchema = z.discriminatedUnion("type", [
  z.object({ type: z.literal("execute"), stmt: statementSchema }),
  z.object({
    type: z.literal("batch"),
    batch: z.object({
      steps: z.array(z.object({ condition: conditionSchema.nullish(), stmt: statementSchema })),
    }),
  }),
  sqlSchema.extend({ type: z.literal("sequence") }),
  z.object({ type: z.literal("store_sql"), sql_id: z.number(), sql: z.string() }),
  z.object({ type: z.literal("close_sql"), sql_id: z.number() }),
  z.object({ type: z.literal("get_autocommit") }),
  z.object({ type: z.literal("close") }),
]);
const pipelineSchema = z.object({ baton: z.string().nullish(), requests: z.array(requestSchema) });

type HranaRequest = z.infer<typeof requestSchema>;
type HranaStatement = z.infer<typeof statementSchema>;
type Connection = InstanceType<typeof Native>;

interface Stream {
  readonly connection: Connection;
  readonly texts: Map<number, string>;
  closed: boolean;
}

/** @param options.authToken requests must bear it, where given */
export async function startHranaServer(options: {
  readonly file: string;
  readonly authToken?: string;
  /** Default: any that is free. */
  readonly port?: number;
}): Promise<HranaServer> {
  const streams = new Map<string, Stream>();
  const idle: Connection[] = [];
  const open = (): Stream => ({ connection: idle.pop() ?? connect(options.file), texts: new Map(), closed: false });
  const release = ({ connection }: Stream): void => {
    if (connection.inTransaction) connection.exec("ROLLBACK");
    idle.push(connection);
  };

  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const text = await read(request);
    if (options.authToken !== undefined && request.headers.authorization !== `Bearer ${options.authToken}`) {
      return void response.writeHead(401, { "content-type": "text/plain" }).end("wrong token");
    }
    if (request.method !== "POST" || !/^\/v[23]\/pipeline$/.test(request.url ?? "")) {
      return void response.writeHead(404).end();
    }
    const { baton, requests } = pipelineSchema.parse(JSON.parse(text));
    const stream = typeof baton === "string" ? streams.get(baton) : open();
    if (stream === undefined) {
      return sendJson(response, 400, { message: "This stream is over.", code: "STREAM_EXPIRED" });
    }
    if (typeof baton === "string") streams.delete(baton);
    const results = requests.map((one) => carryOut(stream, one));
    if (stream.closed) release(stream);
    const next = stream.closed ? null : randomUUID();
    if (next !== null) streams.set(next, stream);
    sendJson(response, 200, { baton: next, base_url: null, results });
  };

  const server = createServer((request, response) => {
    answer(request, response).catch((error: unknown) => sendJson(response, 500, errorOf(error)));
  });
  const url = await listen(server, options.port ?? 0);
  return {
    url,
    close: async () => {
      await stop(server);
      for (const stream of streams.values()) release(stream);
      for (const connection of idle) connection.close();
    },
  };
}

function connect(file: string): Connection {
  const connection = new Native(file);
  connection.exec("PRAGMA busy_timeout = 0");
  connection.exec("PRAGMA journal_mode = WAL");
  connection.exec("PRAGMA synchronous = NORMAL");
  connection.defaultSafeIntegers(true);
  return connection;
}

function carryOut(stream: Stream, request: HranaRequest): unknown {
  try {
    return { type: "ok", response: { type: request.type, ...respond(stream, request) } };
  } catch (error) {
    return { type: "error", error: errorOf(error) };
  }
}

function respond(stream: Stream, request: HranaRequest): object {
  switch (request.type) {
    case "execute":
      return { result: execute(stream, request.stmt) };
    case "batch":
      return { result: executeBatch(stream, request.batch.steps) };
    case "sequence":
      stream.connection.exec(textOf(stream, request));
      return {};
    case "store_sql":
      stream.texts.set(request.sql_id, request.sql);
      return {};
    case "close_sql":
      stream.texts.delete(request.sql_id);
      return {};
    case "get_autocommit":
      return { is_autocommit: !stream.connection.inTransaction };
    case "close":
      stream.closed = true;
      return {};
  }
}

function executeBatch(
  stream: Stream,
  steps: readonly { readonly condition?: Condition | null | undefined; readonly stmt: HranaStatement }[],
): object {
  const results: unknown[] = [];
  const errors: unknown[] = [];
  const holds = (condition: Condition): boolean => {
    switch (condition.type) {
      case "ok":
        return results[condition.step] !== null;
      case "error":
        return errors[condition.step] !== null;
      case "not":
        return !holds(condition.cond);
      case "and":
        return condition.conds.every(holds);
      case "or":
        return condition.conds.some(holds);
      case "is_autocommit":
        return !stream.connection.inTransaction;
    }
  };
  for (const [index, { condition, stmt }] of steps.entries()) {
    results[index] = null;
    errors[index] = null;
    if (condition !== null && condition !== undefined && !holds(condition)) continue;
    try {
      results[index] = execute(stream, stmt);
    } catch (error) {
      errors[index] = errorOf(error);
    }
  }
  return { step_results: results, step_errors: errors };
}

function execute(stream: Stream, request: HranaStatement): object {
  const sql = textOf(stream, request);
  const prepared = stream.connection.prepare(sql);
  const args = (request.args ?? []).map(fromHrana);
  if (!prepared.reader) {
    const { changes } = prepared.run(args);
    return { cols: [], rows: [], affected_row_count: changes, last_insert_rowid: null };
  }
  const columns = prepared.columns();
  const rows = z.array(z.array(z.unknown())).parse(prepared.raw().all(args));
  return {
    cols: columns.map(({ name, type }) => ({ name, decltype: type })),
    rows: rows.map((row) => row.map(toHrana)),
    affected_row_count: /\breturning\b/i.test(sql) ? rows.length : 0,
    last_insert_rowid: null,
  };
}

function textOf(stream: Stream, { sql, sql_id: id }: z.infer<typeof sqlSchema>): string {
  const text = sql ?? (typeof id === "number" ? stream.texts.get(id) : undefined);
  if (text === undefined) throw new Error(`There is no SQL text ${id ?? "in this request"}.`);
  return text;
}

function fromHrana(value: z.infer<typeof valueSchema>): unknown {
  switch (value.type) {
    case "null":
      return null;
    case "integer":
      return BigInt(value.value);
    case "float":
    case "text":
      return value.value;
    case "blob":
      return Buffer.from(value.base64, "base64");
  }
}

function toHrana(value: unknown): z.infer<typeof valueSchema> {
  if (value === null || value === undefined) return { type: "null" };
  if (typeof value === "bigint") return { type: "integer", value: String(value) };
  if (typeof value === "number") return { type: "float", value };
  if (typeof value === "string") return { type: "text", value };
  if (value instanceof Uint8Array) {
    return { type: "blob", base64: Buffer.from(value).toString("base64").replace(/=+$/, "") };
  }
  throw new TypeError(`SQLite has no value like a ${typeof value}.`);
}

function errorOf(error: unknown): { readonly message: string; readonly code: string } {
  const message = error instanceof Error ? error.message : String(error);
  const code = error instanceof Native.SqliteError ? error.code : "SERVER_ERROR";
  return { message, code };
}

function sendJson(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
}

async function read(request: IncomingMessage): Promise<string> {
  const parts: Buffer[] = [];
  for await (const part of request) parts.push(part as Buffer);
  return Buffer.concat(parts).toString("utf8");
}

async function listen(server: Server, wanted: number): Promise<string> {
  await new Promise<void>((resolve) => server.listen(wanted, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return `http://127.0.0.1:${port}`;
}

async function stop(server: Server): Promise<void> {
  await new Promise<void>((resolve) => {
    server.close(() => resolve());
    server.closeAllConnections();
  });
}
