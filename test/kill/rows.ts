/** What the gateway has on record, read as anybody may read it. */
import { mostInterruptions } from "@toolyard/core/calls/interruptions";
import type { Json, Client } from "../support/gateway-client.ts";
import { eventually } from "./instance.ts";
import type { Manners, Shop } from "./shop.ts";

export const endStates: readonly string[] = ["completed", "failed", "cancelled", "unknown", "rejected"];

/** All that is on record. */
export async function allRows(client: Client): Promise<readonly Json[]> {
  const rows: Json[] = [];
  for (let after = ""; ;) {
    const page = await client.get(`/v1/calls?limit=100${after}`);
    rows.push(...page.data);
    if (page.has_more !== true) return rows;
    after = `&after=${page.last_id}`;
  }
}

/** The same once nothing is under way any more: no call is lost, none hangs. */
export async function endedRows(client: Client, withinMs: number): Promise<readonly Json[]> {
  let open: readonly string[] = [];
  try {
    return await eventually("The end of every call", withinMs, async () => {
      const rows = await allRows(client);
      open = rows.filter(({ state }) => !endStates.includes(state)).map(({ id, state }) => `${id} ${state}`);
      return open.length === 0 ? rows : undefined;
    });
  } catch (error) {
    throw new Error(`Calls that never ended: ${open.join(", ")}`, { cause: error });
  }
}

/** Of the calls of tools, the newest. */
export function newestOrder(rows: readonly Json[]): Json {
  const orders = rows.filter(({ kind }) => kind === "tool");
  return orders.toSorted((a, b) => b.created_at.localeCompare(a.created_at))[0];
}

/** As many processes as may have died over it. */
export function isAbandoned(row: Json): boolean {
  return row.interruptions >= mostInterruptions;
}

/** What is wrong between the record of an order and what the shop knows of it. */
export function faultOf(
  shop: Shop,
  row: Json,
  { order, manners }: { readonly order: string; readonly manners: Manners },
): string | undefined {
  if (row === undefined) return "is lost";
  const requests = shop.requestsFor(order).length;
  const effects = shop.effectsFor(order);
  if (effects > 1) return `took effect ${effects} times`;
  if (row.state === "unknown" && (manners === "ignores keys" || isAbandoned(row))) return undefined;
  if (row.state !== "completed") return `ended as ${row.state}: ${JSON.stringify(row.error)}, ${requests} requests`;
  if (effects !== 1) return "completed without an effect";
  return row.result.preview.includes(`receipt of ${order}`) ? undefined : `has the result ${row.result.preview}`;
}
