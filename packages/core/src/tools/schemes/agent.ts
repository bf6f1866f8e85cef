/** `agent://name`: asks an agent of the tenant and answers with what it says (AGENT-1). */
import * as z from "zod";
import { agentToolName, findAgent, type AgentRecord } from "../../agents/agent.ts";
import { runAgent } from "../../agents/run-agent.ts";
import type { CallContext } from "../../context.ts";
import type { CoreDeps } from "../../core-deps.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import type { JsonObject } from "../../json.ts";
import { withDelivery } from "../../errors/delivery.ts";
import { hasStartedWrite } from "../../errors/to-openai.ts";
import { readEveryPage } from "../../every-page.ts";
import type { InvocationContext, ToolCall, ToolReply } from "../tool-call.ts";
import type { ToolAdapter } from "../adapter.ts";
import { readInput, toParameters } from "../native/native-tool.ts";
import type { Tool } from "../tool.ts";
import { dispatcherOptions, formatToolUri, type ToolUri } from "../uri.ts";

const input = z.strictObject({
  prompt: z.string().min(1).max(1_000_000).optional().describe("What the agent is asked to do."),
  context: z.json().optional().describe("What it should know for that: a text, or any JSON."),
  messages: z
    .array(z.strictObject({ role: z.enum(["user", "assistant"]), content: z.string() }))
    .max(1_000)
    .optional()
    .describe("A conversation so far, before the prompt."),
});
let parameters: JsonObject | undefined;

/** @param core what all adapters are a part of; asked for with the first call */
export function createAgentAdapter(core: () => CoreDeps): ToolAdapter {
  const agentAt = (uri: ToolUri, { config }: CallContext): AgentRecord | undefined =>
    uri.scheme === "agent" ? findAgent(config.agents, uri.service) : undefined;
  return {
    options: dispatcherOptions,
    resolve(uri, context) {
      const agent = agentAt(uri, context);
      return agent && toolOf(agent, context);
    },
    find(name, context) {
      const agent = context.config.agents.find((each) => agentToolName(each) === name);
      return agent && toolOf(agent, context);
    },
    list: (context) => context.config.agents.map((agent) => toolOf(agent, context)),
    whyMissing: (uri) => `there is no agent '${uri.service}'; add one with POST /v1/agents`,
    invoke: (call, context) => ask(core(), call, context),
  };
}

/** Agents are read anew with every version of the configuration, settings with them. */
const described = new WeakMap<AgentRecord, Tool>();

function toolOf(agent: AgentRecord, context: CallContext): Tool {
  let tool = described.get(agent);
  if (tool === undefined) described.set(agent, (tool = describe(agent, context)));
  return tool;
}

function describe(agent: AgentRecord, { config }: CallContext): Tool {
  const { name, description, limits, enabled } = agent;
  const { wall_clock_ms: most } = config.settings;
  return {
    uri: formatToolUri("agent", name),
    name: agentToolName(agent),
    description: description === "" ? `Asks the agent '${name}'.` : description,
    parameters: (parameters ??= toParameters(input)),
    kind: "AGENT",
    enabled,
    roles: [],
    // Whatever its tools do; what it did not come to do may be done again (see `refuseSecondWrite`).
    effect: "write",
    repeat: "natural",
    sensitive: false,
    service: `agent:${name}`,
    requiredCredentials: [],
    timeoutMs: Math.min(limits.wall_clock_ms ?? most, most),
    endsInTime: true,
    // It may have read anything.
    outputTrust: "outside",
    hash: `${agent.id} ${agent.updatedAt}`,
  };
}

async function ask(core: CoreDeps, call: ToolCall, context: InvocationContext): Promise<ToolReply> {
  refuseTooDeep(call, context);
  const messages = messagesOf(call.arguments);
  if (call.attempt > 1) await refuseSecondWrite(core, call, context);
  const run = runAgent(core, context, {
    agent: call.uri.service,
    messages,
    place: { route: "agent", parentId: call.id, rootId: call.id },
    signal: context.signal,
    timeLimitMs: call.timeoutMs === undefined ? undefined : call.timeoutMs + marginMs,
    readOutside: call.readOutside,
    isRepeated: call.attempt > 1,
  });
  let text = "";
  let chatId = "";
  for await (const event of run) {
    if (event.type === "thinking") ({ chatId } = event);
    else if (event.type === "text-delta") text += event.text;
    else if (event.type === "error") throw withFate(withPartial(event.error, { text, chatId }), context);
  }
  return { mediaType: "text/plain", body: text };
}

/** The chat leaves so much of its time to be settled in; here the dispatcher waits for it. */
const marginMs = 1_000;

function refuseTooDeep({ tool }: ToolCall, { caller }: CallContext): void {
  const { bound } = caller;
  if (bound === undefined || bound.depthLeft > 0) return;
  throw withDelivery(
    new GatewayError(
      "depth_exceeded",
      `'${tool.uri}' was not asked: agents call agents ${bound.path.length} deep already (${bound.path.join(" → ")}; limit 'depth' of these agents).`,
      { toolName: tool.name, extra: { path: [...bound.path] } },
    ),
    "not_sent",
  );
}

/** @throws GatewayError `invalid_arguments` where there is nothing to ask */
function messagesOf(args: JsonObject): JsonObject[] {
  const { prompt, context, messages = [] } = readInput(input, args);
  const about =
    context === undefined || context === null ? [] : [typeof context === "string" ? context : JSON.stringify(context)];
  const asked = [...about.map((text) => `Context:\n${text}`), ...(prompt === undefined ? [] : [prompt])].join("\n\n");
  const all = [...messages, ...(asked === "" ? [] : [{ role: "user", content: asked }])];
  if (all.length > 0) return all;
  throw withDelivery(
    new GatewayError("invalid_arguments", "An agent needs a 'prompt', or 'messages'; nothing was asked.", {
      param: "prompt",
    }),
    "not_sent",
  );
}

/**
 * The process that ran it before is gone. What a model says a second time is not what it said the first time, so
 * once something was written nobody but a person can tell what is left to do.
 * @throws GatewayError `outcome_unknown`
 */
async function refuseSecondWrite(core: CoreDeps, call: ToolCall, { tenant }: CallContext): Promise<void> {
  const below = (parentId: string) => readEveryPage((page) => core.repos.calls.list(tenant, { parentId }, page));
  const chats = (await below(call.id)).filter(({ kind }) => kind === "chat");
  const made = (await Promise.all(chats.map(({ id }) => below(id)))).flat();
  const writes = made.filter(({ effect, state }) => effect === "write" && state !== "rejected");
  if (writes.length === 0) return;
  const named = writes.slice(0, 5).map(({ id, tool }) => `'${tool}' (${id})`);
  throw withDelivery(
    new GatewayError(
      "outcome_unknown",
      `The process that ran '${call.tool.uri}' stopped after the agent had called ${named.join(", ")}; it is not asked again by itself. Look at these calls, then ask it for what is left.`,
      { toolName: call.tool.name, extra: { calls: writes.map(({ id }) => id) } },
    ),
    "uncertain",
  );
}

/**
 * An agent that was cut short after it had written has not come to an end that could be told from another one: like any
 * write that gives no answer it is not asked again by itself.
 */
function withFate(error: GatewayError, { signal }: InvocationContext): GatewayError {
  return signal.aborted && hasStartedWrite(error) ? withDelivery(error, "uncertain") : error;
}

/** What was said until then goes with the reason why no more was. */
function withPartial(error: GatewayError, said: { readonly text: string; readonly chatId: string }): GatewayError {
  const partial = said.text === "" ? {} : { partial: said.text };
  return new GatewayError(error.code, error.message, {
    ...error.details,
    extra: { ...error.details.extra, ...partial, chat_id: said.chatId },
  });
}
