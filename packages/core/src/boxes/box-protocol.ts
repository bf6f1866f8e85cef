/**
 * What travels between the gateway and a box, that of plugins on Lambda or that of code (design "AWS"): the run as one
 * JSON request, the answer as lines of JSON while it runs, so that what an asynchronous plugin says first arrives at once. Neither side needs the other's platform; adapters carry bytes.
 */
import * as z from "zod";
import { catalog, type ErrorCode } from "../errors/catalog.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { parseJson } from "../json.ts";
import type { LeftFiles, LinkedFile, PluginExit, PluginRun } from "../ports/plugin-runner.ts";

const boxRequestSchema = z.strictObject({
  tenant: z.string().min(1),
  command: z.tuple([z.string()], z.string()),
  environment: z.record(z.string(), z.string()),
  directoryVariables: z.array(z.string()).optional(),
  stdin: z.string(),
  timeoutMs: z.int().positive(),
  maxOutputBytes: z.int().positive(),
  answerWithinMs: z.int().positive().optional(),
  answersId: z.union([z.string(), z.number()]).optional(),
  files: z.array(z.strictObject({ path: z.string(), body: z.base64() })).optional(),
  linked: z
    .array(
      z.strictObject({
        path: z.string(),
        isFolder: z.boolean().optional(),
        bytes: z.int().nonnegative(),
        url: z.url(),
        headers: z.record(z.string(), z.string()),
        addresses: z.array(z.string()).optional(),
      }),
    )
    .optional(),
  confined: z
    .strictObject({
      memoryBytes: z.int().positive(),
      diskBytes: z.int().positive(),
      maxProcesses: z.int().positive(),
      maxFiles: z.int().positive(),
      maxFileBytes: z.int().positive(),
    })
    .optional(),
});
export type BoxRequest = z.input<typeof boxRequestSchema>;

const errorCodeSchema = z.custom<ErrorCode>((value) => typeof value === "string" && Object.hasOwn(catalog, value));

const boxFrameSchema = z.discriminatedUnion("type", [
  /** The box is clean and the plugin is about to start: from here on it may have had effects. */
  z.object({ type: z.literal("started") }),
  z.object({ type: z.literal("stdout"), data: z.string() }),
  /** The kept end of stderr, once, before `exit`. */
  z.object({ type: z.literal("stderr"), data: z.string() }),
  /** Nothing new for a while. Without it a silent plugin cannot be told from a lost connection. */
  z.object({ type: z.literal("alive") }),
  /** Of confined runs, before `exit`: a file that is left, in base64, and one that is not handed back. */
  z.object({ type: z.literal("file"), path: z.string(), body: z.string() }),
  z.object({ type: z.literal("passed_over"), path: z.string(), reason: z.string() }),
  z.object({
    type: z.literal("exit"),
    exitCode: z.int().nullable(),
    ended: z.enum(["exit", "timeout", "output", "aborted", "spawn"]),
    durationMs: z.number().nonnegative(),
  }),
  /** Not run, for a reason to be told to the caller. */
  z.object({ type: z.literal("refused"), code: errorCodeSchema, message: z.string(), param: z.string().optional() }),
]);
export type BoxFrame = z.infer<typeof boxFrameSchema>;

/** How often a box says something at least. A reader may take four times as long a silence for its end. */
export const boxSilenceMs = 15_000;

/** The request as text; what belongs to this side (`signal`, `onStdout`) stays here. */
export function toBoxRequest(run: PluginRun): string {
  const { tenant, command, environment, directoryVariables, stdin, timeoutMs, maxOutputBytes, files } = run;
  const { answerWithinMs, answersId } = run;
  const request: BoxRequest = {
    tenant,
    command: [...command],
    environment: { ...environment },
    ...(directoryVariables && { directoryVariables: [...directoryVariables] }),
    stdin,
    timeoutMs,
    maxOutputBytes,
    ...(answerWithinMs !== undefined && { answerWithinMs }),
    ...(answersId !== undefined && { answersId }),
    ...(files && { files: files.map(({ path, body }) => ({ path, body: Buffer.from(body).toString("base64") })) }),
    // Left out where there is none: a box of the release before does not know it.
    ...(run.linked !== undefined && run.linked.length > 0 && { linked: run.linked.map(toLinked) }),
    ...(run.confined && { confined: { ...run.confined } }),
  };
  return JSON.stringify(request);
}

function toLinked({ addresses, headers, ...file }: LinkedFile): NonNullable<BoxRequest["linked"]>[number] {
  return { ...file, headers: { ...headers }, ...(addresses && { addresses: [...addresses] }) };
}

/** @throws GatewayError `invalid_request` naming the field */
export function readBoxRequest(event: unknown): PluginRun {
  const parsed = boxRequestSchema.safeParse(event);
  if (!parsed.success) {
    const param = parsed.error.issues[0]?.path.map(String).join(".") ?? "";
    throw new GatewayError("invalid_request", `The request to the plugin box is malformed; look at "${param}".`, {
      param,
    });
  }
  const { files, linked, directoryVariables, answerWithinMs, answersId, confined, ...run } = parsed.data;
  return {
    ...run,
    ...(confined && { confined }),
    ...(answerWithinMs !== undefined && { answerWithinMs }),
    ...(answersId !== undefined && { answersId }),
    ...(directoryVariables && { directoryVariables }),
    ...(files && { files: files.map(({ path, body }) => ({ path, body: Buffer.from(body, "base64") })) }),
    ...(linked && {
      linked: linked.map(({ addresses, isFolder, ...file }) => ({
        ...file,
        ...(isFolder !== undefined && { isFolder }),
        ...(addresses !== undefined && { addresses }),
      })),
    }),
  };
}

/** What a confined run has left, as it travels. */
export function toFileFrames({ files, passedOver }: LeftFiles): readonly BoxFrame[] {
  return [
    ...files.map(({ path, body }) => ({ type: "file", path, body: Buffer.from(body).toString("base64") }) as const),
    ...passedOver.map(({ path, reason }) => ({ type: "passed_over", path, reason }) as const),
  ];
}

export function encodeBoxFrame(frame: BoxFrame): string {
  return `${JSON.stringify(frame)}\n`;
}

/**
 * The end of a run from the bytes of the answer; parts of stdout are handed on as they come. A caller that
 * goes has its end at once; the box cannot be told, so there the plugin runs on to its own time limit.
 * @throws GatewayError what the box refused with; `tool_unreachable` where the answer ends, or falls
 *   silent, before the plugin was started, `outcome_unknown` where it does so in the middle
 */
export async function readBoxAnswer(
  answer: AsyncIterable<Uint8Array>,
  { onStdout, signal }: Pick<PluginRun, "onStdout" | "signal"> = {},
): Promise<PluginExit> {
  const since = performance.now();
  const stdout: string[] = [];
  const files: LeftFiles["files"][number][] = [];
  const passedOver: LeftFiles["passedOver"][number][] = [];
  let stderr = "";
  let started = false;
  try {
    for await (const frame of readFrames(attend(answer, signal))) {
      if (frame.type === "exit") {
        const { exitCode, ended, durationMs } = frame;
        const left = files.length + passedOver.length === 0 ? {} : { left: { files, passedOver } };
        return { stdout: stdout.join(""), stderr, exitCode, ended, durationMs, ...left };
      }
      if (frame.type === "refused") {
        throw new GatewayError(frame.code, frame.message, frame.param === undefined ? {} : { param: frame.param });
      }
      if (frame.type === "stdout") {
        stdout.push(frame.data);
        onStdout?.(frame.data);
      }
      if (frame.type === "stderr") stderr = frame.data;
      if (frame.type === "file") files.push({ path: frame.path, body: Buffer.from(frame.body, "base64") });
      if (frame.type === "passed_over") passedOver.push({ path: frame.path, reason: frame.reason });
      started ||= frame.type === "started";
    }
  } catch (thrown) {
    throw thrown instanceof GatewayError ? thrown : lostBox(started, thrown);
  }
  if (signal?.aborted !== true) throw lostBox(started);
  const durationMs = Math.round(performance.now() - since);
  return { stdout: stdout.join(""), stderr, exitCode: null, ended: "aborted", durationMs };
}

/** The bytes until they end, nobody wants them any more, or there have been none for too long. */
async function* attend(
  answer: AsyncIterable<Uint8Array>,
  signal: AbortSignal | undefined,
): AsyncGenerator<Uint8Array, void> {
  const bytes = answer[Symbol.asyncIterator]();
  const over = Promise.withResolvers<{ readonly done: true }>();
  const stop = (): void => over.resolve({ done: true });
  signal?.addEventListener("abort", stop);
  if (signal?.aborted === true) stop();
  try {
    for (;;) {
      const silence = setTimeout(stop, 4 * boxSilenceMs);
      const upcoming = bytes.next();
      // It may fail when nobody waits for it any more.
      upcoming.catch(() => undefined);
      const next = await Promise.race([over.promise, upcoming]).finally(() => clearTimeout(silence));
      if (next.done === true) return;
      yield next.value;
    }
  } finally {
    signal?.removeEventListener("abort", stop);
    // Not waited for: what gives the bytes may be in the middle of waiting for more.
    void Promise.resolve(bytes.return?.()).catch(() => undefined);
  }
}

/** The box ended, or was cut off, without saying how the plugin did. */
function lostBox(started: boolean, cause?: unknown): GatewayError {
  return started
    ? new GatewayError("outcome_unknown", "The plugin box was lost while the plugin ran; what it did is not known.", {
        cause,
      })
    : new GatewayError("tool_unreachable", "The plugin box ended before it started the plugin.", { cause });
}

async function* readFrames(answer: AsyncIterable<Uint8Array>): AsyncGenerator<BoxFrame> {
  const decoder = new TextDecoder();
  // A file is one line of megabytes that comes in hundreds of parts: joined once, not with every part.
  let parts: string[] = [];
  for await (const bytes of answer) {
    const [first = "", ...more] = decoder.decode(bytes, { stream: true }).split("\n");
    parts.push(first);
    for (const next of more) {
      yield readFrame(parts.join(""));
      parts = [next];
    }
  }
}

function readFrame(line: string): BoxFrame {
  const parsed = boxFrameSchema.safeParse(parseJson(line));
  if (parsed.success) return parsed.data;
  throw new GatewayError("outcome_unknown", "The plugin box answered in a form that this gateway does not know.");
}
