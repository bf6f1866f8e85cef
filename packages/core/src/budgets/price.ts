/**
 * What model tokens and tool calls cost. A tenant's own prices come before the operator's; the most exact
 * pattern wins, and of its entries the newest that is in force. Amounts are whole micro-units (millionths)
 * of whatever currency the prices are in; nothing is converted.
 */
import * as z from "zod";
import { matchesPattern } from "../callers/caller.ts";
import { toRfc3339 } from "../time.ts";

/** A thousand units for a single token, or for a call: more is a slip of the pen. */
const mostMicros = 1_000_000_000;
const longestPattern = 256;
const micros = z.int().min(0).max(mostMicros);

/** With an offset it says the same, but not to all that compare texts. Also asked of what is no time, and refused. */
function inUtc(text: string): string {
  const at = Date.parse(text);
  return text.endsWith("Z") || Number.isNaN(at) ? text : toRfc3339(at);
}

/** The same as stored and on the wire. */
const common = {
  pattern: z
    .string()
    .min(1)
    .max(longestPattern)
    .meta({ description: "A name, in which '*' stands for any characters.", example: "gpt-4o*" }),
  effective_from: z.iso
    .datetime({ offset: true })
    .overwrite(inUtc)
    .nullable()
    .default(null)
    .meta({ description: "In force from then on; null: always." }),
};

export const modelPriceSchema = z.strictObject({
  kind: z.literal("model"),
  ...common,
  prompt_per_mtok: micros.meta({ description: "Micro-units for a million prompt tokens.", example: 2_500_000 }),
  completion_per_mtok: micros.meta({
    description: "Micro-units for a million completion tokens.",
    example: 10_000_000,
  }),
  cached_prompt_per_mtok: micros
    .nullable()
    .default(null)
    .meta({ description: "For prompt tokens that the back end had cached; null: as other prompt tokens." }),
  per_request: micros.default(0).meta({ description: "Micro-units for every request to the back end." }),
});
export type ModelPrice = z.output<typeof modelPriceSchema>;

export const toolPriceSchema = z.strictObject({
  kind: z.literal("tool"),
  ...common,
  per_call: micros.meta({ description: "Micro-units for a call that reached the tool.", example: 5_000 }),
});
export type ToolPrice = z.output<typeof toolPriceSchema>;

export const priceSchema = z.discriminatedUnion("kind", [modelPriceSchema, toolPriceSchema]);
export type Price = z.output<typeof priceSchema>;

/** Most entries of one table; it is read with every load of the configuration. */
export const mostPrices = 1_000;

/** The tenant's table and the operator's. */
export interface PriceTables {
  readonly own: readonly Price[];
  readonly operator: readonly Price[];
}

/** The price of a model by the first of its names that has one: the caller's, then the back end's. */
export function modelPrice(prices: PriceTables, names: readonly string[], at: number): ModelPrice | undefined {
  for (const table of [prices.own, prices.operator]) {
    for (const name of names) {
      const found = rankedOf(table).models.find((one) => isMeant(one, name, at));
      if (found !== undefined) return found.price;
    }
  }
  return undefined;
}

export function toolPrice(prices: PriceTables, name: string, at: number): ToolPrice | undefined {
  for (const table of [prices.own, prices.operator]) {
    const found = rankedOf(table).tools.find((one) => isMeant(one, name, at));
    if (found !== undefined) return found.price;
  }
  return undefined;
}

interface Entry<P extends Price> {
  readonly price: P;
  /** Letters that are given; a name without a star beats any pattern. */
  readonly exactness: number;
  readonly start: number;
}

/** The best entries first, so that the first that fits is the one. */
interface Ranked {
  readonly models: readonly Entry<ModelPrice>[];
  readonly tools: readonly Entry<ToolPrice>[];
}

/** Tables come with the configuration, which stays the same for many requests. */
const ranked = new WeakMap<readonly Price[], Ranked>();

function rankedOf(table: readonly Price[]): Ranked {
  const known = ranked.get(table);
  if (known !== undefined) return known;
  const made: Ranked = {
    models: rank(table.filter((price) => price.kind === "model")),
    tools: rank(table.filter((price) => price.kind === "tool")),
  };
  ranked.set(table, made);
  return made;
}

function rank<P extends Price>(table: readonly P[]): readonly Entry<P>[] {
  return table
    .map((price) => ({ price, exactness: exactnessOf(price.pattern), start: startOf(price.effective_from) }))
    .toSorted((a, b) => b.exactness - a.exactness || b.start - a.start);
}

function exactnessOf(pattern: string): number {
  return pattern.includes("*") ? pattern.replaceAll("*", "").length : longestPattern + 1;
}

function startOf(from: string | null): number {
  return from === null ? 0 : Date.parse(from);
}

function isMeant({ price, start }: Entry<Price>, name: string, at: number): boolean {
  return start <= at && matchesPattern(price.pattern, name);
}
