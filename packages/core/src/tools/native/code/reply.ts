/** What a model and a caller are told of a program that ran in the code box. */
import type { JsonObject } from "../../../json.ts";
import { partsMediaType } from "../../../mcp/call-result.ts";
import type { Confinement, PluginExit } from "../../../ports/plugin-runner.ts";
import { pictureTypeOf } from "../../../picture-type.ts";
import type { ToolReply } from "../../tool-call.ts";

export interface KeptFile {
  readonly path: string;
  readonly body: Uint8Array;
  /** In the workspace. */
  readonly isKept: boolean;
  readonly isNew: boolean;
}

export interface NotKept {
  readonly path: string;
  readonly reason: string;
}

export interface Ran {
  readonly exit: PluginExit;
  readonly kept: readonly KeptFile[];
  readonly notKept: readonly NotKept[];
  readonly timeoutMs: number;
  readonly confinement: Confinement;
}

/** Bytes of pictures that come with the answer; larger ones are files only. */
const mostImageBytes = 4_194_304;

/** @param most bytes of what a model reads; the whole is kept behind the handle */
export function toReply(ran: Ran, most: number): ToolReply {
  const images = imagesOf(ran.kept);
  const whole = describe(ran, images);
  const text = JSON.stringify(whole);
  const { stdout, stderr } = ran.exit;
  const forModel = Buffer.byteLength(text) <= most ? text : JSON.stringify(shortened(whole, { stdout, stderr, most }));
  if (images.length === 0) {
    return { mediaType: "application/json", body: text, ...(forModel === text ? {} : { forModel }) };
  }
  const parts = images.map(({ body, mediaType }) => ({
    type: "image",
    data: Buffer.from(body).toString("base64"),
    mimeType: mediaType,
  }));
  const content = [{ type: "text", text: forModel }, ...parts];
  return {
    mediaType: partsMediaType,
    body: JSON.stringify({ content, structuredContent: whole }),
    forModel,
    pictures: images.length,
  };
}

interface Image extends KeptFile {
  readonly mediaType: string;
}

function imagesOf(files: readonly KeptFile[]): readonly Image[] {
  let room = mostImageBytes;
  return files.flatMap((file) => {
    const mediaType = pictureTypeOf(file.body);
    if (mediaType === undefined || file.body.byteLength > room) return [];
    room -= file.body.byteLength;
    return [{ ...file, mediaType }];
  });
}

function describe({ exit, kept, notKept, timeoutMs, confinement }: Ran, images: readonly Image[]): JsonObject {
  const limit = limitOf(exit, { timeoutMs, confinement });
  return {
    exit_code: exit.exitCode,
    ...limit,
    duration_ms: exit.durationMs,
    files: kept
      .filter(({ isKept }) => isKept)
      .map(({ path, body, isNew }) => ({ path, bytes: body.byteLength, change: isNew ? "created" : "changed" })),
    ...(notKept.length === 0 ? {} : { not_kept: notKept.map(({ path, reason }) => ({ path, reason })) }),
    ...(images.length === 0
      ? {}
      : {
          images: images.map(({ path, body, mediaType }) => ({ path, media_type: mediaType, bytes: body.byteLength })),
        }),
    stderr: exit.stderr,
    stdout: exit.stdout,
  };
}

function limitOf(exit: PluginExit, { timeoutMs, confinement }: Pick<Ran, "timeoutMs" | "confinement">): JsonObject {
  const told = (limit: string, message: string): JsonObject => ({ ended_by: limit, message });
  if (exit.exceeded === "memory")
    return told(
      "memory_limit",
      `It was ended: together its processes took more than ${confinement.memoryBytes} bytes.`,
    );
  if (exit.exceeded === "processes")
    return told("process_limit", `It was ended: it had more than ${confinement.maxProcesses} processes and threads.`);
  if (exit.ended === "timeout")
    return told(
      "time_limit",
      `It was ended after ${timeoutMs} ms; ask for more with 'timeout_ms', or do less at once.`,
    );
  if (exit.ended === "output")
    return told("output_limit", "It was ended: it printed more than a program may; write long results to a file.");
  return {};
}

/** The beginning of what it printed, the end of what it complained of: where each says most. */
function shortened(
  whole: JsonObject,
  { stdout, stderr, most }: Pick<PluginExit, "stdout" | "stderr"> & { readonly most: number },
): JsonObject {
  const { stdout: _stdout, stderr: _stderr, ...rest } = whole;
  const room = Math.max(512, most - Buffer.byteLength(JSON.stringify(rest)) - 256);
  const complaints = lastCharacters(stderr, Math.trunc(room / 3));
  const printed = firstCharacters(stdout, room - Buffer.byteLength(JSON.stringify(complaints)));
  return { ...rest, stderr: complaints, stdout: printed, note: "The output is cut; the whole is kept." };
}

/** As JSON writes them, a character may take six bytes. */
function firstCharacters(text: string, bytes: number): string {
  let end = Math.min(text.length, Math.max(0, bytes));
  while (Buffer.byteLength(JSON.stringify(text.slice(0, end))) > bytes && end > 0) end = Math.trunc(end * 0.8);
  return end === text.length ? text : `${text.slice(0, end).toWellFormed()}…`;
}

function lastCharacters(text: string, bytes: number): string {
  let start = Math.max(0, text.length - Math.max(0, bytes));
  while (Buffer.byteLength(JSON.stringify(text.slice(start))) > bytes && start < text.length) {
    start = text.length - Math.trunc((text.length - start) * 0.8);
  }
  return start === 0 ? text : `…${text.slice(start).toWellFormed()}`;
}
