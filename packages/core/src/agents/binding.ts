/**
 * What an agent may do: of what its caller may, the tools that it names (AGENT-2). The dispatcher decides by it like
 * by everything else that a caller is, so it holds for what is listed, what is offered and what is run.
 */
import type { Binding, Caller } from "../callers/caller.ts";
import { formatToolUri } from "../tools/uri.ts";
import type { AgentRecord } from "./agent.ts";

/** The tool that searches what `knowledge` names. */
const knowledgeTool = "knowledge_search";

/** Whoever gets results may read on where one was cut. */
const resultReader = "read_result";

/** Lists of tools are kept by caller, so that of a caller's own agents is always the same. */
const known = new WeakMap<Caller, WeakMap<AgentRecord, Caller>>();

/** @param caller with the binding of the agent that asks for this one; absent: a client does */
export function bind(caller: Caller, agent: AgentRecord): Caller {
  const above = caller.bound;
  if (above !== undefined) {
    const depthLeft = Math.min(above.depthLeft - 1, agent.limits.depth);
    return { ...caller, bound: bindingOf(agent, { path: [...above.path, agent.name], depthLeft }) };
  }
  let ofCaller = known.get(caller);
  if (ofCaller === undefined) known.set(caller, (ofCaller = new WeakMap<AgentRecord, Caller>()));
  let bound = ofCaller.get(agent);
  if (bound === undefined) {
    bound = { ...caller, bound: bindingOf(agent, { path: [agent.name], depthLeft: agent.limits.depth }) };
    ofCaller.set(agent, bound);
  }
  return bound;
}

function bindingOf(agent: AgentRecord, place: Pick<Binding, "path" | "depthLeft">): Binding {
  const { tools, agents, knowledge } = agent;
  const named = [
    ...tools,
    ...agents.map((name) => formatToolUri("agent", name)),
    ...(knowledge.length === 0 ? [] : [knowledgeTool]),
  ];
  return { ...place, knowledge, tools: named.length === 0 ? [] : [...named, resultReader] };
}
