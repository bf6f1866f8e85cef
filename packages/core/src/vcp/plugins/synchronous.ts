/** Synchronous plugins over stdio (VCP specification s. 4.1): arguments in, one JSON object out, one process a call. */
import { outcomeOfStdout, readAnswer } from "./outcome.ts";
import { toToolReply } from "./reply.ts";
import { runPlugin } from "./run.ts";
import { pushResult } from "../push/web-socket-push.ts";
import type { PluginInvoker } from "./invoke.ts";

export const invokeSynchronous: PluginInvoker = async (deps, { plugin, call }, context) => {
  context.onSent?.();
  const timeoutMs = call.timeoutMs ?? plugin.manifest.timeoutMs;
  const exit = await runPlugin(deps, context, plugin, {
    stdin: stdinOf(call.arguments),
    timeoutMs,
    maxOutputBytes: context.config.settings.result_max_bytes,
    signal: context.signal,
  });
  const { redactor } = context;
  const speaker = { name: plugin.name, at: new Date(deps.clock.now()), maid: call.arguments["maid"], redactor };
  const outcome = outcomeOfStdout(speaker, exit, timeoutMs);
  if (outcome.kind === "success") {
    const result = readAnswer(exit.stdout)?.["result"];
    await pushResult(deps, context, { plugin, callId: call.id, result });
  }
  return toToolReply(plugin.name, outcome);
};

/** Without arguments nothing is written, only the end. */
export function stdinOf(args: Readonly<Record<string, unknown>>): string {
  return Object.keys(args).length === 0 ? "" : JSON.stringify(args);
}
