/**
 * One program in the code box: the session's files go in, what it leaves comes back through the workspace, file by
 * file and each whole. What the box says is data: names of files are read as everybody's are, links never come.
 */
import { GatewayError, toGatewayError } from "../../../errors/gateway-error.ts";
import { readAll } from "../../../ports/blob-store.ts";
import type {
  Confinement,
  LeftFiles,
  LinkedFile,
  PluginExit,
  PluginRun,
  PluginRunner,
} from "../../../ports/plugin-runner.ts";
import type { WorkspaceFile } from "../../../ports/sessions.ts";
import { directoryPrefix, filePath } from "../../../workspace/path.ts";
import { withDelivery } from "../../../errors/delivery.ts";
import type { ToolReply } from "../../tool-call.ts";
import { answered, invalidInput, type NativeRun } from "../native-tool.ts";
import type { RunCodeInput } from "../run-code.ts";
import { toReply, type KeptFile, type NotKept } from "./reply.ts";

const megabyte = 1_048_576;

const confinement: Confinement = {
  memoryBytes: 512 * megabyte,
  diskBytes: 256 * megabyte,
  maxProcesses: 64,
  maxFiles: 200,
  maxFileBytes: 32 * megabyte,
};
/** Of the workspace's files that go in. */
const mostBytesIn = 64 * megabyte;
const mostFilesIn = 2_000;
const mostOutput = megabyte;
const usualTimeoutMs = 30_000;
/** Of the call's time for bringing files in and back. */
const aroundMs = 5_000;
/** An environment may have to be made for the box before it follows a link. */
const linkMs = 300_000;

const programs = {
  python: { command: ["python3", "-u", "-"], environment: { PYTHONDONTWRITEBYTECODE: "1", MPLBACKEND: "Agg" } },
  javascript: { command: ["node", "--max-old-space-size=384", "-"], environment: {} },
} as const satisfies Record<
  RunCodeInput["language"],
  { command: PluginRun["command"]; environment: PluginRun["environment"] }
>;

/** @throws GatewayError `code_box_unavailable`; `invalid_arguments` for files and the time; what the workspace says */
export async function runInBox(asked: RunCodeInput, run: NativeRun): Promise<ToolReply> {
  const { context, deps } = run;
  const box = deps.codeBox;
  if (box === undefined) throw noBox();
  const timeoutMs = timeoutOf(asked, run);
  const { files, linked, names } = await answered(filesFor(asked, run, box.carriesBytes));
  const exit = await runOnce(box, {
    tenant: context.tenant,
    ...programs[asked.language],
    stdin: asked.code,
    timeoutMs,
    maxOutputBytes: mostOutput,
    signal: context.signal,
    files,
    linked,
    confined: confinement,
  });
  if (exit.ended === "aborted" && exit.exceeded === undefined) throw givenUp();
  if (exit.ended === "spawn") {
    throw withDelivery(
      new GatewayError("code_box_unavailable", `The program was not started: ${exit.stderr}`),
      "not_sent",
    );
  }
  const { kept, notKept } = await keepFiles(exit.left ?? { files: [], passedOver: [] }, run, new Set(names));
  return toReply({ exit, kept, notKept, timeoutMs, confinement }, context.config.settings.result_bytes);
}

function timeoutOf({ timeout_ms: asked }: RunCodeInput, { call, context }: NativeRun): number {
  const whole = call.timeoutMs ?? context.config.settings.tool_timeout_ms;
  const most = Math.max(Math.trunc(whole / 2), whole - aroundMs);
  if (asked === undefined) return Math.min(usualTimeoutMs, most);
  if (asked <= most) return asked;
  throw invalidInput(
    "timeout_ms",
    `'timeout_ms' may be ${most} at most, so that files can be kept within the ${whole} ms of the call (setting 'tool_timeout_ms').`,
  );
}

async function runOnce(box: PluginRunner, run: PluginRun): Promise<PluginExit> {
  try {
    return await box.run(run);
  } catch (thrown) {
    const error = toGatewayError(thrown);
    // Whatever became of the box, it could reach nothing: the call has had no effect.
    if (error.code === "outcome_unknown") {
      const message = "The code box was lost while the code ran; nothing of what it did is kept.";
      throw withDelivery(new GatewayError("tool_failed", message, { cause: thrown }), "answered");
    }
    if (error.code === "payload_too_large") throw tooMuch(error.message);
    throw withDelivery(error, "not_sent");
  }
}

type LaidFile = NonNullable<PluginRun["files"]>[number];

interface FilesIn {
  readonly files: readonly LaidFile[];
  /** Those that the box fetches by itself. */
  readonly linked: readonly LinkedFile[];
  readonly names: readonly string[];
}

async function filesFor(asked: RunCodeInput, run: NativeRun, carries = Number.POSITIVE_INFINITY): Promise<FilesIn> {
  const { sessionId: session, tenant } = run.context;
  if (session === undefined) {
    if (asked.files === undefined || asked.files.length === 0) return { files: [], linked: [], names: [] };
    throw invalidInput("files", "The call is made in no session, so there are no files; send 'session_id' with it.");
  }
  const all = await run.workspace.list({ tenant, session, path: "/" });
  const wanted = asked.files === undefined ? all : selected(all, asked.files);
  const bytes = wanted.reduce((sum, file) => sum + file.bytes, 0);
  if (bytes > mostBytesIn || wanted.length > mostFilesIn) {
    throw tooMuch(
      `${wanted.length} files of ${bytes} bytes are more than go into the code box (${mostFilesIn} files, ${mostBytesIn} bytes).`,
    );
  }
  // The largest first, so that there are few links.
  const bySize = [...wanted].sort((a, b) => b.bytes - a.bytes);
  const files: LaidFile[] = [];
  const linked: LinkedFile[] = [];
  let rest = bytes;
  for (const file of bySize) {
    if (rest > carries) linked.push(await linkTo(file, run));
    else files.push({ path: file.path, body: await bytesOf(file, run, session) });
    rest -= file.bytes;
  }
  return { files, linked, names: wanted.map(({ path }) => path) };
}

async function linkTo({ path, bytes, blobKey }: WorkspaceFile, { deps }: NativeRun): Promise<LinkedFile> {
  const { url, headers } = await deps.blobs.presign(blobKey, { method: "GET", expiresInMs: linkMs });
  return { path, bytes, url, headers };
}

function selected(all: readonly WorkspaceFile[], paths: readonly string[]): readonly WorkspaceFile[] {
  const byPath = new Map(all.map((file) => [file.path, [file]]));
  const chosen = new Set<WorkspaceFile>();
  for (const path of paths) {
    const found = /[/\\]$/.test(path) ? within(all, directoryPrefix(path)) : (byPath.get(filePath(path)) ?? []);
    if (found.length === 0) {
      throw new GatewayError("file_not_found", `There is no file '${path}' in this workspace.`, { param: "files" });
    }
    for (const file of found) chosen.add(file);
  }
  return [...chosen];
}

function within(all: readonly WorkspaceFile[], prefix: string): readonly WorkspaceFile[] {
  return all.filter((file) => file.path.startsWith(prefix));
}

async function bytesOf(
  file: WorkspaceFile,
  { deps, workspace, context }: NativeRun,
  session: string,
): Promise<Uint8Array> {
  const opened = await deps.blobs.get(file.blobKey);
  // Replaced since it was listed.
  const body = opened?.body ?? (await workspace.read({ tenant: context.tenant, session, path: file.path })).body;
  return readAll(body);
}

async function keepFiles(
  { files, passedOver }: LeftFiles,
  run: NativeRun,
  before: ReadonlySet<string>,
): Promise<{ readonly kept: readonly KeptFile[]; readonly notKept: readonly NotKept[] }> {
  const kept: KeptFile[] = [];
  const notKept: NotKept[] = [...passedOver];
  for (const { path, body } of files) {
    const error = await keep(path, body, run);
    // Pictures are shown also where there is no session to keep them in.
    if (error !== undefined) notKept.push({ path, reason: error });
    kept.push({ path, body, isKept: error === undefined, isNew: !before.has(path) });
  }
  return { kept, notKept };
}

/** @returns why it was not kept */
async function keep(path: string, body: Uint8Array, { context, workspace }: NativeRun): Promise<string | undefined> {
  const { sessionId: session, tenant, config } = context;
  if (session === undefined) return "the call was made in no session; send 'session_id' with it";
  try {
    // A name that means another one is not what the code has written.
    if (filePath(path) !== path) return "its name is not one of a workspace file";
    await workspace.write({ tenant, session, path }, body, {
      mediaType: "application/octet-stream",
      limit: config.settings.workspace_bytes,
    });
    return undefined;
  } catch (thrown) {
    const error = toGatewayError(thrown);
    if (error.spec.http >= 500) throw withDelivery(error, "uncertain");
    return error.message;
  }
}

function noBox(): GatewayError {
  return withDelivery(
    new GatewayError(
      "code_box_unavailable",
      "Code cannot be run here: this gateway has no code box. On AWS set CODE_BOX_FUNCTION to the function that the stack makes for it; elsewhere run the server form with bubblewrap installed (docs/native-tools.md).",
    ),
    "not_sent",
  );
}

function tooMuch(why: string): GatewayError {
  return invalidInput("files", `${why} Name those that the code needs in 'files'.`);
}

function givenUp(): GatewayError {
  return withDelivery(new GatewayError("call_cancelled", "The code was ended because its call was."), "answered");
}
