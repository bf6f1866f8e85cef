/** Removes what nobody would miss but those who go with it: their references to each other keep nobody. */
import { GatewayError } from "../errors/gateway-error.ts";
import { isJsonObject } from "../json.ts";
import type { TenantConfig } from "../tenant-config.ts";
import type { NamedReference, Work } from "./kind.ts";

/**
 * @param remove as its route does, which refuses while something refers to it
 * @throws GatewayError `service_referenced` with those that stay
 */
export async function unlessUsed({ goes, context }: Work, remove: (force: boolean) => Promise<unknown>): Promise<void> {
  try {
    await remove(false);
  } catch (error) {
    if (!(error instanceof GatewayError) || error.code !== "service_referenced") throw error;
    const named = error.details.extra?.["references"];
    // As `referencedError` lists them.
    const references = (Array.isArray(named) ? named.filter((each) => isJsonObject(each)) : []) as NamedReference[];
    const left = references.filter((reference) => !goes(reference) && !isEarlier(context.config, reference));
    if (left.length > 0) {
      const message = error.message.replace(/;[^;]*\?force=true\.$/, "; change that first, or let it go as well.");
      throw new GatewayError(error.code, message, { extra: { references: left } });
    }
    await remove(true);
  }
}

/** Of a version of a flow that another has taken the place of: it stands in no document, so none could change it. */
function isEarlier({ flows }: TenantConfig, { kind, id, field }: NamedReference): boolean {
  const [, number] = /^versions\.(\d+)(?:\.|$)/.exec(field) ?? [];
  const newest = flows.find((flow) => kind === "flow" && flow.id === id)?.versions.at(-1)?.number;
  return number !== undefined && newest !== undefined && Number(number) < newest;
}
