/**
 * An agent: a model with instructions, the tools that it may call, and the agents that it may ask or hand over
 * to (AGENT-1 to AGENT-3). A row of configuration; what it says is in `voice.ts`.
 */
import * as z from "zod";
import { toolPatternSchema } from "../callers/caller.ts";
import { once } from "../once.ts";

/** Leaves room for `transfer_to_` in names that models can call. */
export const agentNameSchema = z
  .string()
  .regex(/^[a-zA-Z0-9][a-zA-Z0-9_-]{0,47}$/, "has 1 to 48 letters, digits, '_' and '-', and begins with no sign");

/** Below the tenant's settings of the same names; absent: those. */
export const agentLimitsSchema = once(() =>
  z.strictObject({
    rounds: z.int().min(1).max(100).optional(),
    calls_per_round: z.int().min(1).max(128).optional(),
    wall_clock_ms: z.int().min(1_000).max(840_000).optional(),
    /** Of the whole run: this agent, those it hands over to, and those it calls. */
    tokens: z.int().min(1).optional(),
    cost_micros: z.int().min(1).optional(),
    /** Times that the conversation may change hands in one run. */
    handoffs: z.int().min(0).max(100).default(8),
    /** Levels of agents below this one. */
    depth: z.int().min(0).max(8).default(3),
  }),
);

/** Fields of a request that the gateway itself decides about. */
const notParameters = ["model", "messages", "tools", "stream", "stream_options", "n", "session_id", "tool_protocol"];

export const agentDefinitionSchema = once(() =>
  z.strictObject({
    description: z.string().max(4_000),
    /** Null: the tenant's `default_model`, or the first there is. */
    model: z
      .string()
      .min(1)
      .max(256)
      .refine((model) => !isAgentModel(model), "is the model behind the agent, which is no agent itself")
      .nullable(),
    instructions: z.string().max(100_000),
    tools: z.array(toolPatternSchema).max(256),
    knowledge: z.array(z.string().min(1).max(128)).max(64),
    handoffs: z.array(agentNameSchema).max(64),
    agents: z.array(agentNameSchema).max(64),
    limits: agentLimitsSchema(),
    tool_protocol: z.enum(["openai", "vcp"]),
    parameters: z
      .record(z.string().min(1).max(64), z.json())
      .refine(
        (given) => !notParameters.some((name) => Object.hasOwn(given, name)),
        `are what goes to the model back end as it is; not among them: ${notParameters.join(", ")}`,
      ),
    allow_client_tools: z.boolean(),
    enabled: z.boolean(),
  }),
);
export type AgentDefinition = z.output<ReturnType<typeof agentDefinitionSchema>>;

export interface NewAgent extends AgentDefinition {
  readonly name: string;
}

export interface AgentRecord extends NewAgent {
  readonly id: string;
  readonly createdAt: number;
  readonly updatedAt: number;
}

const modelPrefix = "agent/";

/** Does the name of a model mean an agent? */
export function isAgentModel(model: string | undefined): model is string {
  return model?.startsWith(modelPrefix) === true;
}

export function agentModelOf({ name }: Pick<AgentRecord, "name">): string {
  return modelPrefix + name;
}

/** The agent of this name, enabled or not. */
export function findAgent(agents: readonly AgentRecord[], name: string): AgentRecord | undefined {
  return agents.find((agent) => agent.name === name);
}

export function agentOfModel(agents: readonly AgentRecord[], model: string): AgentRecord | undefined {
  return findAgent(agents, model.slice(modelPrefix.length));
}

/** The name under which models and callers know it as a tool. */
export function agentToolName({ name }: Pick<AgentRecord, "name">): string {
  return `agent_${name}`;
}
