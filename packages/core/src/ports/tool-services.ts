/** Persistence of tool services, and of breakers that are open. Rules and contract as in repos.ts. */
import type { Discovered, NewToolService, ToolService, ToolServiceChange } from "../services/service.ts";
import type { ToolScheme } from "../tools/uri.ts";
import type { Page, PageRequest } from "./page.ts";

/** Tool services; every change raises the config version. */
export interface ToolServiceRepo {
  /** @throws GatewayError `conflict` (param `service_id`) for an id taken within the scheme, or too many services */
  create(tenant: string, service: NewToolService): Promise<ToolService>;
  /**
   * Raises the service's version. Undefined: no such service.
   * @throws GatewayError `version_conflict` where it has another version than expected
   */
  update(
    tenant: string,
    id: string,
    change: ToolServiceChange,
    expectedVersion?: number,
  ): Promise<ToolService | undefined>;
  get(tenant: string, id: string): Promise<ToolService | undefined>;
  list(tenant: string, page: PageRequest & { readonly scheme?: ToolScheme }): Promise<Page<ToolService>>;
  delete(tenant: string, id: string): Promise<boolean>;
  /** Calls of its tools that have not ended, at most 100. @param uri `api://crm` */
  callsUnderWay(
    tenant: string,
    uri: string,
  ): Promise<readonly { readonly id: string; readonly tool: string; readonly state: string }[]>;
  /** Keeps what the back end of this version said of its tools; the service's version stays. */
  saveDiscovered(tenant: string, id: string, version: number, discovered: Discovered): Promise<void>;
}

/** Breakers of tool services that are open; read with `admit` and `claim`, see services/breaker.ts. */
export interface BreakerRepo {
  /** For so many milliseconds from now, by the database's clock. Nothing happens where the service is newer. */
  open(
    tenant: string,
    breaker: { readonly service: string; readonly version: number; readonly openMs: number },
  ): Promise<void>;
  /** One caller of all gets it, until it is over or so many milliseconds have passed. `closed`: there is none. */
  claimTrial(
    tenant: string,
    trial: { readonly service: string; readonly version: number; readonly trialMs: number },
  ): Promise<"claimed" | "taken" | "closed">;
  /** Whoever tried has found out nothing. */
  releaseTrial(tenant: string, breaker: { readonly service: string; readonly version: number }): Promise<void>;
  close(tenant: string, breaker: { readonly service: string; readonly version: number }): Promise<void>;
}

export interface OpenBreaker {
  /** `svc_…` */
  readonly service: string;
  readonly version: number;
  /** Milliseconds until a call may see whether the back end is well; 0 or less: now. */
  readonly leftMs: number;
}
