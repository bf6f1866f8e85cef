/** Changes an agent. Fields are merged into what is stored at that moment, so two changes at once both count. */
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { AgentRecord, NewAgent } from "./agent.ts";

/** Changes of others that may come in between; each means that one more went through. */
const mostTries = 10;

/**
 * @returns undefined where there is no such agent
 * @throws GatewayError `conflict` for a name taken, or where others keep changing the agent
 */
export async function updateAgent(
  { repos }: Pick<CoreDeps, "repos">,
  { tenant }: Pick<CallContext, "tenant">,
  { id, change }: { readonly id: string; readonly change: Partial<NewAgent> },
): Promise<AgentRecord | undefined> {
  for (let attempt = 1; attempt <= mostTries; attempt += 1) {
    const agent = await repos.agents.get(tenant, id);
    if (agent === undefined) return undefined;
    const merged = { ...agent, ...change, expectedUpdatedAt: agent.updatedAt };
    const updated = await repos.agents.update(tenant, id, merged);
    if (updated !== undefined) return updated;
  }
  throw new GatewayError("conflict", "The agent keeps changing; try again.", { retryAfterMs: 1_000 });
}
