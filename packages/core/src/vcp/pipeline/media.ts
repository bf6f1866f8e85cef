/**
 * Pictures, sounds and films as model back ends take them (VCP specification 4.5, step 3): `image_url` and
 * `video_url` with a data URI, `input_audio` with base 64. What they were before does not matter: an address, a
 * file of the workspace, base 64, or the form of another vendor.
 */
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";
import type { Draft } from "./draft.ts";
import type { MediaSource } from "./media-source.ts";
import { audioFormat, classOf, type MediaClass } from "./media-types.ts";

interface MediaPart {
  readonly wanted: MediaClass;
  readonly source: string;
  /** What else the part says, for its new form. */
  readonly more: JsonObject;
}

/** The conversation with all media of what is visible in place. @throws GatewayError as `MediaSource.open` */
export async function prepareMedia(draft: Draft, source: MediaSource): Promise<Draft> {
  const prepared: Draft[number][] = [];
  // One after the other: a conversation has few, and each may have megabytes.
  for (const entry of draft) {
    const message = entry.isHidden ? entry.message : await prepareMessage(entry.message, source);
    prepared.push(message === entry.message ? entry : { ...entry, message });
  }
  return prepared;
}

async function prepareMessage(message: JsonObject, source: MediaSource): Promise<JsonObject> {
  const { content } = message;
  if (!Array.isArray(content)) return message;
  let isChanged = false;
  const parts: JsonValue[] = [];
  for (const part of content) {
    const media = mediaPartOf(part);
    const prepared = media === undefined ? part : await preparePart(media, source);
    isChanged ||= prepared !== part;
    parts.push(prepared);
  }
  return isChanged ? { ...message, content: parts } : message;
}

async function preparePart({ wanted, source, more }: MediaPart, from: MediaSource): Promise<JsonObject> {
  const { mediaType, base64 } = await from.open(source, wanted);
  if (wanted === "audio" && classOf(mediaType) === "audio") {
    return { type: "input_audio", input_audio: { ...more, data: base64, format: audioFormat(mediaType) } };
  }
  const url = `data:${mediaType};base64,${base64}`;
  return wanted === "video"
    ? { type: "video_url", video_url: { ...more, url } }
    : { type: "image_url", image_url: { ...more, url } };
}

interface MediaField {
  readonly wanted: MediaClass;
  /** Of the field that holds it; the first that is there. */
  readonly names: readonly string[];
}

/** By the part's type, in the words of several vendors. */
const fields: ReadonlyMap<string, MediaField> = new Map([
  ["image_url", { wanted: "image", names: ["image_url"] }],
  ["image", { wanted: "image", names: ["source", "image", "data", "url"] }],
  ["input_audio", { wanted: "audio", names: ["input_audio"] }],
  ["audio_url", { wanted: "audio", names: ["audio_url"] }],
  ["audio", { wanted: "audio", names: ["source", "audio", "data", "url"] }],
  ["video_url", { wanted: "video", names: ["video_url"] }],
  ["video", { wanted: "video", names: ["source", "video", "data", "url"] }],
]);

/** Undefined for a part that is no medium, or that names none. */
function mediaPartOf(part: JsonValue): MediaPart | undefined {
  if (!isJsonObject(part)) return undefined;
  const { type } = part;
  const field = typeof type === "string" ? fields.get(type) : undefined;
  if (field === undefined) return undefined;
  const { wanted, names } = field;
  return toMedia(
    wanted,
    names.map((name) => part[name]).find((value) => value !== undefined),
  );
}

function toMedia(wanted: MediaClass, value: JsonValue | undefined): MediaPart | undefined {
  if (typeof value === "string") return value === "" ? undefined : { wanted, source: value, more: {} };
  if (!isJsonObject(value)) return undefined;
  const { url, data, format, media_type: mediaType, type: _type, ...more } = value;
  if (typeof url === "string" && url !== "") return { wanted, source: url, more };
  if (typeof data !== "string" || data === "") return undefined;
  const named =
    typeof mediaType === "string" ? mediaType : typeof format === "string" ? `${wanted}/${format}` : undefined;
  const isAddress = named === undefined || /^(?:data|https?|file):/i.test(data);
  return { wanted, source: isAddress ? data : `data:${named};base64,${data}`, more };
}
