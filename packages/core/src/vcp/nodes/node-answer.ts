/** `tool_result` of a VCP node, read as what any plugin says (VCP-15): the same unwrapping, the same errors. */
import type { CallContext } from "../../context.ts";
import type { AdapterDeps } from "../../deps.ts";
import { isJsonObject, parseJsonExactly, type JsonObject, type JsonValue } from "../../json.ts";
import type { InvocationContext, ToolReply } from "../../tools/tool-call.ts";
import { randomHex } from "../../random-hex.ts";
import { namedTask } from "../async/named-task.ts";
import { failedToRun, outcomeOfAnswer, type Speaker } from "../plugins/outcome.ts";
import { toToolReply } from "../plugins/reply.ts";
import { pushResult, type PushDeps } from "../push/web-socket-push.ts";
import { distributedToolsOf } from "./distributed-tools.ts";

/** The node's connection says whose a callback is; the token that others need is nobody's. */
const lifetimeMs = 7 * 86_400_000;
const dayMs = 86_400_000;

/**
 * @param text JSON of `{status, result?, error?, maid?}`
 * @throws GatewayError where the plugin says that it failed
 */
function readNodeAnswer(text: string, name: string): ToolReply {
  const { speaker, answer } = read(text, name);
  const outcome =
    answer === undefined
      ? failedToRun(speaker, "crashed", `The node's answer to "${name}" cannot be read.`)
      : outcomeOfAnswer(speaker, answer);
  return toToolReply(name, outcome);
}

/** The same, and clients are told of it where the manifest wants that. */
export async function takeNodeAnswer(
  deps: PushDeps,
  context: Pick<CallContext, "tenant" | "config" | "redactor">,
  { plugin, callId }: Pick<FirstAnswerOf, "plugin" | "callId">,
  text: string,
): Promise<ToolReply> {
  const reply = readNodeAnswer(text, plugin);
  const push = distributedToolsOf(context.config).get(plugin)?.push;
  if (push !== undefined) {
    const { answer } = read(text, plugin);
    const teller = { name: plugin, manifest: { webSocketPush: push } };
    await pushResult(deps, context, { plugin: teller, callId, result: answer?.["result"] });
  }
  return reply;
}

export interface FirstAnswerOf {
  readonly plugin: string;
  readonly callId: string;
  readonly attempt: number;
}

/** Of an asynchronous plugin: where it names its task, the callback that the node hands on ends the call. */
export async function readFirstAnswer(
  deps: AdapterDeps,
  context: InvocationContext,
  { plugin, ...attempt }: FirstAnswerOf,
  text: string,
): Promise<ToolReply> {
  const { speaker, answer } = read(text, plugin);
  const said = answer?.["status"] === "success" ? saidIn(answer["result"], plugin) : undefined;
  if (said === undefined) return readNodeAnswer(text, plugin);
  await deps.repos.vcpCallbacks.open(context.tenant, {
    ...attempt,
    hash: randomHex(32),
    plugin,
    callerId: context.caller.id,
    userId: context.caller.userId ?? null,
    sessionId: context.sessionId ?? null,
    lifetimeMs,
    keptMs: context.config.settings.calls_retention_days * dayMs,
  });
  const { answerWith } = await import("../async/invoke.ts");
  return answerWith(deps, context, { speaker, attempt, answer: said });
}

/**
 * The plugin's answer: nodes hand on what is in its `result`, and no more of it. A text may be that, too, or words
 * with the placeholder of a task; undefined where there is no task to wait for.
 */
function saidIn(result: JsonValue | undefined, plugin: string): JsonObject | undefined {
  const value = typeof result === "string" ? (parseJsonExactly(result) ?? result) : result;
  if (typeof value === "string") {
    const words = { status: "success", result: value };
    return namedTask(plugin, words) === undefined ? undefined : words;
  }
  if (!isJsonObject(value)) return undefined;
  const { status } = value;
  return status === "success" || status === "error" ? value : { status: "success", ...taskOf(value), result: value };
}

function taskOf({ requestId, taskId, task_id: other }: JsonObject): JsonObject {
  const id = requestId ?? taskId ?? other;
  return id === undefined ? {} : { requestId: id };
}

function read(text: string, name: string): { readonly speaker: Speaker; readonly answer: JsonObject | undefined } {
  const parsed = parseJsonExactly(text);
  const { maid, ...answer } = isJsonObject(parsed) ? parsed : {};
  return { speaker: { name, at: new Date(), maid }, answer: isJsonObject(parsed) ? answer : undefined };
}
