/**
 * Spans of tool calls, by OpenTelemetry's conventions for generative AI: `execute_tool {name}`. They tell
 * the call's id, under which everything else about it is on record.
 */
import type { CallContext } from "../context.ts";
import type { CallFinish } from "../ports/calls.ts";
import type { Attributes, Span } from "../ports/traces.ts";
import type { Preparation, PreparedCall } from "./prepare.ts";

/** The context in which the call runs; the same where nothing is traced. */
export function inToolSpan(context: CallContext, call: PreparedCall): CallContext {
  return context.span === undefined ? context : { ...context, span: beginToolSpan(context.span, context, call) };
}

export function endToolSpan<E extends { readonly finish: CallFinish }>({ span }: CallContext, execution: E): E {
  const { state, error } = execution.finish;
  span?.set({ "toolyard.call.state": state });
  if (error !== undefined) span?.fail(error.code);
  span?.end();
  return execution;
}

function beginToolSpan(above: Span, { tenant }: CallContext, { id, tool, effect }: PreparedCall): Span {
  return above.child(`execute_tool ${tool.name}`, "internal", {
    ...attributesOf(id, tool.name, tenant),
    "gen_ai.tool.type": "extension",
    "toolyard.tool.kind": tool.kind,
    "toolyard.tool.effect": effect,
  });
}

/** A call that does not run, or not now: the trace shows that it was wanted. */
export function tellNotRun(context: CallContext, preparation: Exclude<Preparation, { readonly kind: "ready" }>): void {
  const { span, tenant } = context;
  if (span === undefined) return;
  if (preparation.kind === "needs_approval") {
    const waiting = beginToolSpan(span, context, preparation.call);
    waiting.set({ "toolyard.call.state": "input_required" });
    waiting.end();
    return;
  }
  const { id, tool, outcome } = preparation;
  // What no tool is called is whatever a model wrote.
  const name = tool?.name ?? "unknown";
  const refused = span.child(`execute_tool ${name}`, "internal", attributesOf(id, name, tenant));
  refused.set({ "toolyard.call.state": "rejected" });
  refused.fail(outcome.code);
  refused.end();
}

function attributesOf(id: string, name: string, tenant: string): Attributes {
  return {
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.tool.name": name,
    "gen_ai.tool.call.id": id,
    "toolyard.tenant": tenant,
  };
}
