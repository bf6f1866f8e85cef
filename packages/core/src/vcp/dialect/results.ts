/**
 * What came of a call, in the words that VCP has for it: the object that a plugin's result is, or one of the forms
 * of an error. Results of other tools (HTTP, MCP, native) are read as a plugin's result would be.
 */
import { isDeeperThan, isJsonObject, parseJsonExactly, type JsonObject, type JsonValue } from "../../json.ts";
import type { CompletedOutcome, FailedOutcome, RejectedOutcome, ToolOutcome } from "../../tools/outcome.ts";
import {
  deepestResult,
  failedToRun,
  localTimestamp,
  outcomeOfResult,
  tooDeep,
  type Speaker,
} from "../plugins/outcome.ts";
import { contentOf, vcpErrorOf } from "../plugins/reply.ts";
import { prettyJson } from "../pretty-json.ts";

export type CallEnd = "succeeded" | "failed" | "refused" | "timed-out" | "waits";

export interface CallResult {
  /** As the model named it. */
  readonly name: string;
  readonly end: CallEnd;
  /** What `/v1/human/tool` answers with. */
  readonly value: JsonValue;
  /** What the model reads. */
  readonly parts: readonly JsonObject[];
}

export interface Finished {
  readonly name: string;
  readonly outcome: ToolOutcome;
  /** The whole of a result of which the outcome has only the beginning, or the words. */
  readonly whole?: string | undefined;
  readonly maid?: JsonValue | undefined;
  /** A VCP plugin's, which has its own form already. */
  readonly isOfPlugin: boolean;
  /** The outcome is what the model reads, as it is. */
  readonly isText?: boolean;
  readonly at: Date;
}

const noText = "(无返回内容)";

export function resultOf(finished: Finished): CallResult {
  const { name, outcome } = finished;
  switch (outcome.kind) {
    case "completed":
      if (finished.isText === true) return { name, end: "succeeded", ...textResult(outcome.text) };
      return ofCompleted(finished, outcome);
    case "pending": {
      if (outcome.first !== undefined) return ofCompleted(finished, outcome.first);
      const value = { status: "pending", call_id: outcome.callId, timestamp: localTimestamp(finished.at) };
      return { name, end: "waits", value, parts: [textPart(prettyJson(value))] };
    }
    case "failed":
    case "rejected":
      if (outcome.code === "tool_not_found") return unknownTool(name);
      return ofError(finished, errorOf(finished, outcome), endOf(outcome));
    default:
      return outcome satisfies never;
  }
}

function ofCompleted(finished: Finished, { text, handle }: Pick<CompletedOutcome, "text" | "handle">): CallResult {
  const { name, whole, isOfPlugin } = finished;
  // Only the beginning: the model reads on by the handle that it names.
  if (handle !== undefined && whole === undefined) return { name, end: "succeeded", ...textResult(text) };
  const given = readValue(whole ?? text);
  if (isDeeperThan(given, deepestResult)) return ofError(finished, tooDeep(speakerOf(finished)).error, "failed");
  if (isOfPlugin) {
    // Words of a plugin are what they are.
    if (given === undefined) return { name, end: "succeeded", ...textResult(text) };
    return ofValue(name, given, whole === undefined ? text : undefined);
  }
  const outcome = outcomeOfResult(speakerOf(finished), given ?? text);
  if (outcome.kind === "error") return ofError(finished, outcome.error, "failed");
  return ofValue(name, outcome.value);
}

/** A value in the place of another one. */
export function textResult(value: JsonValue): Pick<CallResult, "value" | "parts"> {
  return { value, parts: [textPart(textOf(value))] };
}

/** The same result with another text where this one stood. */
export function withText(result: CallResult, written: string, meant: string): CallResult {
  const replace = (text: string): string => text.replaceAll(written, () => meant);
  const value = mapTexts(result.value, replace);
  const before = textOf(result.value);
  const parts = result.parts.map((part) => {
    const { text } = part;
    if (typeof text !== "string") return part;
    return textPart(text === before ? textOf(value) : replace(text));
  });
  return { ...result, value, parts };
}

function mapTexts(value: JsonValue, change: (text: string) => string): JsonValue {
  if (typeof value === "string") return change(value);
  if (Array.isArray(value)) return value.map((part) => mapTexts(part, change));
  if (!isJsonObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, mapTexts(part, change)]));
}

function readValue(text: string): JsonValue | undefined {
  const start = text.trimStart()[0];
  return start === "{" || start === "[" ? parseJsonExactly(text) : undefined;
}

/** @param text how the value is written already */
function ofValue(name: string, value: JsonValue, text?: string): CallResult {
  const parts = contentOf(value) ?? [textPart(text ?? textOf(value))];
  return { name, end: saysError(value) ? "failed" : "succeeded", value, parts };
}

function textOf(value: JsonValue): string {
  if (value === null) return noText;
  return typeof value === "object" ? prettyJson(value) : String(value);
}

function textPart(text: string): JsonObject {
  return { type: "text", text };
}

function unknownTool(name: string): CallResult {
  const text = `[错误] 未找到名为 "${name}" 的插件`;
  return { name, end: "failed", value: { error: text }, parts: [textPart(text)] };
}

function ofError({ name }: Finished, error: JsonObject, end: CallEnd): CallResult {
  return { name, end, value: error, parts: [textPart(`[错误] 执行错误: ${JSON.stringify(error)}`)] };
}

function errorOf(finished: Finished, outcome: FailedOutcome | RejectedOutcome): JsonObject {
  const said = vcpErrorOf(outcome);
  if (said !== undefined) return said;
  const speaker = speakerOf(finished);
  if (outcome.code === "call_rejected") return refusedByPerson(speaker, outcome);
  const failure = failedToRun(speaker, "crashed", outcome.message).error;
  const { plugin_execution_error: message, ...signature } = failure;
  // Refused before it ran: the call is at fault, and the model can mend it.
  return outcome.kind === "rejected" ? { plugin_error: message ?? "", code: outcome.code, ...signature } : failure;
}

function refusedByPerson(speaker: Speaker, { details }: FailedOutcome | RejectedOutcome): JsonObject {
  const { plugin_execution_error: _message, ...signature } = failedToRun(speaker, "crashed", "").error;
  const reason = details?.["reason"];
  const why = typeof reason === "string" && reason !== "" ? ` User reason: ${reason}` : "";
  return {
    plugin_error: `Manual approval was REJECTED by user.${why}`,
    error_type: "approval_rejected",
    rejected_by_user: true,
    ...signature,
  };
}

function endOf({ code }: FailedOutcome | RejectedOutcome): CallEnd {
  if (code === "call_rejected") return "refused";
  return code === "tool_timeout" ? "timed-out" : "failed";
}

function speakerOf({ name, at, maid }: Finished): Speaker {
  return { name, at, maid };
}

const goodWords: ReadonlySet<unknown> = new Set(["success", "ok"]);
const badWords: ReadonlySet<unknown> = new Set(["error", "failed", "failure"]);

/** A result may itself say that it is none. */
function saysError(value: JsonValue): boolean {
  if (!isJsonObject(value)) return false;
  const { success, ok, status, error } = value;
  if (success === true || ok === true || goodWords.has(status)) return false;
  if (error === true || success === false || ok === false || badWords.has(status)) return true;
  return ["code", "statusCode", "httpStatus"].some((key) => isErrorStatus(value[key]));
}

function isErrorStatus(value: JsonValue | undefined): boolean {
  return typeof value === "number" && value >= 400 && value <= 599;
}
