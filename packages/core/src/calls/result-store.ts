/**
 * Results of tool calls: redacted, and where they are long or not text kept whole in the blob store,
 * while the model gets the head and a handle to read on with `read_result`. A result is written once:
 * whoever comes second adopts what is stored, so that all attempts tell the same.
 */
import { isUtf8 } from "node:buffer";
import { mayUseTool } from "../callers/caller.ts";
import type { CallContext } from "../context.ts";
import type { AdapterDeps } from "../deps.ts";
import { GatewayError, toGatewayError } from "../errors/gateway-error.ts";
import { readAll, tenantKey, type BlobStore, type PresignedRequest } from "../ports/blob-store.ts";
import type { ToolReply } from "../tools/tool-call.ts";
import { withDelivery } from "../errors/delivery.ts";
import type { CompletedOutcome, ResultHandle } from "../tools/outcome.ts";
import type { Call, StoredOutcome } from "./call.ts";

export interface ShapedReply {
  readonly outcome: CompletedOutcome;
  readonly stored: StoredOutcome;
}

/** A whole result, or the part of it that was asked for. */
export interface OpenResult {
  readonly mediaType: string;
  /** Of the whole result. */
  readonly bytes: number;
  readonly body: AsyncIterable<Uint8Array>;
}

/** Inclusive of `start`, exclusive of `end`. */
export interface ResultRange {
  readonly start: number;
  readonly end?: number;
}

interface WholeResult {
  readonly bytes: Uint8Array;
  readonly mediaType: string;
  readonly isText: boolean;
  /** What stands for it. */
  readonly forModel?: string;
}

/**
 * Where a long result is kept. The caller is part of the address: the rows of reads are written when
 * their chat ends, and until then this is how `read_result` knows whose a result is.
 */
function resultKey(tenant: string, callerId: string, callId: string): string {
  return tenantKey(tenant, "results", callerId, callId);
}

/**
 * @throws GatewayError `tool_output_too_large` beyond the tenant's `result_max_bytes`, marked `answered`
 */
export async function shapeReply(
  deps: Pick<AdapterDeps, "blobs" | "log">,
  context: CallContext,
  callId: string,
  reply: ToolReply,
): Promise<ShapedReply> {
  const { result_bytes: most, result_max_bytes: largest } = context.config.settings;
  const whole = redacted(context, reply);
  if (whole.bytes.byteLength > largest) throw tooLarge(whole.bytes.byteLength, largest);
  const { forModel } = whole;
  if (forModel === undefined && whole.isText && whole.bytes.byteLength <= most) {
    const stored = { text: textOf(whole.bytes), mediaType: whole.mediaType, bytes: whole.bytes.byteLength };
    return { stored, outcome: { kind: "completed", text: stored.text, mediaType: stored.mediaType } };
  }
  const blobKey = resultKey(context.tenant, context.caller.id, callId);
  const kept = await keep(deps.blobs, blobKey, whole).catch((error: unknown) => {
    // What the tool did is done. That its result cannot be kept must not make it look undone.
    deps.log.log("error", "a tool result could not be stored", { call_id: callId, error: toGatewayError(error).code });
    return undefined;
  });
  const { bytes, mediaType, isText } = kept ?? whole;
  const details = reply.details === undefined ? "" : `\n${context.redactor.redact(JSON.stringify(reply.details))}`;
  const isKept = kept !== undefined;
  const description = { callId, mediaType, most, details, isKept, mayReadOn: mayReadOn(context) };
  const text = forModel === undefined ? describe(bytes, isText, description) : withWhole(forModel, bytes, description);
  const size = bytes.byteLength;
  return {
    stored: { text, mediaType, bytes: size, ...(kept === undefined ? {} : { blobKey }) },
    outcome: {
      kind: "completed",
      text,
      mediaType,
      ...(kept === undefined ? {} : { handle: { callId, bytes: size, mediaType, ...picturesOf(reply) } }),
    },
  };
}

function picturesOf({ pictures }: ToolReply): Pick<ResultHandle, "pictures"> {
  return pictures === undefined ? {} : { pictures };
}

/**
 * The result of a call that has ended, or a part of it, as a stream.
 * @throws GatewayError `call_not_finished`; `not_found` where there is no result, or no longer
 */
export async function openResult(
  deps: Pick<AdapterDeps, "blobs">,
  tenant: string,
  call: Call,
  range?: ResultRange,
): Promise<OpenResult> {
  if (call.tenant !== tenant) throw new GatewayError("not_found", `There is no call '${call.id}'.`, { param: "id" });
  const { outcome } = call;
  // Those that run may have said something first.
  if (["queued", "running", "input_required"].includes(call.state)) {
    throw new GatewayError("call_not_finished", `Call '${call.id}' is '${call.state}'; ask again when it has ended.`);
  }
  if (outcome === null) {
    throw new GatewayError("not_found", `Call '${call.id}' has no result; it ended as '${call.state}'.`);
  }
  if (outcome.blobKey !== undefined) {
    const opened = await openBlob(deps.blobs, outcome.blobKey, range);
    if (opened === undefined) throw new GatewayError("not_found", `The result of call '${call.id}' is no longer kept.`);
    return opened;
  }
  const bytes = Buffer.from(outcome.text, "utf8");
  return {
    mediaType: outcome.mediaType,
    bytes: bytes.byteLength,
    body: once(bytes.subarray(range?.start ?? 0, range?.end)),
  };
}

/**
 * A link to a result that is kept as a blob, as those are that `complete: false` is shown of.
 * @throws GatewayError as `openResult`; `invalid_request` for a result that is short
 */
export async function presignResult(
  deps: Pick<AdapterDeps, "blobs">,
  call: Call,
  expiresInMs: number,
): Promise<PresignedRequest> {
  const { bytes } = await openResult(deps, call.tenant, call, { start: 0, end: 0 });
  const blobKey = call.outcome?.blobKey;
  if (blobKey === undefined) {
    throw new GatewayError(
      "invalid_request",
      `The result of call '${call.id}' is short (${bytes} bytes) and needs no link; GET /v1/calls/${call.id}/result gives it.`,
    );
  }
  return deps.blobs.presign(blobKey, { method: "GET", expiresInMs, fileName: call.id });
}

/** A long result of the caller's own whose row may not be written yet. */
export async function openOwnResult(
  deps: Pick<AdapterDeps, "blobs">,
  context: CallContext,
  callId: string,
  range?: ResultRange,
): Promise<OpenResult | undefined> {
  return openBlob(deps.blobs, resultKey(context.tenant, context.caller.id, callId), range);
}

async function openBlob(blobs: BlobStore, key: string, range?: ResultRange): Promise<OpenResult | undefined> {
  const blob = await blobs.get(key, range);
  if (blob === undefined) return undefined;
  return { mediaType: blob.info.mediaType, bytes: blob.info.bytes, body: blob.body };
}

async function keep(blobs: BlobStore, key: string, whole: WholeResult): Promise<WholeResult> {
  if (await blobs.put(key, whole.bytes, { mediaType: whole.mediaType, ifAbsent: true })) return whole;
  // An earlier attempt stored its result and did not come to say so.
  const stored = await blobs.get(key);
  if (stored === undefined) throw new GatewayError("internal_error", "A stored result vanished while it was read.");
  const bytes = await readAll(stored.body);
  return { bytes, mediaType: stored.info.mediaType, isText: isUtf8(bytes) };
}

/** Secrets are taken out before anything is cut: half of one would not be found. */
function redacted({ redactor }: CallContext, { body, mediaType, forModel }: ToolReply): WholeResult {
  const isText = typeof body === "string";
  // The type is the back end's own word too.
  const isTelling = redactor.redact(mediaType) !== mediaType;
  return {
    bytes: isText ? Buffer.from(redactor.redact(body), "utf8") : redactor.redactBytes(body),
    mediaType: isTelling ? (isText ? "text/plain" : "application/octet-stream") : mediaType,
    isText,
    ...(forModel === undefined ? {} : { forModel: redactor.redact(forModel) }),
  };
}

interface Description {
  readonly callId: string;
  readonly mediaType: string;
  /** Bytes that the text may have. */
  readonly most: number;
  /** Of bytes, on a line of their own; empty where nothing is known. */
  readonly details: string;
  readonly isKept: boolean;
  /** `read_result` is there for this caller. */
  readonly mayReadOn: boolean;
}

function mayReadOn({ caller, config }: CallContext): boolean {
  const name = "read_result";
  return mayUseTool(caller, { name, enabled: config.settings.native_tools.includes(name), roles: [] });
}

function describe(bytes: Uint8Array, isText: boolean, description: Description): string {
  return isText ? headOf(bytes, description) : describeBinary(bytes, description);
}

function withWhole(forModel: string, bytes: Uint8Array, { callId, mediaType, most, isKept }: Description): string {
  const where = isKept ? `GET /v1/calls/${callId}/result gives it` : "it could not be kept";
  const notice = `[the whole result: ${mediaType}, ${bytes.byteLength} bytes; ${where}]`;
  const text = Buffer.from(forModel, "utf8");
  const shown = cutPoint(text, Math.max(0, most - Buffer.byteLength(notice) - 1));
  return `${textOf(text.subarray(0, shown))}\n${notice}`;
}

function headOf(bytes: Uint8Array, { callId, most, isKept, mayReadOn: offersMore }: Description): string {
  const how = (shown: number): string =>
    offersMore
      ? `read on with read_result {"call_id":"${callId}","offset":${shown}}, or with "line", "jsonpath" or "grep"`
      : `GET /v1/calls/${callId}/result gives it whole`;
  const notice = (shown: number): string =>
    isKept
      ? `[cut: ${shown} of ${bytes.byteLength} bytes shown; ${how(shown)}]`
      : `[cut: ${shown} of ${bytes.byteLength} bytes shown; the rest could not be kept]`;
  const room = most - Buffer.byteLength(notice(bytes.byteLength)) - 1;
  const shown = room <= 0 ? 0 : cutPoint(bytes, room);
  return `${textOf(bytes.subarray(0, shown))}\n${notice(shown)}`;
}

function describeBinary(bytes: Uint8Array, { callId, mediaType, details, isKept }: Description): string {
  const where = isKept
    ? `kept whole behind the handle ${callId}: GET /v1/calls/${callId}/result`
    : "it could not be kept";
  return `[binary result: ${mediaType}, ${bytes.byteLength} bytes; ${where}]${details}`;
}

/** The largest cut up to `room` that splits no character, after a line break where one is near. */
export function cutPoint(bytes: Uint8Array, room: number): number {
  if (bytes.byteLength <= room) return bytes.byteLength;
  const newline = bytes.lastIndexOf(0x0a, room - 1);
  if (newline >= 0 && newline + 1 >= room * 0.75) return newline + 1;
  let cut = room;
  // Bytes 10xxxxxx go on with a character that began before.
  while (cut > 0 && ((bytes[cut] ?? 0) & 0xc0) === 0x80) cut -= 1;
  return cut;
}

function textOf(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("utf8");
}

function tooLarge(bytes: number, most: number): GatewayError {
  return withDelivery(
    new GatewayError(
      "tool_output_too_large",
      `The tool's result has ${bytes} bytes, more than the ${most} that this tenant keeps (setting 'result_max_bytes'); ask for less.`,
      { extra: { bytes, limit_bytes: most } },
    ),
    "answered",
  );
}

async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array, void, void> {
  if (bytes.byteLength > 0) yield bytes;
}
