/**
 * A chat that is an agent's: its instructions, model, tools and limits in place of the request's, and those of
 * another agent once it has handed over (AGENT-1 to AGENT-3). The loop is that of every chat; this is what it asks.
 */
import { nothing, type Amount } from "../budgets/budget.ts";
import { checkSpent, RunPurse } from "../budgets/run-purse.ts";
import type { CallerLink } from "../calls/call.ts";
import type { LoopLimits } from "../chat/loop-guard.ts";
import { allowedBy, offerIn, withTools, type Offer } from "../chat/offer.ts";
import type { ChatInput } from "../chat/opened-chat.ts";
import { resolveRoute } from "../chat/providers/route.ts";
import type { ChatRequest, ToolProtocol } from "../chat/schema.ts";
import type { TextDialect } from "../chat/text-dialect.ts";
import type { AgentVoice, NextVoice } from "../chat/voice.ts";
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { JsonObject } from "../json.ts";
import type { DispatchItem } from "../tools/prepare.ts";
import { formatToolUri } from "../tools/uri.ts";
import { agentOfModel, findAgent, type AgentRecord } from "./agent.ts";
import { bind } from "./binding.ts";
import { handoffItem, Handoffs, handoffTool, targetOf, type Handoff } from "./handoff.ts";

export interface Asked {
  /** Name of the model that was asked for. */
  readonly model: string;
  readonly asked: ChatRequest;
  readonly input: ChatInput;
}

/**
 * Undefined where a back end of the tenant has a model of this very name and no agent does.
 * @throws GatewayError `model_not_found`, `agent_not_found`, `agent_disabled`; `invalid_request` for what an agent does not take
 */
export function openAgentRun(deps: CoreDeps, context: CallContext, asked: Asked): AgentRun | undefined {
  const { config } = context;
  const agent = agentOfModel(config.agents, asked.model);
  if (agent !== undefined) {
    checkRequest(agent, asked.asked);
    return new AgentRun(deps, context, agent, asked);
  }
  const meant = asked.input.inner?.agent;
  if (meant !== undefined) {
    throw new GatewayError(
      "agent_not_found",
      `There is no agent '${meant}'; create one of that name with POST /v1/agents, or take it out of what asks for it.`,
      { param: "agent" },
    );
  }
  const isServed = config.providers.some(({ enabled, models }) => enabled && Object.hasOwn(models, asked.model));
  if (isServed) return undefined;
  throw new GatewayError("model_not_found", `There is no agent for the model '${asked.model}'; see GET /v1/models.`, {
    param: asked.asked.model === undefined ? "default_model" : "model",
  });
}

function checkRequest({ id, name, enabled, allow_client_tools: allowsTools }: AgentRecord, asked: ChatRequest): void {
  if (!enabled) {
    throw new GatewayError(
      "agent_disabled",
      `Agent '${name}' is disabled; an administrator can enable it with PATCH /v1/agents/${id} {"enabled": true}.`,
      { param: "model" },
    );
  }
  const refuse = (param: string, why: string): GatewayError =>
    new GatewayError("invalid_request", `${param}: agent '${name}' ${why}`, { param });
  if (asked.manual) throw refuse("tool_execution", "calls its tools itself; leave it out, or ask the model.");
  if (asked.choices > 1) throw refuse("n", "gives one answer; leave it out.");
  if (asked.tools.length > 0 && !allowsTools) {
    throw refuse("tools", "calls the tools that are bound to it; leave them out, or set 'allow_client_tools' on it.");
  }
}

/** An agent as it speaks in this chat. */
interface Speaker {
  readonly agent: AgentRecord;
  readonly context: CallContext;
  readonly request: ChatRequest;
  readonly offer: Offer;
  readonly instructions: JsonObject | undefined;
}

export class AgentRun implements AgentVoice {
  /** `agent/{name}`, as it was asked for. */
  readonly model: string;
  readonly uri: string;
  readonly protocol: ToolProtocol;
  readonly #deps: CoreDeps;
  /** Of the caller, before it is bound. */
  #context: CallContext;
  readonly #asked: Asked;
  readonly #purse: RunPurse;
  readonly #handoffs: Handoffs;
  #speaker: Speaker;
  #wanted: Handoff | undefined;
  /** What had been used when the present agent took over. */
  #usedBefore: Amount = nothing;

  constructor(deps: CoreDeps, context: CallContext, agent: AgentRecord, asked: Asked) {
    const { wall_clock_ms: own } = agent.limits;
    const { wall_clock_ms: most } = context.config.settings;
    const until = deps.clock.now() + Math.min(own ?? most, most);
    this.model = asked.model;
    this.uri = formatToolUri("agent", agent.name);
    this.protocol = agent.tool_protocol;
    this.#deps = deps;
    this.#asked = asked;
    this.#purse = new RunPurse(agent.name, { ...agent.limits, until }, asked.input.inner?.purse);
    this.#context = { ...context, purse: this.#purse };
    this.#handoffs = new Handoffs(agent);
    this.#speaker = this.#speak(agent, asked.asked);
  }

  get request(): ChatRequest {
    const { request, instructions } = this.#speaker;
    return instructions === undefined ? request : { ...request, messages: [instructions, ...request.messages] };
  }

  get context(): CallContext {
    return this.#speaker.context;
  }

  get offer(): Offer {
    return this.#speaker.offer;
  }

  /** Another agent may go on with the conversation. */
  get handsOver(): boolean {
    return this.#speaker.agent.handoffs.length > 0;
  }

  /** The session is known once the offer is: whoever goes on with the conversation works in it, too. */
  workIn(sessionId: string): void {
    this.#context = { ...this.#context, sessionId };
  }

  /** Milliseconds. */
  get leftMs(): number {
    return Math.max(1, this.#purse.until - this.#deps.clock.now());
  }

  get via(): readonly CallerLink[] {
    const path = this.#speaker.context.caller.bound?.path ?? [];
    return [...(this.#asked.input.inner?.via ?? []), ...path.map((id) => ({ kind: "agent", id }))];
  }

  get limits(): LoopLimits {
    const { settings } = this.#context.config;
    const { name, limits } = this.#speaker.agent;
    return {
      rounds: Math.min(limits.rounds ?? settings.rounds, settings.rounds),
      calls_per_round: Math.min(limits.calls_per_round ?? settings.calls_per_round, settings.calls_per_round),
      tokens_per_request: settings.tokens_per_request,
      identical_calls: settings.identical_calls,
      agent: name,
    };
  }

  itemOf(call: { readonly name: string; readonly arguments: string }): DispatchItem | undefined {
    const { agent, request } = this.#speaker;
    const to = targetOf(call.name);
    if (to === undefined || !handoffsOf(agent, request).includes(to)) {
      this.#handoffs.madeProgress();
      return undefined;
    }
    const target = findAgent(this.#context.config.agents, to);
    return handoffItem({ from: agent, to, target, arguments: call.arguments, take: (handoff) => this.#take(handoff) });
  }

  #take(handoff: Handoff): void {
    if (this.#wanted !== undefined) {
      throw new GatewayError(
        "conflict",
        `The conversation has just been handed over to '${this.#wanted.to.name}'; one agent can go on with it.`,
      );
    }
    this.#wanted = handoff;
  }

  meteredBy(used: () => Amount): void {
    this.#purse.meteredBy(used);
  }

  admit(): void {
    this.#purse.check();
    const { name, limits } = this.#speaker.agent;
    const { tokens, micros } = this.#purse.spent;
    const before = this.#usedBefore;
    checkSpent(name, limits, { tokens: tokens - before.tokens, micros: micros - before.micros });
  }

  async next(messages: readonly JsonObject[]): Promise<NextVoice | undefined> {
    const wanted = this.#wanted;
    if (wanted === undefined) return undefined;
    this.#wanted = undefined;
    const before = this.#speaker;
    const { to, reason } = wanted;
    this.#handoffs.admit(before.agent.name, to.name);
    this.#usedBefore = this.#purse.spent;
    // What the request chooses is among the tools of the agent that it asks.
    const speaker = this.#speak(to, { ...this.#asked.asked, toolChoice: undefined });
    this.#speaker = speaker;
    const { context, request, offer } = speaker;
    const routes = resolveRoute(context.config, request.model, this.#deps.defaultProvider);
    const instructions = await this.#instructionsOf(speaker, routes[0]?.model ?? "");
    const rest = before.instructions === undefined ? messages : withoutInstructions(messages);
    return {
      from: before.agent.name,
      to: to.name,
      reason,
      chat: { context, request, offer, routes, dialect: await this.#dialectOf(speaker, rest) },
      messages: instructions === undefined ? rest : [instructions, ...rest],
    };
  }

  #speak(agent: AgentRecord, asked: ChatRequest): Speaker {
    const context = { ...this.#context, caller: bind(this.#context.caller, agent) };
    const isVcp = agent.tool_protocol === "vcp";
    const targets = handoffsOf(agent, asked).flatMap((name) => findAgent(context.config.agents, name) ?? []);
    const handoffs = targets.filter(({ enabled }) => enabled).map(handoffTool);
    const request: ChatRequest = {
      ...asked,
      model: agent.model ?? undefined,
      passthrough: { ...agent.parameters, ...asked.passthrough },
      ...(agent.allow_client_tools ? {} : { tools: [], clientToolNames: new Set<string>() }),
    };
    const offer = offerIn(agent.tool_protocol, this.#deps.adapters, { context, request });
    return {
      agent,
      context,
      request,
      offer: isVcp ? offer : withTools(offer, handoffs, request.tools.length > 0),
      instructions: instructionsOf(agent),
    };
  }

  /** As the pipeline would have made them, were they there from the start. */
  async #instructionsOf({ agent, context, instructions }: Speaker, model: string): Promise<JsonObject | undefined> {
    const isPrepared = agent.tool_protocol === "vcp" || context.config.settings.message_pipeline === "all";
    if (instructions === undefined || !isPrepared) return instructions;
    const { expandPlaceholders } = await import("../vcp/placeholders/expand-placeholders.ts");
    const onMediaMark = (): void => undefined;
    const [expanded] = await expandPlaceholders(this.#deps, context, [instructions], { model, onMediaMark });
    return expanded;
  }

  async #dialectOf(
    { agent, context, request, offer }: Speaker,
    messages: readonly JsonObject[],
  ): Promise<TextDialect | undefined> {
    if (agent.tool_protocol !== "vcp") return undefined;
    const { openVcpDialect } = await import("../vcp/dialect/vcp-dialect.ts");
    return openVcpDialect(this.#deps, {
      context,
      isStream: request.stream,
      showsResults: this.#asked.input.vcp?.showsResults === true || context.config.settings.show_vcp,
      runsTools: offer.runsTools,
      messages,
      due: [],
      hasSession: request.sessionId !== undefined,
    }).dialect;
  }
}

/** A request that says which tools there may be says nothing of those of another agent. */
function handoffsOf({ handoffs }: AgentRecord, { toolChoice }: ChatRequest): readonly string[] {
  return allowedBy(toolChoice) === undefined ? handoffs : [];
}

function instructionsOf({ instructions, tool_protocol: protocol, handoffs }: AgentRecord): JsonObject | undefined {
  const told = protocol === "vcp" && handoffs.length > 0 ? handoffsInText(handoffs) : "";
  const content = [instructions, told].filter((part) => part !== "").join("\n\n");
  return content === "" ? undefined : { role: "system", content };
}

/** For models that ask in their text: nothing else tells them of it. */
function handoffsInText(names: readonly string[]): string {
  const example = [
    "<<<[TOOL_REQUEST]>>>",
    `tool_name:「始」${"transfer_to_"}${names[0] ?? ""}「末」,`,
    "reason:「始」why, and what it should know「末」",
    "<<<[END_TOOL_REQUEST]>>>",
  ].join("\n");
  const list = names.map((name) => `'${name}'`).join(", ");
  return `You may hand the conversation over to one of the agents ${list}, by a request like this one:\n${example}`;
}

/** The first message of the system is the agent's, also behind the pipeline. */
function withoutInstructions(messages: readonly JsonObject[]): readonly JsonObject[] {
  const at = messages.findIndex(({ role }) => role === "system");
  return at < 0 ? messages : [...messages.slice(0, at), ...messages.slice(at + 1)];
}
