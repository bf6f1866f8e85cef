/**
 * Asynchronous plugins over stdio (VCP specification s. 4.2; VCP-5): the first answer is given at once, the process
 * works on, and its callback ends the call. Where the answer names no task there is nothing to wait for, and the
 * answer is the result.
 */
import type { AdapterDeps } from "../../deps.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import { isJsonObject, parseJsonExactly, type JsonObject } from "../../json.ts";
import type { PluginExit } from "../../ports/plugin-runner.ts";
import type { CallAttempt, TaskName, VcpTask } from "../../ports/vcp-callbacks.ts";
import { withDelivery } from "../../errors/delivery.ts";
import type { InvocationContext, ToolReply } from "../../tools/tool-call.ts";
import type { PluginCall, PluginInvoker } from "../plugins/invoke.ts";
import { outcomeOfAnswer, outcomeOfStdout, timedOut, type Speaker } from "../plugins/outcome.ts";
import { toToolReply } from "../plugins/reply.ts";
import { prettyJson } from "../pretty-json.ts";
import { runPlugin } from "../plugins/run.ts";
import { stdinOf } from "../plugins/synchronous.ts";
import { callbackVariables } from "./callback-token.ts";
import { endOf } from "./end-call.ts";
import { FirstAnswer } from "./first-answer.ts";
import { namedTask, withPlaceholder } from "./named-task.ts";
import { readResult } from "./results.ts";
import { placeholderOf } from "./task.ts";
import { letWorkOn } from "./working-on.ts";

/** A process that works on ends at the latest then; where it runs may end it earlier. */
const longestRunMs = 3_600_000;
/** For so long a call counts as under way; a callback that comes later still ends it. */
const callbackWithinMs = 3_600_000;
const tokenLifetimeMs = 7 * 86_400_000;
const dayMs = 86_400_000;

export const invokeAsynchronous: PluginInvoker = async (deps, called, context) => {
  const { plugin, call } = called;
  const { hash, environment } = await callbackVariables(deps, context, plugin.name);
  const attempt = { callId: call.id, attempt: call.attempt };
  await deps.repos.vcpCallbacks.open(context.tenant, {
    ...attempt,
    hash,
    plugin: plugin.name,
    callerId: context.caller.id,
    userId: context.caller.userId ?? null,
    sessionId: context.sessionId ?? null,
    lifetimeMs: tokenLifetimeMs,
    keptMs: context.config.settings.calls_retention_days * dayMs,
  });
  context.onSent?.();
  const said = await firstWord(deps, called, { context, environment });
  const { redactor } = context;
  const speaker = { name: plugin.name, at: new Date(deps.clock.now()), maid: call.arguments["maid"], redactor };
  if (said.kind === "ended") return toToolReply(plugin.name, outcomeOfEnd(speaker, said.exit, limitOf(called)));
  return answerWith(deps, context, { speaker, attempt, answer: said.answer });
};

type FirstWord =
  | { readonly kind: "answered"; readonly answer: JsonObject }
  /** Without an answer. */
  | { readonly kind: "ended"; readonly exit: PluginExit };

interface Place {
  readonly context: InvocationContext;
  readonly environment: Readonly<Record<string, string>>;
}

/** The run goes on behind it, and is nobody's any more once the plugin has answered. */
async function firstWord(deps: AdapterDeps, called: PluginCall, { context, environment }: Place): Promise<FirstWord> {
  const { plugin, call } = called;
  const answered = Promise.withResolvers<FirstWord>();
  const first = new FirstAnswer();
  const stopped = new AbortController();
  const stop = (): void => stopped.abort();
  context.signal.addEventListener("abort", stop);
  if (context.signal.aborted) stop();
  const run = runPlugin(deps, context, plugin, {
    stdin: stdinOf(call.arguments),
    timeoutMs: longestRunMs,
    answerWithinMs: limitOf(called),
    maxOutputBytes: context.config.settings.result_max_bytes,
    signal: stopped.signal,
    environment,
    onStdout(part) {
      const answer = first.add(part);
      if (answer !== undefined) answered.resolve({ kind: "answered", answer });
    },
  });
  const ended = run.then((exit): FirstWord => ({ kind: "ended", exit }));
  // Once it has answered nobody waits for its end, nor for the end of whoever tells of it.
  ended.catch(() => undefined);
  try {
    const said = await Promise.race([answered.promise, ended]);
    if (said.kind === "answered") {
      const attempt = { callId: call.id, attempt: call.attempt };
      letWorkOn(deps, context, { plugin: plugin.name, attempt, run, stop });
    }
    return said;
  } finally {
    context.signal.removeEventListener("abort", stop);
  }
}

/** Of the first answer. */
function limitOf({ plugin, call }: PluginCall): number {
  return call.timeoutMs ?? plugin.manifest.timeoutMs;
}

function outcomeOfEnd(speaker: Speaker, exit: PluginExit, limitMs: number): ReturnType<typeof outcomeOfStdout> {
  return exit.ended === "timeout"
    ? timedOut(speaker, exit, { words: "initial response timed out.", limitMs })
    : outcomeOfStdout(speaker, exit, limitMs);
}

export interface Answered {
  readonly speaker: Speaker;
  readonly attempt: CallAttempt;
  readonly answer: JsonObject;
}

/** The plugin has answered: its task, if it names one, is what ends the call. */
export async function answerWith(
  deps: AdapterDeps,
  context: InvocationContext,
  { speaker, attempt, answer }: Answered,
): Promise<ToolReply> {
  const named = answer["status"] === "error" ? undefined : namedTask(speaker.name, answer);
  const { binding, done } = await deps.repos.vcpCallbacks.answer(context.tenant, attempt, named ?? null);
  deps.reach("callback.awaited");
  if (done !== undefined) return replyOfEarly(deps, context, { speaker, answer, task: done });
  // A plugin that is asked about a task of another call names that one, and has no task of its own.
  if (named === undefined || binding !== "bound") return toToolReply(speaker.name, outcomeOfAnswer(speaker, answer));
  const reply = toToolReply(speaker.name, outcomeOfAnswer(speaker, withPlaceholder(answer, named)));
  return { ...firstWords(reply, named, context), worksOn: { withinMs: callbackWithinMs } };
}

/** Text alone, and short: what comes of the call is what is kept whole. */
function firstWords(
  { mediaType, body, forModel }: ToolReply,
  task: TaskName,
  { config }: InvocationContext,
): Pick<ToolReply, "mediaType" | "body"> {
  const text = forModel ?? (typeof body === "string" ? body : "");
  // A character has four bytes at most.
  const room = Math.floor(config.settings.result_bytes / 4);
  if (text.length <= room) return { mediaType: forModel === undefined ? mediaType : "text/plain", body: text };
  const placeholder = placeholderOf(task);
  return {
    mediaType: "text/plain",
    body: `${text.slice(0, Math.max(0, room - placeholder.length - 1))}\n${placeholder}`,
  };
}

/** The callback was faster than the answer: its result is the call's, with what the plugin says to the model. */
async function replyOfEarly(
  deps: AdapterDeps,
  { tenant, config }: InvocationContext,
  { speaker, answer, task }: Pick<Answered, "speaker" | "answer"> & { readonly task: VcpTask },
): Promise<ToolReply> {
  const text = (await readResult(deps, tenant, task)) ?? "";
  const end = endOf({ task, text });
  await deps.repos.vcpCallbacks.settle(tenant, task);
  if (end.kind === "failed") {
    throw withDelivery(
      new GatewayError("tool_failed", end.message, { toolName: speaker.name, extra: end.details }),
      "answered",
    );
  }
  const { messageForAI } = answer;
  const { forModel } = end.reply;
  if (typeof messageForAI === "string" && forModel !== undefined) {
    return { ...end.reply, forModel: `${messageForAI}\n${forModel}` };
  }
  const result = parseJsonExactly(text);
  if (typeof messageForAI !== "string" || !isJsonObject(result) || text.length > config.settings.result_bytes / 4)
    return end.reply;
  return { ...end.reply, body: prettyJson({ messageForAI, ...result }) };
}
