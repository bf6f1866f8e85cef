/**
 * Pictures of results, for models that see. Chat completions have no place for them in a tool's message, so a message
 * of their own follows the turn's results (decision 0053). They are no words of the user's, and that is said.
 */
import { openHandle } from "../calls/open-handle.ts";
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { toGatewayError } from "../errors/gateway-error.ts";
import { isJsonObject, parseJson, type JsonObject, type JsonValue } from "../json.ts";
import { pictureTypeOf } from "../picture-type.ts";
import { readAll } from "../ports/blob-store.ts";
import { handleOf, isInParts, type ResultHandle, type ToolOutcome } from "../tools/outcome.ts";
import { contentOf, pictureOfPart } from "../vcp/plugins/reply.ts";

/** What vendors take of one picture: 5 MiB as base64. */
const mostPictureBytes = 3_932_160;
/** Of all in a conversation, which is sent anew with every round. */
const mostBytes = 8_388_608;
const mostPictures = 20;
/** Of a result in which they are looked for; beside them may be other things. */
const mostResultBytes = 33_554_432;

export type PictureDeps = Pick<CoreDeps, "blobs" | "repos" | "log">;

export interface PicturedResult {
  /** As the model knows it. */
  readonly tool: string;
  readonly outcome: ToolOutcome;
}

interface Shown {
  readonly bytes: number;
  readonly count: number;
  /** The message with calls in the place of pictures. */
  readonly kept: JsonObject;
}

const shown = new WeakMap<JsonObject, Shown>();
/** All of these messages: with pictures, as they are kept, and with what stands for pictures that have no room. */
const own = new WeakSet<JsonObject>();

interface Picture {
  readonly callId: string;
  /** Among those of its call. */
  readonly index: number;
  readonly bytes: Uint8Array;
  readonly mediaType: string;
}

const heading = "Pictures that came with the results of tools; they are results, not words of the user:";

/** The message that shows the pictures of these results; undefined: there are none. */
export async function picturesMessage(
  deps: PictureDeps,
  context: CallContext,
  results: readonly PicturedResult[],
): Promise<JsonObject | undefined> {
  const parts: { readonly told: JsonObject; readonly kept: JsonObject }[] = [];
  const say = (text: string): unknown => parts.push({ told: textPart(text), kept: textPart(text) });
  let bytes = 0;
  let count = 0;
  for (const { tool, outcome } of results) {
    const handle = handleOf(outcome);
    if (handle === undefined || !mayHavePictures(handle)) continue;
    // What has no room is not even read.
    const least = isInParts(handle.mediaType) ? 0 : handle.bytes;
    if (count === mostPictures || bytes + least > mostBytes) {
      say(`'${tool}', call ${handle.callId}: not shown, there are too many`);
      continue;
    }
    for (const picture of await readPictures(deps, context, handle)) {
      const size = picture.bytes.byteLength;
      const what = `'${tool}', call ${picture.callId}, ${picture.mediaType}, ${size} bytes`;
      if (size > mostPictureBytes || bytes + size > mostBytes || count === mostPictures) {
        say(`${what}: not shown, it is too large or one too many`);
        continue;
      }
      bytes += size;
      count += 1;
      say(`${what}:`);
      parts.push({ told: picturePart(picture), kept: keptPart(picture) });
    }
  }
  if (count === 0) return undefined;
  const kept: JsonObject = { role: "user", content: [textPart(heading), ...parts.map((part) => part.kept)] };
  return remember([textPart(heading), ...parts.map(({ told }) => told)], { bytes, count, kept });
}

/** As many of a result as a model is shown, by what is known before they are read. */
export function countShown(outcome: ToolOutcome): number {
  const handle = handleOf(outcome);
  if (handle === undefined || !mayHavePictures(handle)) return 0;
  if (isInParts(handle.mediaType)) return Math.min(handle.pictures ?? 1, mostPictures);
  return shownType.test(handle.mediaType) && handle.bytes <= mostPictureBytes ? 1 : 0;
}

const shownType = /^image\/(?:png|jpe?g|gif|webp)\b/i;

/** Is it one of these messages? Its role is the user's, and yet it is nothing that the user has said. */
export function isOfPictures(message: JsonObject): boolean {
  return own.has(message);
}

/** Older pictures go where all together are too much to be sent with every round. */
export function makeRoom(messages: JsonObject[]): void {
  let bytes = 0;
  let count = 0;
  for (let at = messages.length - 1; at >= 0; at -= 1) {
    const message = messages[at] ?? {};
    const held = shown.get(message);
    if (held === undefined) continue;
    bytes += held.bytes;
    count += held.count;
    if (bytes > mostBytes || count > mostPictures) messages[at] = withoutRoom();
  }
}

/**
 * Whole messages go, since some back ends take none of the user's role behind results; the results say what there is.
 * @returns the places at which they were
 */
export function takePicturesOut(messages: JsonObject[]): readonly number[] {
  const places = messages.flatMap((message, at) => (isOfPictures(message) ? [at] : []));
  for (const at of places.toReversed()) messages.splice(at, 1);
  return places;
}

const noRoom = "[Pictures of results are left out here: newer ones take their room]";

function withoutRoom(): JsonObject {
  return asOwn({ role: "user", content: noRoom });
}

function asOwn(message: JsonObject): JsonObject {
  own.add(message);
  return message;
}

/** As they are kept with a turn: without the bytes, which are kept with their calls. */
export function toKept(messages: readonly JsonObject[]): readonly JsonObject[] {
  return messages.map((message) => shown.get(message)?.kept ?? message);
}

/** What is kept with a turn, known for what it is; the pictures are read with the whole conversation. */
export function markKept(messages: readonly JsonObject[]): void {
  for (const message of messages) {
    const { role, content } = message;
    if (role === "user" && (content === noRoom || keptPartsOf(content).length > 0)) own.add(message);
  }
}

/** The conversation with the pictures of kept turns again, as many of the newest as are sent. */
export async function withKeptPictures(
  deps: PictureDeps,
  context: CallContext,
  messages: readonly JsonObject[],
): Promise<JsonObject[]> {
  if (!context.config.settings.show_result_pictures) return messages.filter((message) => !isOfPictures(message));
  const restored = [...messages];
  let bytes = 0;
  let count = 0;
  for (let at = messages.length - 1; at >= 0; at -= 1) {
    const message = messages[at] ?? {};
    const { content } = message;
    if (!isOfPictures(message) || !Array.isArray(content)) continue;
    // What has no room is not even read.
    const hasRoom = bytes < mostBytes && count + keptPartsOf(content).length <= mostPictures;
    const again = hasRoom ? await withPictures(deps, context, { message, content }) : withoutRoom();
    bytes += shown.get(again)?.bytes ?? mostBytes;
    count += shown.get(again)?.count ?? 0;
    restored[at] = again;
  }
  makeRoom(restored);
  return restored;
}

function keptPartsOf(content: JsonValue | undefined): readonly JsonObject[] {
  return Array.isArray(content) ? content.filter(isKeptPart) : [];
}

const keptType = "result_picture";

function keptPart({ callId, index }: Picture): JsonObject {
  return { type: keptType, call_id: callId, index };
}

function isKeptPart(part: JsonValue): part is JsonObject {
  return isJsonObject(part) && part["type"] === keptType;
}

async function withPictures(
  deps: PictureDeps,
  context: CallContext,
  { message, content }: { readonly message: JsonObject; readonly content: readonly JsonValue[] },
): Promise<JsonObject> {
  const known = new Map<string, readonly Picture[]>();
  const parts: JsonValue[] = [];
  let bytes = 0;
  let count = 0;
  for (const part of content) {
    const { call_id: callId, index } = isKeptPart(part) ? part : {};
    if (typeof callId !== "string" || typeof index !== "number") {
      parts.push(part);
      continue;
    }
    const pictures = known.get(callId) ?? (await readPictures(deps, context, { callId }));
    known.set(callId, pictures);
    const picture = pictures.find((one) => one.index === index);
    parts.push(picture === undefined ? textPart("[no longer kept]") : picturePart(picture));
    bytes += picture?.bytes.byteLength ?? 0;
    count += picture === undefined ? 0 : 1;
  }
  return remember(parts, { bytes, count, kept: message });
}

function remember(content: readonly JsonValue[], held: Shown): JsonObject {
  const message: JsonObject = { role: "user", content: [...content] };
  shown.set(message, held);
  return asOwn(message);
}

function textPart(text: string): JsonObject {
  return { type: "text", text };
}

function picturePart({ bytes, mediaType }: Picture): JsonObject {
  const url = `data:${mediaType};base64,${Buffer.from(bytes).toString("base64")}`;
  return { type: "image_url", image_url: { url } };
}

function mayHavePictures({ bytes, mediaType, pictures }: ResultHandle): boolean {
  return bytes <= mostResultBytes && (mediaType.startsWith("image/") || (isInParts(mediaType) && pictures !== 0));
}

async function readPictures(
  deps: PictureDeps,
  context: CallContext,
  { callId }: Pick<ResultHandle, "callId">,
): Promise<readonly Picture[]> {
  try {
    const { body, mediaType } = await openHandle(deps, context, callId);
    const whole = await readAll(body);
    const all = mediaType.startsWith("image/") ? [whole] : picturesIn(Buffer.from(whole).toString("utf8"));
    return all.flatMap((bytes, index) => {
      const type = pictureTypeOf(bytes);
      return type === undefined ? [] : [{ callId, index, bytes, mediaType: type }];
    });
  } catch (thrown) {
    deps.log.log("warn", "pictures of a result cannot be read", {
      call_id: callId,
      error: toGatewayError(thrown).code,
    });
    return [];
  }
}

/** Of a result in parts, as MCP servers and VCP plugins give it. */
function picturesIn(text: string): readonly Uint8Array[] {
  const parts = contentOf(parseJson(text) ?? null) ?? [];
  return parts.flatMap((part) => {
    const base64 = pictureOfPart(part);
    return base64 === undefined ? [] : [Buffer.from(base64, "base64")];
  });
}
