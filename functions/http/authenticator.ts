/** Who presents a request or a connection to this app. */
import { createAuthenticator, type Authenticator } from "@toolyard/core/callers/authenticate";
import type { AppDeps } from "./app-env.ts";

export function authenticatorOf({ core, adminKeyHash, defaultTenant }: AppDeps): Authenticator {
  return createAuthenticator({
    issuers: core.repos.issuers,
    egress: core.egress,
    clock: core.clock,
    log: core.log,
    traces: core.traces,
    adminKeyHash,
    ...(defaultTenant === undefined ? {} : { defaultTenant }),
  });
}
