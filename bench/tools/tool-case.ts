/** One way to a back end that is measured, with the bare client that is measured beside it. */
import type { BenchTenant } from "../support/gateway.ts";

export interface BackEnds {
  /** `http://127.0.0.1:…` */
  readonly url: string;
  readonly smtpPort: number;
  readonly grpcPort: number;
  /** The same over HTTP, on the core that is measured. */
  readonly acrossUrl: string;
}

export interface ToolCase {
  /** What the bare client is. */
  readonly bareClient: string;
  /** Why it cannot be measured here; undefined: it can. */
  readonly absent?: string | undefined;
  /** Why no floor is set; undefined: there is one. */
  readonly withoutFloor?: string;
  /** Starts what is needed and gives the tenant its tool. */
  start(backEnds: BackEnds, tenant: BenchTenant): Promise<StartedCase>;
}

export interface StartedCase {
  readonly uri: string;
  readonly arguments: object;
  /** The same, asked for by the bare client. */
  bare(): Promise<unknown>;
  /** The same exchange with a back end on the other core, as each of the gateway's two exchanges is one. */
  bareAcross?(): Promise<unknown>;
  /** The same exchange as `bareAcross`, by the product's own client in this process. */
  ownAcross?(): Promise<unknown>;
  close(): Promise<void>;
}

export async function addService(tenant: BenchTenant, scheme: string, id: string, config: object): Promise<void> {
  await tenant.send("POST", "/v1/tool-services", { scheme, service_id: id, config });
}
