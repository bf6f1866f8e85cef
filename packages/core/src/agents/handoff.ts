/**
 * Handing over: what a model is offered for it, and when it has gone too far. The call is one of the conversation
 * itself, recorded like a tool's; the loop goes on with the other agent once it has been answered.
 */
import { GatewayError } from "../errors/gateway-error.ts";
import { jsonReply } from "../tools/native/native-tool.ts";
import type { DispatchItem } from "../tools/prepare.ts";
import { lookingTool } from "../tools/tool-search.ts";
import type { Tool } from "../tools/tool.ts";
import { formatToolUri, parseToolUri } from "../tools/uri.ts";
import type { AgentRecord } from "./agent.ts";

const prefix = "transfer_to_";
const longestReason = 4_000;

export interface Handoff {
  readonly to: AgentRecord;
  readonly reason: string;
}

/** The agent that a call hands over to; undefined: it does not. */
export function targetOf(toolName: string): string | undefined {
  return toolName.startsWith(prefix) ? toolName.slice(prefix.length) : undefined;
}

const described = new WeakMap<AgentRecord, Tool>();

export function handoffTool(agent: AgentRecord): Tool {
  let tool = described.get(agent);
  if (tool === undefined) described.set(agent, (tool = toTool(agent.name, agent.description)));
  return tool;
}

function toTool(name: string, description: string): Tool {
  return {
    ...lookingTool,
    kind: "AGENT",
    uri: formatToolUri("agent", name),
    name: `${prefix}${name}`,
    service: `agent:${name}`,
    description:
      `Hands the conversation over to the agent '${name}', which goes on with it in your place. ${description}`.trim(),
    parameters: {
      type: "object",
      properties: {
        reason: {
          type: "string",
          minLength: 1,
          maxLength: longestReason,
          description: "Why, and what the other agent should know; it reads the whole conversation, too.",
        },
      },
      required: ["reason"],
    },
    hash: "1",
  };
}

export interface HandoffCall {
  readonly from: AgentRecord;
  readonly to: string;
  readonly arguments: string;
  /** The agent of that name; undefined: there is none. */
  readonly target: AgentRecord | undefined;
  /** @throws GatewayError where it must not be */
  readonly take: (handoff: Handoff) => void;
}

/** For the dispatcher, which checks and records it; whatever is wrong is an error result for the model. */
export function handoffItem({ from, to, arguments: given, target, take }: HandoffCall): DispatchItem {
  const tool = target === undefined ? toTool(to, "") : handoffTool(target);
  return {
    target: tool.name,
    arguments: given,
    found: {
      tool,
      uri: parseToolUri(tool.uri),
      adapter: {
        resolve: () => undefined,
        list: () => [],
        invoke: async ({ arguments: args }) => {
          const next = requireTarget(from, to, target);
          const reason = typeof args["reason"] === "string" ? args["reason"] : "";
          take({ to: next, reason });
          return Promise.resolve(jsonReply({ transferred_from: from.name, transferred_to: to, reason }));
        },
      },
    },
  };
}

function requireTarget(from: AgentRecord, to: string, target: AgentRecord | undefined): AgentRecord {
  if (target === undefined) {
    throw new GatewayError("agent_not_found", `There is no agent '${to}'; the conversation stays with '${from.name}'.`);
  }
  if (!target.enabled) {
    throw new GatewayError("agent_disabled", `Agent '${to}' is disabled; the conversation stays with '${from.name}'.`);
  }
  if (target.tool_protocol !== from.tool_protocol) {
    throw new GatewayError(
      "invalid_request",
      `Agent '${to}' asks for tools in another way than '${from.name}' ('tool_protocol'); call it as a tool instead.`,
    );
  }
  return target;
}

/** How often a conversation has changed hands, and whether anything was done in between. */
export class Handoffs {
  readonly #most: number;
  readonly #agent: string;
  #count = 0;
  /** Since something else than handing over was done. */
  readonly #steps = new Set<string>();

  /** @param agent the one that was asked first, whose limit this is */
  constructor(agent: AgentRecord) {
    this.#most = agent.limits.handoffs;
    this.#agent = agent.name;
  }

  /** A tool was called. */
  madeProgress(): void {
    this.#steps.clear();
  }

  /** @throws GatewayError `handoffs_exceeded`, `handoff_loop` */
  admit(from: string, to: string): void {
    this.#count += 1;
    if (this.#count > this.#most) {
      throw new GatewayError(
        "handoffs_exceeded",
        `The conversation was to change hands for the ${this.#count}. time, from '${from}' to '${to}'; at most ${this.#most} are made (limit 'handoffs' of agent '${this.#agent}'). What was said so far is attached.`,
        { extra: { from, to } },
      );
    }
    const step = `${from} ${to}`;
    if (this.#steps.has(step)) {
      throw new GatewayError(
        "handoff_loop",
        `'${from}' handed over to '${to}' again although nothing had been done since the last time. Say in their instructions which of them does what; what was said so far is attached.`,
        { extra: { from, to } },
      );
    }
    this.#steps.add(step);
  }
}
