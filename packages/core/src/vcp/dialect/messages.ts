/**
 * The texts by which a model hears what came of its requests, and a client sees them, byte by byte as upstream
 * writes them: prompts tell models what to expect, and clients cut these texts out again by their marks.
 */
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";
import type { CallEnd, CallResult } from "./results.ts";

const payloadMark = "<!-- VCP_TOOL_PAYLOAD -->";

/** The message that gives results to the model. */
export function payloadMessage(parts: readonly JsonObject[]): JsonObject {
  const content: JsonValue = parts.some(isMedium)
    ? [{ type: "text", text: `${payloadMark}\nResults:` }, ...parts]
    : `${payloadMark}\n${JSON.stringify(parts, withoutData)}`;
  return { role: "user", content };
}

const media: ReadonlySet<unknown> = new Set(["image_url", "input_audio", "video_url", "file"]);

/** What a model takes as it is, and would not understand written out. */
function isMedium({ type }: JsonObject): boolean {
  return media.has(type);
}

function withoutData(key: string, value: unknown): unknown {
  const isData = (key === "url" || key === "image_url") && typeof value === "string" && value.startsWith("data:");
  return isData ? "[Omitted]" : value;
}

/** An archery call tells the model of its failure only. */
export function archeryFailure({ name, parts }: CallResult): JsonObject {
  return { type: "text", text: `[异步工具 "${name}" 返回了错误，请注意]:\n${textOfParts(parts)}` };
}

const endWords: Readonly<Record<CallEnd, string>> = {
  succeeded: "调用成功",
  failed: "调用失败",
  refused: "调用拒绝",
  "timed-out": "调用超时",
  waits: "等待中",
};

const summaryStart = "\n[本轮工具调用摘要:]\n";
const summaryEnd = "\n[本轮工具调用摘要结束]\n";

export function summaryOf(results: readonly Pick<CallResult, "name" | "end">[]): string {
  return `${summaryStart}${results.map(({ name, end }) => `${name} ${endWords[end]}`).join("；")}。${summaryEnd}`;
}

/** An answer comes back as history; what was told to its reader is not the model's to read. */
export function withoutSummaries(text: string): string {
  let rest = "";
  let at = 0;
  for (;;) {
    const start = text.indexOf(summaryStart, at);
    const end = start < 0 ? -1 : text.indexOf(summaryEnd, start + summaryStart.length);
    if (end < 0) return rest + text.slice(at);
    rest += text.slice(at, start);
    at = end + summaryEnd.length;
  }
}

/** What the client is shown of a result. */
export function infoOf(result: CallResult): string {
  const isError = result.end === "failed" || result.end === "refused" || result.end === "timed-out";
  return `\n[[VCP调用结果信息汇总:\n- 工具名称: ${result.name}\n- 执行状态: ${isError ? "❌ ERROR" : "✅ SUCCESS"}\n- 返回内容: ${shownOf(result)}\nVCP调用结果结束]]\n`;
}

const wordFields = ["result", "message", "original_plugin_output", "content"] as const;

function shownOf({ value, parts, end }: CallResult): string {
  if (end !== "succeeded") return textOfParts(parts);
  if (!isJsonObject(value)) return typeof value === "string" ? value : compact(value);
  if (Array.isArray(value["content"]) || isJsonObject(value["data"])) {
    const text = textOfParts(parts);
    if (text !== "" && Array.isArray(value["content"] ?? dataContent(value))) return text;
  }
  const words = wordFields.map((field) => value[field]).find((field) => typeof field === "string" && field !== "");
  return typeof words === "string" ? words : compact(value);
}

function dataContent({ data }: JsonObject): JsonValue | undefined {
  return isJsonObject(data) ? data["content"] : undefined;
}

function compact(value: JsonValue): string {
  return JSON.stringify(value, (_key, inner: unknown) =>
    typeof inner === "string" && /^data:[^,]{0,200};base64,/.test(inner) ? "[Omitted]" : inner,
  );
}

function textOfParts(parts: readonly JsonObject[]): string {
  return parts.flatMap(({ type, text }) => (type === "text" && typeof text === "string" ? [text] : [])).join("\n");
}

/** What the client is shown between two replies counts as said by the user, where roles are divided. */
export function asUsers(text: string): string {
  return `\n<<<[ROLE_DIVIDE_USER]>>>\n${text}\n<<<[END_ROLE_DIVIDE_USER]>>>\n`;
}
