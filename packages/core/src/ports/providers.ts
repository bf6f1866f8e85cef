/** Persistence of model back ends. Rules and contract as in repos.ts. */
import type { ProviderRecord } from "../chat/providers/provider.ts";
import type { Page, PageRequest } from "./page.ts";

export type NewProvider = Omit<ProviderRecord, "id">;

export interface ProviderRepo {
  /** @throws GatewayError `conflict` (param `name`) for a taken name, or too many providers */
  create(tenant: string, id: string, provider: NewProvider): Promise<ProviderRecord>;
  update(tenant: string, id: string, provider: NewProvider): Promise<ProviderRecord | undefined>;
  get(tenant: string, id: string): Promise<ProviderRecord | undefined>;
  list(tenant: string, page: PageRequest): Promise<Page<ProviderRecord>>;
  delete(tenant: string, id: string): Promise<boolean>;
}
