/** Has nodes look at once what they are to hold, where somebody has changed something that it hangs on. */
import type { CoreDeps } from "../core-deps.ts";
import { toGatewayError } from "../errors/gateway-error.ts";
import { publish } from "../realtime/publish.ts";

export type AnnouncingDeps = Pick<CoreDeps, "repos" | "tellNow" | "log">;

/** Never throws: nodes look by themselves, too, with their next sign of life. */
export async function announceChange(deps: AnnouncingDeps, tenant: string): Promise<void> {
  try {
    const told = await publish(deps, tenant, [
      { type: "subscription.changed", audience: { kind: "client_type", value: "node" }, data: {} },
    ]);
    if (told > 0) await deps.tellNow();
  } catch (thrown) {
    deps.log.log("warn", "nodes were not told of a change of what they consume", {
      tenant,
      code: toGatewayError(thrown).code,
    });
  }
}
