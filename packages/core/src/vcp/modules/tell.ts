/** What modules tell those who watch: clients of VCPLog and VCPInfo hear it as upstream's do. */
import type { AdapterDeps } from "../../deps.ts";
import { toGatewayError } from "../../errors/gateway-error.ts";
import { isJsonObject, type JsonObject } from "../../json.ts";
import { publish } from "../../realtime/publish.ts";
import type { Told } from "./wire.ts";

/** Never throws: nothing depends on it. */
export async function tellWatchers(
  deps: Pick<AdapterDeps, "repos" | "tellNow" | "log">,
  tenant: string,
  told: readonly Told[],
): Promise<void> {
  if (told.length === 0) return;
  try {
    const publications = told.map(({ to, data }) => {
      const { type, frame } = frameOf(to, data);
      return { type, audience: { kind: "client_type", value: to }, data: frame, bare: true } as const;
    });
    if ((await publish(deps, tenant, publications)) > 0) await deps.tellNow();
  } catch (thrown) {
    deps.log.log("warn", "what a module told was not passed on", { tenant, code: toGatewayError(thrown).code });
  }
}

function frameOf(to: Told["to"], data: Told["data"]): { readonly type: string; readonly frame: JsonObject } {
  const own = isJsonObject(data) ? data["type"] : undefined;
  if (to === "VCPInfo" && isJsonObject(data) && typeof own === "string") return { type: own, frame: data };
  const type = to === "VCPLog" ? "vcp_log" : "vcp_info";
  return { type, frame: { type, data } };
}
