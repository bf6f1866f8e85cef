/**
 * What a call would do, without doing it: which tool is meant, with which arguments, limits and
 * approval. The request itself is for those who manage the tool; others learn no more than a model
 * does (BLIND-6).
 */
import { missingCredentials } from "../blind/credential-resolver.ts";
import type { ExplainedRequest } from "./explained-request.ts";
import { hasScope } from "../callers/caller.ts";
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { JsonObject } from "../json.ts";
import { findTool } from "./catalog.ts";
import { toListedTool, type ListedTool } from "./describe.ts";
import { toRefusalDetails } from "./outcome.ts";
import { prepareCall, validateArguments } from "./prepare.ts";
import type { Tool } from "./tool.ts";

export interface Explanation {
  readonly tool: ListedTool;
  /** With defaults applied. */
  readonly arguments: JsonObject;
  readonly effect: Tool["effect"];
  readonly needs_approval: boolean;
  readonly timeout_ms: number;
  readonly max_attempts: number;
  /** Null for tools that send no request of their own, and for callers without `manage`. */
  readonly request: ExplainedRequest | null;
}

export interface ExplainRequest {
  /** Tool name or URI. */
  readonly target: string;
  readonly isUri?: boolean;
  readonly arguments: JsonObject;
}

/** @throws GatewayError as the call itself would before it is sent, except for missing credentials, which are shown */
export async function explainCall(deps: CoreDeps, context: CallContext, item: ExplainRequest): Promise<Explanation> {
  const { tool, ...plan } = planCall(deps, context, item);
  const { adapter, uri } = findTool(deps.adapters, context, item.target);
  const isShown = hasScope(context.caller, "manage");
  const request = isShown ? await adapter.explain?.({ tool, uri, arguments: plan.arguments }, context) : null;
  return {
    ...plan,
    tool: toListedTool(tool, missingCredentials(context, tool.requiredCredentials)),
    request: request ?? null,
  };
}

type Plan = Omit<Explanation, "tool" | "request"> & { readonly tool: Tool };

function planCall(deps: CoreDeps, context: CallContext, item: ExplainRequest): Plan {
  const prepared = prepareCall(deps.adapters, context, item, { hasReadOutside: false });
  if (prepared.kind !== "refused") {
    const { tool, effect, timeoutMs, maxAttempts } = prepared.call;
    return {
      tool,
      arguments: prepared.call.arguments,
      effect,
      needs_approval: prepared.kind === "needs_approval",
      timeout_ms: timeoutMs,
      max_attempts: maxAttempts,
    };
  }
  const { tool, outcome } = prepared;
  const checked = tool === undefined ? undefined : validateArguments(tool, item.arguments);
  // Credentials come last: everything else about the call has been found in order.
  if (outcome.code !== "credential_missing" || tool === undefined || checked?.ok !== true) {
    throw new GatewayError(outcome.code, outcome.message, {
      toolName: tool?.name ?? item.target,
      ...toRefusalDetails(outcome, item.isUri),
    });
  }
  const { tool_timeout_ms: timeoutMs, max_attempts: maxAttempts } = context.config.settings;
  return {
    tool,
    arguments: checked.value,
    effect: tool.effectOf?.(checked.value) ?? tool.effect,
    needs_approval: tool.sensitive,
    timeout_ms: tool.timeoutMs ?? timeoutMs,
    max_attempts: Math.min(tool.maxAttempts ?? 1, maxAttempts),
  };
}
