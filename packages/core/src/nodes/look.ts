/** Has nodes ask at once what they are to do, rather than with their next beat. */
import type { CoreDeps } from "../core-deps.ts";
import { toGatewayError } from "../errors/gateway-error.ts";
import { publish } from "../realtime/publish.ts";

/** The services of a tenant have changed, of which nodes may hold processes. Never throws. */
export async function haveNodesLook(deps: Pick<CoreDeps, "repos" | "log" | "tellNow">, tenant: string): Promise<void> {
  try {
    const look = { type: "node.look", audience: { kind: "client_type", value: "node" }, data: {} } as const;
    if ((await publish(deps, tenant, [look])) > 0) await deps.tellNow();
  } catch (thrown) {
    deps.log.log("warn", "nodes were not told and will ask by themselves", {
      tenant,
      code: toGatewayError(thrown).code,
    });
  }
}
