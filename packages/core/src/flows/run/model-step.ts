/** A step that asks a model, by the one chat loop. The same place and attempt are the same chat, and get its answer again. */
import type { Call } from "../../calls/call.ts";
import type { CallPlace } from "../../calls/new-call.ts";
import type { CallContext } from "../../context.ts";
import type { CoreDeps } from "../../core-deps.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import { isOutage } from "../../errors/outage.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";
import type { ModelNode } from "../definition.ts";
import { resolveValue, type ExpressionPlace, type FlowScope } from "../transform.ts";
import { StepFailed } from "./failures.ts";
import { RunLost } from "./journal.ts";

/** Of what a model says, those who follow hear so often. */
const progressEveryMs = 250;

export interface ModelStep {
  readonly node: ModelNode;
  readonly scope: FlowScope;
  readonly place: ExpressionPlace;
  readonly at: { readonly path: string; readonly attempt: number };
  readonly run: Call;
  readonly via: NonNullable<CallPlace["via"]>;
  readonly signal: AbortSignal;
  readonly begin: () => Promise<void>;
  /** Waits; throws where the step may not wait any longer. */
  readonly pause: (ms: number) => Promise<void>;
  readonly onText: (text: string) => Promise<void>;
}

/** Whoever began the same chat may have died; then it ends with its lease. */
const askAgainMs = 2_000;

/** @throws StepFailed what the model's back end or a budget says */
export async function askModel(deps: CoreDeps, context: CallContext, step: ModelStep): Promise<JsonValue> {
  for (;;) {
    try {
      return await askOnce(deps, context, step);
    } catch (thrown) {
      if (!(thrown instanceof StepFailed) || thrown.error.code !== "idempotency_in_progress") throw thrown;
      await step.pause(askAgainMs);
    }
  }
}

async function askOnce(deps: CoreDeps, context: CallContext, step: ModelStep): Promise<JsonValue> {
  const { node, scope, place, at, run, signal } = step;
  const [{ openChat }, { runChat }] = await Promise.all([
    import("../../chat/open-chat.ts"),
    import("../../chat/run-chat.ts"),
  ]);
  const model = node.model === undefined ? null : await resolveValue(node.model, scope, place);
  const body: JsonObject = {
    ...(typeof model === "string" ? { model } : {}),
    messages: await resolveValue(node.messages, scope, place),
    ...(node.max_tokens === undefined ? {} : { max_tokens: node.max_tokens }),
    ...(node.temperature === undefined ? {} : { temperature: node.temperature }),
    stream: node.stream,
  };
  await step.begin();
  const stop = new AbortController();
  const onAbort = (): void => stop.abort(signal.reason);
  if (signal.aborted) onAbort();
  else signal.addEventListener("abort", onAbort, { once: true });
  try {
    const opening = await openChat(deps, {
      tenant: context.tenant,
      // What it may use is the flow's to say, by its nodes.
      principal: { kind: "known", caller: { ...context.caller, tools: [] } },
      requestId: context.requestId,
      traceId: context.traceId,
      span: context.span,
      route: "flows.model",
      isNeeded: true,
      within: run.id,
      inner: {
        parentId: run.id,
        rootId: run.rootId ?? run.id,
        via: step.via,
        runtimeConfig: context.runtimeConfig,
        readOutside: false,
        isRepeated: false,
      },
      body,
      rawBody: Buffer.from(JSON.stringify(body)),
      idempotencyKey: `${run.id} ${at.path} ${at.attempt}`,
      isSdkRetry: false,
      stop,
    });
    if (opening.kind === "replay") return { text: textOf(opening.body) };
    let text = "";
    let heardAt = 0;
    for await (const events of runChat(deps, opening.chat)) {
      for (const event of events) {
        if (event.type === "text-delta" && event.choice === 0) text += event.text;
        if (event.type === "error") throw failed(event.error);
      }
      const now = deps.clock.now();
      if (!node.stream || text === "" || now - heardAt < progressEveryMs) continue;
      heardAt = now;
      await step.onText(text).catch(passLoss);
    }
    return { text };
  } catch (thrown) {
    throw failed(thrown);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}

/** A step's failure; an outage, and the loss of the run, are none of the step's. */
function failed(thrown: unknown): unknown {
  if (thrown instanceof StepFailed || thrown instanceof RunLost) return thrown;
  // What an earlier request came to is no outage of now.
  if (thrown instanceof GatewayError && isOutage(thrown) && thrown.details.extra?.["replayed"] !== true) return thrown;
  const { error } = StepFailed.of(thrown);
  return new StepFailed(error, true);
}

/** A note that cannot be written is left out: the next one has all of it, and so has the step's end. */
function passLoss(thrown: unknown): void {
  if (thrown instanceof RunLost) throw thrown;
}

function textOf(body: JsonObject): string {
  const choices = Array.isArray(body["choices"]) ? (body["choices"] as readonly JsonValue[]) : [];
  const first = isJsonObject(choices[0]) ? choices[0]["message"] : undefined;
  const content = isJsonObject(first) ? first["content"] : undefined;
  return typeof content === "string" ? content : "";
}
