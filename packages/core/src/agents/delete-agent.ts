/** An agent goes when nobody would miss it, or when somebody insists (CFG-4). */
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { findReferencesTo, referencedError } from "../services/references.ts";
import { formatToolUri } from "../tools/uri.ts";
import { agentToolName } from "./agent.ts";

/** @throws GatewayError `not_found`; `service_referenced` with the referrers */
export async function deleteAgent(
  { repos }: Pick<CoreDeps, "repos">,
  context: CallContext,
  { id, force }: { readonly id: string; readonly force: boolean },
): Promise<void> {
  const agent = await repos.agents.get(context.tenant, id);
  if (agent === undefined) throw noSuchAgent(id);
  if (!force) {
    const uri = formatToolUri("agent", agent.name);
    const name = agentToolName(agent);
    const address = { uri, namePrefix: `${name}__`, toolNames: new Set([name]) };
    const references = await findReferencesTo({ repos }, context, address);
    const others = references.filter((reference) => reference.id !== id);
    if (others.length > 0) throw referencedError(uri, others);
  }
  if (!(await repos.agents.delete(context.tenant, id))) throw noSuchAgent(id);
}

function noSuchAgent(id: string): GatewayError {
  return new GatewayError("not_found", `There is no agent '${id}'.`, { param: "id" });
}
