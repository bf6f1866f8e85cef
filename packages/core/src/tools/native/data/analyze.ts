/** Files of the workspace become sources of tables; what is answered becomes JSON for a model. */
import { GatewayError } from "../../../errors/gateway-error.ts";
import type { JsonObject, JsonValue } from "../../../json.ts";
import type { TableAnswer, TableFormat, TableSource } from "../../../ports/data-tables.ts";
import { withDelivery } from "../../../errors/delivery.ts";
import type { ToolReply } from "../../tool-call.ts";
import type { AnalyzeDataInput } from "../analyze-data.ts";
import { answered, invalidInput, sessionOf, type NativeRun } from "../native-tool.ts";

const mostAnswerBytes = 4_194_304;
/** Of the call's time, for the answer on its way. */
const aroundMs = 1_000;

const formats: Readonly<Record<string, TableFormat>> = {
  csv: "csv",
  tsv: "csv",
  txt: "csv",
  json: "json",
  ndjson: "ndjson",
  jsonl: "ndjson",
  xlsx: "xlsx",
  xlsm: "xlsx",
};

/** @throws GatewayError what the workspace, the files or the SQL are wrong about; `tool_timeout` */
export async function analyze(asked: AnalyzeDataInput, run: NativeRun): Promise<ToolReply> {
  const { context, call, deps } = run;
  const { tables } = deps;
  const session = sessionOf(run);
  if (tables === undefined) {
    throw withDelivery(new GatewayError("tool_failed", "Files cannot be analysed in this process."), "not_sent");
  }
  const whole = call.timeoutMs ?? context.config.settings.tool_timeout_ms;
  const { delimiter, encoding, header, sql } = asked;
  const answer = await tables.answer({
    sources: await answered(openAll(asked, run, session)),
    ...(delimiter === undefined ? {} : { delimiter }),
    ...(encoding === undefined ? {} : { encoding }),
    ...(header === undefined ? {} : { header }),
    ...(sql === undefined ? {} : { sql }),
    describe: asked.describe,
    maxRows: asked.limit,
    maxBytes: Math.min(mostAnswerBytes, Math.trunc(context.config.settings.result_max_bytes / 2)),
    timeoutMs: Math.max(Math.trunc(whole / 2), whole - aroundMs),
    signal: context.signal,
  });
  return { mediaType: "application/json", body: JSON.stringify(describe(answer, asked)) };
}

async function openAll(asked: AnalyzeDataInput, run: NativeRun, session: string): Promise<readonly TableSource[]> {
  const { tenant } = run.context;
  const sources: TableSource[] = [];
  for (const path of asked.files) {
    const format = asked.format ?? formatOf(path);
    const place = { tenant, session, path };
    const file = await run.workspace.stat(place);
    // Opened when its turn comes: a stream that nobody reads would hold a connection.
    sources.push({ name: file.path, format, body: late(async () => (await run.workspace.read(place)).body) });
  }
  return sources;
}

async function* late(open: () => Promise<AsyncIterable<Uint8Array>>): AsyncGenerator<Uint8Array, void> {
  yield* await open();
}

function formatOf(path: string): TableFormat {
  const extension = /\.([A-Za-z0-9]+)$/.exec(path)?.[1]?.toLowerCase() ?? "";
  const format = Object.hasOwn(formats, extension) ? formats[extension] : undefined;
  if (format !== undefined) return format;
  throw invalidInput(
    "files",
    `The name '${path.slice(0, 200)}' does not say what is in the file; say it with 'format' (csv, xlsx, json, ndjson).`,
  );
}

/** Rows last: where the answer is cut for a model, it is there. */
function describe({ tables, result }: TableAnswer, { limit }: AnalyzeDataInput): JsonObject {
  if (result === undefined) return { tables: tables as unknown as JsonValue };
  const { columns, rows, truncated } = result;
  return {
    tables: tables.map(({ name, file, rows: count, notes, columns: all }) => ({
      name,
      file,
      rows: count,
      ...(notes === undefined ? {} : { notes: [...notes] }),
      ...(all.some(({ exceptions, stats }) => exceptions !== undefined || stats !== undefined)
        ? { columns: all as unknown as JsonValue }
        : {}),
    })),
    columns: columns.map(({ name, type }) => ({ name, type })),
    row_count: rows.length,
    ...(truncated
      ? {
          truncated: true,
          note: `There is more than these rows; 'limit' was ${limit}. Ask for an aggregate, or page with LIMIT and OFFSET.`,
        }
      : {}),
    rows: rows as unknown as JsonValue,
  };
}
