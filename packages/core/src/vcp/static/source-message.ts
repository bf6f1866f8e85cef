/**
 * Has a worker refresh a source of placeholder values. The message looks like that of a call: it says "look at this
 * row" as well, only of another table, and an older worker finds no such call and lets it be.
 */
import type { AdapterDeps } from "../../deps.ts";
import { toGatewayError } from "../../errors/gateway-error.ts";

const prefix = "vcp-static:";
/** What is expected to take longer goes to the long queue. */
const shortMs = 60_000;

/** Of a plugin, in the table of values. */
export function pluginSource(name: string): string {
  return `plugin:${name}`;
}

/** Never throws: a value that is not refreshed now is wanted again. */
export async function askForRefresh(
  { queue, log }: Pick<AdapterDeps, "queue" | "log">,
  { tenant, source, expectedMs }: { readonly tenant: string; readonly source: string; readonly expectedMs: number },
): Promise<void> {
  const name = expectedMs > shortMs ? "long" : "short";
  await queue.send(name, [{ tenant, callId: `${prefix}${source}` }]).catch((thrown: unknown) => {
    const { code } = toGatewayError(thrown);
    log.log("warn", "a refresh of a placeholder's value could not be asked for", { tenant, source, code });
  });
}

/** Undefined: the message is about a call. */
export function refreshedSource(callId: string): string | undefined {
  return callId.startsWith(prefix) ? callId.slice(prefix.length) : undefined;
}
