/**
 * Asynchronous plugins over stdio (VCP specification s. 4.2; VCP-5): the first answer is given at once, the process
 * works on, and its callback ends the call. Where the answer names no task there is nothing to wait for, and the
 * answer is the result.
 */
import type { AdapterDeps } from "../../deps.ts";
import type { JsonObject } from "../../json.ts";
import type { PluginExit } from "../../ports/plugin-runner.ts";
import type { CallAttempt, TaskName } from "../../ports/vcp-callbacks.ts";
import type { InvocationContext, ToolReply } from "../../tools/adapter.ts";
import type { PluginCall, PluginInvoker } from "../plugins/invoke.ts";
import { failedToRun, outcomeOfAnswer, outcomeOfStdout, type Speaker } from "../plugins/outcome.ts";
import { toToolReply } from "../plugins/reply.ts";
import { runPlugin } from "../plugins/run.ts";
import { stdinOf } from "../plugins/synchronous.ts";
import { callbackVariables } from "./callback-token.ts";
import { FirstAnswer } from "./first-answer.ts";
import { namedTask, withPlaceholder } from "./named-task.ts";
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
  const speaker = { name: plugin.name, at: new Date(deps.clock.now()), maid: call.arguments["maid"] };
  if (said.kind === "ended") return toToolReply(plugin.name, outcomeOfEnd(speaker, said.exit));
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
async function firstWord(
  deps: AdapterDeps,
  { plugin, call }: PluginCall,
  { context, environment }: Place,
): Promise<FirstWord> {
  const answered = Promise.withResolvers<FirstWord>();
  const first = new FirstAnswer();
  const stopped = new AbortController();
  const stop = (): void => stopped.abort();
  context.signal.addEventListener("abort", stop);
  if (context.signal.aborted) stop();
  const run = runPlugin(deps, context, plugin, {
    stdin: stdinOf(call.arguments),
    timeoutMs: longestRunMs,
    answerWithinMs: call.timeoutMs ?? plugin.manifest.timeoutMs,
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

function outcomeOfEnd(speaker: Speaker, exit: PluginExit): ReturnType<typeof outcomeOfStdout> {
  if (exit.ended === "timeout") {
    return failedToRun(speaker, "timeout", `Plugin "${speaker.name}" initial response timed out.`);
  }
  return outcomeOfStdout(speaker, exit);
}

interface Answered {
  readonly speaker: Speaker;
  readonly attempt: CallAttempt;
  readonly answer: JsonObject;
}

async function answerWith(
  deps: AdapterDeps,
  context: InvocationContext,
  { speaker, attempt, answer }: Answered,
): Promise<ToolReply> {
  const named = answer["status"] === "error" ? undefined : namedTask(speaker.name, answer);
  const task = await bind(deps, context, { attempt, named });
  const outcome = outcomeOfAnswer(speaker, task === undefined ? answer : withPlaceholder(answer, task));
  const reply = toToolReply(speaker.name, outcome);
  return task === undefined ? reply : { ...reply, worksOn: { withinMs: callbackWithinMs } };
}

/** The task whose result ends the call; undefined: there is none to wait for. */
async function bind(
  deps: AdapterDeps,
  { tenant }: InvocationContext,
  { attempt, named }: { readonly attempt: CallAttempt; readonly named: TaskName | undefined },
): Promise<TaskName | undefined> {
  const { binding, done } = await deps.repos.vcpCallbacks.answer(tenant, attempt, named ?? null);
  deps.reach("callback.awaited");
  if (done !== undefined) return { plugin: done.plugin, taskId: done.taskId };
  // A plugin that is asked about a task of another call names that one, and has no task of its own.
  return binding === "bound" ? named : undefined;
}
