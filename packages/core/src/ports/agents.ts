/** Agents of a tenant; every change raises the config version. */
import type { AgentRecord, NewAgent } from "../agents/agent.ts";
import type { Page, PageRequest } from "./page.ts";

export interface AgentRepo {
  /** @throws GatewayError `conflict` (param `name`) for a name taken, or too many agents */
  create(tenant: string, id: string, agent: NewAgent): Promise<AgentRecord>;
  /**
   * Undefined: there is no such agent, or it has been changed since the moment that was expected.
   * @throws GatewayError `conflict` (param `name`)
   */
  update(
    tenant: string,
    id: string,
    agent: NewAgent & { readonly expectedUpdatedAt?: number },
  ): Promise<AgentRecord | undefined>;
  get(tenant: string, id: string): Promise<AgentRecord | undefined>;
  list(tenant: string, page: PageRequest): Promise<Page<AgentRecord>>;
  delete(tenant: string, id: string): Promise<boolean>;
}
