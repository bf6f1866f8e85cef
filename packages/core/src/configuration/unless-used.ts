/** Removes what nobody would miss but those who go with it: their references to each other keep nobody. */
import { GatewayError } from "../errors/gateway-error.ts";
import { isJsonObject } from "../json.ts";
import type { Work } from "./kind.ts";

/**
 * @param remove as its route does, which refuses while something refers to it
 * @throws GatewayError `service_referenced` with those that stay
 */
export async function unlessUsed({ goes }: Work, remove: (force: boolean) => Promise<unknown>): Promise<void> {
  try {
    await remove(false);
  } catch (error) {
    if (!(error instanceof GatewayError) || error.code !== "service_referenced") throw error;
    const named = error.details.extra?.["references"];
    const references = Array.isArray(named) ? named.filter((each) => isJsonObject(each)) : [];
    const left = references.filter(
      ({ kind, id }) => typeof kind !== "string" || typeof id !== "string" || !goes({ kind, id }),
    );
    if (left.length > 0) {
      const message = error.message.replace(/;[^;]*\?force=true\.$/, "; change that first, or let it go as well.");
      throw new GatewayError(error.code, message, { extra: { references: left } });
    }
    await remove(true);
  }
}
