/** An agent goes when nobody would miss it, or when somebody insists (CFG-4). */
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { ifReadable } from "../errors/unreadable.ts";
import type { Repos } from "../ports/repos.ts";
import { findReferencesTo, referencedError } from "../services/references.ts";
import { formatToolUri } from "../tools/uri.ts";
import { agentToolName, type AgentRecord } from "./agent.ts";

/** @throws GatewayError `not_found`; `service_referenced` with the referrers */
export async function deleteAgent(
  { repos }: Pick<CoreDeps, "repos">,
  context: CallContext,
  { id, force }: { readonly id: string; readonly force: boolean },
): Promise<void> {
  // One that cannot be read is nobody's to call, and can be deleted all the same.
  const agent = await ifReadable(requireAgent(repos, context.tenant, id));
  if (!force && agent !== undefined) {
    const uri = formatToolUri("agent", agent.name);
    const name = agentToolName(agent);
    const address = { uri, namePrefix: `${name}__`, toolNames: new Set([name]) };
    const references = await findReferencesTo({ repos }, context, address);
    const others = references.filter((reference) => reference.id !== id);
    if (others.length > 0) throw referencedError(uri, others);
  }
  if (!(await repos.agents.delete(context.tenant, id))) throw noSuchAgent(id);
}

async function requireAgent({ agents }: Pick<Repos, "agents">, tenant: string, id: string): Promise<AgentRecord> {
  const agent = await agents.get(tenant, id);
  if (agent === undefined) throw noSuchAgent(id);
  return agent;
}

function noSuchAgent(id: string): GatewayError {
  return new GatewayError("not_found", `There is no agent '${id}'.`, { param: "id" });
}
