/**
 * Tables in a process of the call's own (tables/program.ts): SQLite cannot be interrupted from within, a process can.
 * The bytes of the files pass through, no faster than it takes them.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { tmpdir } from "node:os";
import { pipeline } from "node:stream/promises";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { DataTables, TableAnswer, TableJob } from "@toolyard/core/ports/data-tables";
import { withDelivery } from "@toolyard/core/errors/delivery";
import type { SentAnswer, SentJob } from "../tables/program.ts";
import { tablesProgram } from "./tables-program.ts";

export interface DataTablesOptions {
  /** Of the database for one call. Default 512 MiB. */
  readonly diskBytes?: number;
  /** Of SQLite in it. Default 192 MiB. */
  readonly memoryBytes?: number;
}

const heapMegabytes = 384;
/** Node reserves some 600 MB of data without using them. */
const dataKilobytes = 1_572_864;
const partBytes = 262_144;

const limitAndRun = `
  until [ "$1" = -- ]; do ulimit $1 2>/dev/null || :; shift; done
  { echo 1000 >/proc/self/oom_score_adj; } 2>/dev/null || :
  shift; exec "$@"`;

export function createDataTables({
  diskBytes = 536_870_912,
  memoryBytes = 201_326_592,
}: DataTablesOptions = {}): DataTables {
  return {
    async answer(job) {
      const { sources, signal, timeoutMs, ...rest } = job;
      const sent: SentJob = {
        ...rest,
        sources: sources.map(({ name, format }) => ({ name, format })),
        diskBytes,
        memoryBytes,
      };
      const child = start(timeoutMs, diskBytes);
      let ended: GatewayError | undefined;
      const end = (error: GatewayError) => (): void => {
        ended ??= error;
        child.kill("SIGKILL");
      };
      const timer = setTimeout(end(timedOut(timeoutMs)), timeoutMs);
      const abort = end(withDelivery(new GatewayError("call_cancelled", "The call was given up."), "answered"));
      signal.addEventListener("abort", abort);
      if (signal.aborted) abort();
      const gone = once(child, "close");
      try {
        const said = readAnswer(child, 2 * job.maxBytes + 4_194_304);
        // It may fail while sources are read, which take their time; what became of it is seen below.
        said.catch(() => undefined);
        await feed(child, sent, sources);
        const answer = await said;
        if (ended !== undefined) throw ended;
        return toAnswer(answer);
      } finally {
        clearTimeout(timer);
        signal.removeEventListener("abort", abort);
        child.kill("SIGKILL");
        await gone.catch(() => undefined);
      }
    },
  };
}

function start(timeoutMs: number, diskBytes: number): ChildProcess {
  const limits = [
    "-c 0",
    `-d ${dataKilobytes}`,
    `-f ${Math.ceil((2 * diskBytes) / 512)}`,
    `-t ${Math.ceil(timeoutMs / 500) + 5}`,
  ];
  const node = [process.execPath, `--max-old-space-size=${heapMegabytes}`, "--no-warnings", "--input-type=commonjs"];
  const child = spawn("/bin/sh", ["-c", limitAndRun, "tables", ...limits, "--", ...node, "--eval", tablesProgram], {
    // Nothing of ours: what files and statements could reach of it they cannot tell.
    env: { SQLITE_TMPDIR: tmpdir(), TMPDIR: tmpdir() },
    stdio: ["pipe", "pipe", "ignore"],
  });
  child.stdin?.on("error", () => undefined);
  child.stdout?.on("error", () => undefined);
  return child;
}

/** Ends early where the process has answered already, or is gone. */
async function feed(child: ChildProcess, job: SentJob, sources: TableJob["sources"]): Promise<void> {
  if (child.stdin === null) return;
  try {
    await pipeline(frames(job, sources), child.stdin);
  } catch (thrown) {
    const isTheirs = thrown instanceof Error && "code" in thrown && closed.has(String(thrown.code));
    if (!isTheirs) throw thrown;
  }
}

const closed = new Set(["EPIPE", "ECONNRESET", "ERR_STREAM_PREMATURE_CLOSE", "ERR_STREAM_DESTROYED"]);

async function* frames(job: SentJob, sources: TableJob["sources"]): AsyncGenerator<Uint8Array, void> {
  yield* frame(Buffer.from(JSON.stringify(job), "utf8"));
  for (const { body } of sources) {
    for await (const part of body) {
      for (let at = 0; at < part.byteLength; at += partBytes) yield* frame(part.subarray(at, at + partBytes));
    }
    yield* frame(new Uint8Array());
  }
}

function* frame(body: Uint8Array): Generator<Uint8Array, void> {
  const length = Buffer.alloc(4);
  length.writeUInt32LE(body.byteLength);
  yield length;
  if (body.byteLength > 0) yield body;
}

async function readAnswer(child: ChildProcess, most: number): Promise<string | undefined> {
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of child.stdout ?? []) {
    parts.push(part as Buffer);
    bytes += (part as Buffer).byteLength;
    if (bytes > most) return undefined;
  }
  return Buffer.concat(parts).toString("utf8");
}

function toAnswer(text: string | undefined): TableAnswer {
  if (text === undefined || text === "") {
    throw withDelivery(
      new GatewayError(
        "tool_failed",
        "The analysis took more memory, time on the processor or room on the disk than it may; ask for less at once, or for fewer files.",
      ),
      "answered",
    );
  }
  const answer = JSON.parse(text) as SentAnswer;
  if ("answer" in answer) return answer.answer;
  const { message, param } = answer.fault;
  throw withDelivery(new GatewayError("invalid_arguments", message, { param }), "answered");
}

function timedOut(timeoutMs: number): GatewayError {
  return withDelivery(
    new GatewayError(
      "tool_timeout",
      `The analysis was ended after ${timeoutMs} ms; ask for less, or raise the tenant's 'tool_timeout_ms'.`,
    ),
    "answered",
  );
}
