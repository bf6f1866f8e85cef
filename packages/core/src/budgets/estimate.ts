/**
 * How many tokens something will be, by its bytes: for reserving before the model is asked, and for back
 * ends that do not say what they used. Four bytes a token is about right for English and for JSON, and on
 * the high side for Chinese. Wrong by a third at most is good enough: what is settled is the real count.
 */
import type { JsonValue } from "../json.ts";

const bytesPerToken = 4;
/** Roles, separators and such, for every message. */
const tokensPerMessage = 4;
/** A picture, a sound or a file: its bytes say nothing of its tokens. */
export const tokensPerAttachment = 1_000;
const attachments: ReadonlySet<string> = new Set(["image_url", "input_audio", "file", "image", "audio", "video_url"]);

export function tokensOfBytes(bytes: number): number {
  return Math.ceil(bytes / bytesPerToken);
}

export function tokensOfText(text: string): number {
  return tokensOfBytes(Buffer.byteLength(text));
}

/** A prompt of these messages, with these tools offered. */
export function tokensOfPrompt(
  messages: readonly { readonly [key: string]: JsonValue }[],
  tools: readonly object[] = [],
): number {
  let tokens = 0;
  for (const message of messages) tokens += tokensPerMessage + tokensOfValue(message);
  for (const tool of tools) tokens += tokensOfTool(tool);
  return tokens;
}

const toolTokens = new WeakMap<object, number>();

/** Definitions are offered again and again; each is counted once. */
export function tokensOfTool(definition: object): number {
  const known = toolTokens.get(definition);
  if (known !== undefined) return known;
  const tokens = tokensOfText(JSON.stringify(definition));
  toolTokens.set(definition, tokens);
  return tokens;
}

function tokensOfValue(value: JsonValue): number {
  if (typeof value === "string") return tokensOfText(value);
  if (typeof value !== "object" || value === null) return 1;
  if (Array.isArray(value)) return value.reduce<number>((sum, part) => sum + tokensOfValue(part), 0);
  const type = value["type"];
  if (typeof type === "string" && attachments.has(type)) return tokensPerAttachment;
  let tokens = 0;
  for (const key in value) tokens += tokensOfValue(value[key] ?? null);
  return tokens;
}
