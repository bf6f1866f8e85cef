/**
 * `flow://name`: flows of the tenant (tool management specification, "工作流调用"). A run is the call itself; what it
 * does is in core/flows/run, which is read when the first one runs.
 */
import type { CoreDeps } from "../../core-deps.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import { findFlow, noSuchVersion, whyNoFlow } from "../../flows/find-flow.ts";
import { contextArguments, requireOwnContext } from "../../flows/run/variables.ts";
import { isJsonObject, type JsonObject } from "../../json.ts";
import type { FlowHead } from "../../ports/flows.ts";
import { withDelivery } from "../../errors/delivery.ts";
import type { ToolAdapter } from "../adapter.ts";
import type { ToolCall, ToolReply } from "../tool-call.ts";
import type { Tool } from "../tool.ts";
import { dispatcherOptions, formatToolUri, uriOptions, type ToolUri } from "../uri.ts";

const options = {
  ...dispatcherOptions,
  version: uriOptions.version,
  /** Only in calls that runs make for themselves. */
  step: {
    type: "text",
    pattern: /^[A-Za-z0-9_#[\]./?-]{1,512}$/,
    holds: "a place in a run",
    description: "A step of a run that waits for a person; made by the run itself.",
  },
} as const;

/** @param core what all adapters are a part of */
export function createFlowAdapter(core: () => CoreDeps): ToolAdapter {
  return {
    options,
    resolve: (uri, context) => {
      const head = uri.scheme === "flow" ? findFlow(context.config, uri.service) : undefined;
      if (head === undefined) return undefined;
      return stepOf(uri) === undefined ? toolOf(head, uri.options.version) : questionOf(head);
    },
    find: (name, context) => {
      const head = context.config.flows.find((flow) => flow.name === name);
      return head === undefined ? undefined : toolOf(head, undefined);
    },
    list: ({ config }) => config.flows.map((head) => toolOf(head, undefined)),
    whyMissing: ({ service }, { config }) => whyNoFlow(config, service),
    async invoke(call, context) {
      if (stepOf(call.uri) !== undefined) return answerOf(call);
      const { runFlow } = await import("../../flows/run/run-flow.ts");
      return runFlow(core(), call, context);
    },
  };
}

const tools = new WeakMap<FlowHead, Map<string, Tool>>();

/** Equal for as long as the flow is: schemas are compiled once. */
function toolOf(head: FlowHead, version: string | undefined): Tool {
  let known = tools.get(head);
  if (known === undefined) tools.set(head, (known = new Map<string, Tool>()));
  const key = version ?? String(head.latest);
  let tool = known.get(key);
  if (tool === undefined) known.set(key, (tool = describe(head, key)));
  return tool;
}

/** @throws GatewayError `flow_not_found` for a version that there is not */
function describe(head: FlowHead, version: string): Tool {
  const found = head.versions.find(({ number }) => String(number) === version);
  if (found === undefined) throw noSuchVersion(head, Number(version));
  const isLatest = found.number === head.latest;
  return {
    ...common(head),
    // Only of the newest is the input known here; runs of others are checked as they begin.
    parameters: withContext(isLatest ? head.input : { type: "object" }),
    effect: isLatest ? head.effect : "write",
    check: (args, context) => requireOwnContext(context, args),
    version,
    hash: found.hash,
  };
}

/** A person's word in a run: it comes to what it was answered. */
function questionOf(head: FlowHead): Tool {
  return { ...common(head), parameters: { type: "object" }, effect: "read", hash: "flow-question" };
}

function common({ name, description, enabled }: FlowHead) {
  return {
    uri: formatToolUri("flow", name),
    name,
    description,
    kind: "FLOW",
    enabled,
    roles: [],
    repeat: "resume",
    sensitive: false,
    service: `flow:${name}`,
    requiredCredentials: [],
    outputTrust: "own",
  } as const;
}

function withContext(input: JsonObject): JsonObject {
  const own = isJsonObject(input["properties"]) ? input["properties"] : {};
  return { ...input, type: "object", properties: { ...contextArguments, ...own } };
}

function stepOf({ options: { own } }: ToolUri): string | undefined {
  const step = own?.["step"];
  return typeof step === "string" ? step : undefined;
}

function answerOf({ answers }: ToolCall): ToolReply {
  const form = answers?.responses["form"];
  const input = isJsonObject(form) && isJsonObject(form["content"]) ? form["content"] : {};
  if (isJsonObject(form) && form["action"] !== "accept") {
    throw withDelivery(new GatewayError("call_rejected", "The form was not filled in."), "answered");
  }
  return { mediaType: "application/json", body: JSON.stringify({ decision: "approved", input }) };
}
