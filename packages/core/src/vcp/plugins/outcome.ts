/**
 * What a plugin said, as its result or its error (VCP specification s. 4.1; VCP-4). Pure: the same for processes,
 * modules and nodes, synchronous or not. Apart from what docs/vcp-compatibility.md lists, every text is
 * upstream's, so that prompts and clients written for it keep working.
 */
import { isDeeperThan, isJsonObject, parseJsonExactly, type JsonObject, type JsonValue } from "../../json.ts";
import type { PluginExit } from "../../ports/plugin-runner.ts";
import type { Redactor } from "../../secrets/redactor.ts";

export interface VcpSuccess {
  readonly kind: "success";
  /** What upstream hands on: the result object with `timestamp`, or a list as it is. */
  readonly value: JsonValue;
  /** Text for the model instead of the value. */
  readonly messageForAI?: string;
  /** A picture or file beside it: base64, or a data URI. */
  readonly base64?: string;
}

export interface VcpFailure {
  readonly kind: "error";
  /** `plugin_error`: the plugin said so; `plugin_execution_error`: it could not say anything. With `timestamp`. */
  readonly error: JsonObject;
  readonly reason: "said" | "crashed" | "timeout" | "output" | "not_started" | "aborted";
  /** What its author can do about it, which upstream's words leave out. */
  readonly advice?: string;
}

export type VcpOutcome = VcpSuccess | VcpFailure;

export interface Speaker {
  /** The plugin's name. */
  readonly name: string;
  readonly at: Date;
  /** Argument `maid`: who asked; copied to the result. */
  readonly maid?: JsonValue | undefined;
  /** Of the call. Errors are redacted here, since half of a secret, cut off, is known to nobody. */
  readonly redactor?: Redactor | undefined;
}

type Said = Pick<PluginExit, "stdout" | "stderr" | "exitCode" | "ended">;

/** Characters of an output that an error quotes: of its beginning, and of its end, where traces say why. */
const quoted = { beginning: 200, end: 500 } as const;

/** The outcome of a process that has ended. Its whole output has to be one JSON object; then its exit code says nothing. */
export function outcomeOfStdout(speaker: Speaker, exit: Said, limitMs: number): VcpOutcome {
  const { name, redactor } = speaker;
  const { stdout, stderr, ended } = exit;
  switch (ended) {
    case "timeout":
      return timedOut(speaker, exit, { words: "execution timed out.", limitMs });
    case "output":
      return failedToRun(
        speaker,
        "output",
        `Plugin "${name}" wrote more than a result may have ('result_max_bytes'). Stdout: ${beginningOf(stdout, redactor)}`,
      );
    case "spawn":
      return {
        ...failedToRun(speaker, "not_started", `Plugin "${name}" could not be started. ${stderr.trim()}`),
        advice: "Its manifest says how, in 'entryPoint.command'.",
      };
    case "aborted":
      return failedToRun(speaker, "aborted", `Plugin "${name}" was stopped before it answered.`);
    case "exit": {
      const answer = readAnswer(stdout);
      if (answer !== undefined) return outcomeOfAnswer(speaker, answer);
      const crashed = failedToRun(speaker, "crashed", notUnderstood(speaker, exit));
      const advice = exit.exitCode === 0 ? whatStdoutLacks(stdout) : whatEndedIt(exit.exitCode);
      return advice === undefined ? crashed : { ...crashed, advice };
    }
    default:
      return ended satisfies never;
  }
}

/** The object that a plugin answers with, where the text is one. */
export function readAnswer(stdout: string): JsonObject | undefined {
  const parsed = parseJsonExactly(stdout.trim());
  const status = isJsonObject(parsed) ? parsed["status"] : undefined;
  return isJsonObject(parsed) && (status === "success" || status === "error") ? parsed : undefined;
}

/** Of an output that is no answer. */
function whatStdoutLacks(stdout: string): string {
  const text = stdout.trim();
  if (text === "") return "It wrote nothing to stdout, which has to hold one JSON object.";
  const parsed = parseJsonExactly(text);
  if (parsed === undefined) return "The whole of stdout has to be one JSON object; what is logged belongs on stderr.";
  return isJsonObject(parsed)
    ? `The object has to have a 'status', "success" or "error".`
    : "What it wrote to stdout is JSON, but no object.";
}

/** Of a process that was ended from outside, which shells and walls tell by a code above 128. */
function whatEndedIt(exitCode: number | null): string | undefined {
  const isKilled = exitCode === null || exitCode > 128;
  return isKilled ? "It was killed by a signal, as the system does where memory runs out." : undefined;
}

/** The outcome of `{status, result?, error?, messageForAI?, base64?}`. */
export function outcomeOfAnswer(speaker: Speaker, answer: JsonObject): VcpOutcome {
  if (isDeeperThan(answer, deepestResult)) return tooDeep(speaker);
  const { status, result, error, code, message, messageForAI } = answer;
  const beside = extrasOf(answer);
  if (status !== "error") {
    const outcome = outcomeOfResult(speaker, result);
    return outcome.kind === "success" ? { ...outcome, ...beside } : outcome;
  }
  return failed(speaker, {
    ...(result === undefined ? {} : { result }),
    plugin_error: error ?? messageForAI ?? message ?? "The plugin reported an error and did not say which.",
    ...(code === undefined ? {} : { code }),
    ...(beside.messageForAI === undefined || error === undefined ? {} : { messageForAI: beside.messageForAI }),
  });
}

function extrasOf({ messageForAI, base64 }: JsonObject): Pick<VcpSuccess, "messageForAI" | "base64"> {
  return {
    ...(typeof messageForAI === "string" && messageForAI !== "" ? { messageForAI } : {}),
    ...(typeof base64 === "string" && base64 !== "" ? { base64 } : {}),
  };
}

/** The outcome of what a plugin, a module or a node gave as its result. */
export function outcomeOfResult(speaker: Speaker, result: JsonValue | undefined): VcpOutcome {
  const value = typeof result === "string" ? readText(result) : result;
  if (isDeeperThan(value, deepestResult)) return tooDeep(speaker);
  if (value === undefined || value === null) return succeeded(speaker, {});
  if (Array.isArray(value)) return { kind: "success", value };
  if (!isJsonObject(value)) return succeeded(speaker, { original_plugin_output: value });
  if (value["status"] === "error") {
    const { error, message } = value;
    return failed(speaker, { plugin_error: error ?? message ?? value });
  }
  const inner = value["result"];
  return succeeded(speaker, value["status"] === "success" && isJsonObject(inner) ? inner : value);
}

/** Text that holds JSON is that JSON. */
function readText(text: string): JsonValue {
  const parsed = parseJsonExactly(text);
  if (parsed === undefined) return { original_plugin_output: text };
  return typeof parsed === "object" && parsed !== null ? parsed : { original_plugin_output: parsed };
}

/** The outcome of a run that gave nothing to understand. */
export function failedToRun(speaker: Speaker, reason: VcpFailure["reason"], message: string): VcpFailure {
  return { ...failed(speaker, { plugin_execution_error: message }), reason };
}

/** Levels of a result. */
export const deepestResult = 1_000;

/** Of a result that nobody could write down again. */
export function tooDeep(speaker: Speaker): VcpFailure {
  const message = `The result of "${speaker.name}" is nested deeper than ${deepestResult} levels.`;
  return failedToRun(speaker, "crashed", message);
}

/** The outcome of a process that had to be ended. */
export function timedOut(
  speaker: Speaker,
  exit: Pick<Said, "stdout" | "stderr">,
  { words, limitMs }: { readonly words: string; readonly limitMs: number },
): VcpFailure {
  const message = `Plugin "${speaker.name}" ${words}${seenOf(speaker, exit)}`;
  const advice = `It had ${limitMs} ms: 'timeout' of the URI, or 'communication.timeout' of its manifest.`;
  return { ...failedToRun(speaker, "timeout", message), advice };
}

function notUnderstood(speaker: Speaker, { stdout, stderr, exitCode }: Omit<Said, "ended">): string {
  const { name, redactor } = speaker;
  if (exitCode !== 0) return `Plugin "${name}" exited with code ${exitCode}.${seenOf(speaker, { stdout, stderr })}`;
  const complained = seenOf(speaker, { stdout: "", stderr });
  return `Plugin "${name}" exited successfully but did not provide a valid initial JSON response. Stdout: ${quote(stdout, redactor)}${complained}`;
}

function seenOf({ redactor }: Speaker, { stdout, stderr }: Pick<Said, "stdout" | "stderr">): string {
  const [said, complained] = [quote(stdout, redactor), quote(stderr, redactor)];
  return `${said === "" ? "" : ` Stdout: ${said}`}${complained === "" ? "" : ` Stderr: ${complained}`}`;
}

/** What a process wrote, as an error shows it. */
export function quote(text: string, redactor: Redactor | undefined): string {
  const said = redacted(text, redactor);
  if (said.length <= quoted.beginning + quoted.end) return said;
  return `${said.slice(0, quoted.beginning)} … ${said.slice(-quoted.end)}`;
}

/** Of an output that broke off. */
function beginningOf(text: string, redactor: Redactor | undefined): string {
  return redacted(text, redactor).slice(0, quoted.beginning);
}

function redacted(text: string, redactor: Redactor | undefined): string {
  return redactor === undefined ? text.trim() : redactor.redact(text.trim());
}

function succeeded(speaker: Speaker, value: JsonObject): VcpSuccess {
  return { kind: "success", value: signed(speaker, value) };
}

function failed(speaker: Speaker, error: JsonObject): VcpFailure {
  const { redactor } = speaker;
  const told = redactor === undefined ? error : redactor.redactObject(error);
  return { kind: "error", reason: "said", error: signed(speaker, told) };
}

function signed({ at, maid }: Speaker, value: JsonObject): JsonObject {
  return {
    ...value,
    ...(typeof maid === "string" && maid !== "" ? { MaidName: maid } : {}),
    timestamp: localTimestamp(at),
  };
}

/** `YYYY-MM-DDTHH:mm:ss.SSS±hh:mm` in the zone of this host. */
export function localTimestamp(at: Date): string {
  const offset = -at.getTimezoneOffset();
  const local = new Date(at.getTime() + offset * 60_000).toISOString().slice(0, -1);
  const [hours, minutes] = [Math.floor(Math.abs(offset) / 60), Math.abs(offset) % 60];
  const two = (value: number): string => String(value).padStart(2, "0");
  return `${local}${offset < 0 ? "-" : "+"}${two(hours)}:${two(minutes)}`;
}
