/** What a tenant has once: settings, the order of preprocessors, prices. */
import { isSame, toPlain } from "@toolyard/core/configuration/compare";
import type { Kind, Work } from "@toolyard/core/configuration/kind";
import { canonicalJson, type JsonObject, type JsonValue } from "@toolyard/core/json";
import { settingsInForce } from "@toolyard/core/tenants/settings";
import * as z from "zod";
import { toInvalidRequest } from "../errors.ts";
import { checkTable, pricesBody } from "../routes/prices.ts";
import { settingsBody } from "../routes/settings-change.ts";
import { baseNames } from "./knowledge-names.ts";
import { ask, liveAt, objectOf, parseBy, type RouteOf } from "./part.ts";

/** What the tenant has asked for, not what holds of it. */
async function ownSettings({ core, context }: Work): Promise<JsonObject> {
  const tenant = await core.repos.tenants.get(context.tenant);
  return objectOf(toPlain(tenant?.settings ?? {}));
}

const settingsSchema = settingsBody.omit({ preprocessor_order: true });

export const settings = (route: RouteOf<"updateSettings">): Kind => ({
  /** Null takes one back to its default. */
  merge: (live, asked) => {
    const merged = Object.entries({ ...objectOf(live), ...objectOf(asked) });
    return Object.fromEntries(merged.filter(([, value]) => value !== null));
  },
  identify: () => "",
  async read(work) {
    const { preprocessor_order: _order, ...own } = await ownSettings(work);
    const named = own["chat_knowledge_bases"];
    const names = Array.isArray(named) ? await baseNames(work) : undefined;
    const bases = names === undefined || !Array.isArray(named) ? {} : { chat_knowledge_bases: named.map(names) };
    return [liveAt("settings", { ...own, ...bases })];
  },
  parse: (_work, item) => parseBy(settingsSchema, item),
  async write(work, { item, before, changed }) {
    const gone = Object.keys(objectOf(before?.item)).filter((name) => !Object.hasOwn(objectOf(item), name));
    await ask(work, route("updateSettings"), {
      body: { ...changed, ...Object.fromEntries(gone.map((name) => [name, null])) },
    });
    return undefined;
  },
  foresee: (config, { item }, { core }) => {
    const { preprocessor_order } = config.settings;
    return { ...config, settings: { ...settingsInForce(item, core.settingsCaps), preprocessor_order } };
  },
});

const orderSchema = z.strictObject({ preprocessor_order: settingsBody.shape.preprocessor_order.unwrap().unwrap() });

export const preprocessorOrder = (route: RouteOf<"updateSettings">): Kind => ({
  merge: (_live, asked) => asked,
  identify: () => "",
  read: async (work) => [liveAt("preprocessor_order", (await ownSettings(work))["preprocessor_order"] ?? [])],
  parse: (_work, item) => parseBy(orderSchema, { preprocessor_order: item })["preprocessor_order"] ?? [],
  async write(work, { item }) {
    await ask(work, route("updateSettings"), { body: { preprocessor_order: isSame(item, []) ? null : item } });
    return undefined;
  },
  place: (param) => param.replace(/^preprocessor_order\.?/, ""),
});

/** Of entries that are one and the same price. */
const priceOf = (entry: JsonValue): string => {
  const { kind, pattern, effective_from: from } = objectOf(entry);
  return canonicalJson([kind ?? null, pattern ?? null, typeof from === "string" ? Date.parse(from) : null]);
};

const tableOf = (value: JsonValue): readonly JsonValue[] => (Array.isArray(value) ? value : []);

const inOrder = (entries: readonly JsonValue[]): JsonValue[] =>
  entries.toSorted((a, b) => (canonicalJson(a) < canonicalJson(b) ? -1 : 1));

export const prices = (route: RouteOf<"putPrices">): Kind => ({
  merge: (live, asked) => {
    const named = new Set(tableOf(asked).map(priceOf));
    return inOrder([...tableOf(live).filter((entry) => !named.has(priceOf(entry))), ...tableOf(asked)]);
  },
  identify: () => "",
  read: ({ context }) => Promise.resolve([liveAt("prices", inOrder(tableOf(toPlain(context.config.prices.own))))]),
  parse(_work, item) {
    const parsed = pricesBody.safeParse({ prices: item });
    if (!parsed.success) throw toInvalidRequest(parsed.error, "body");
    checkTable(parsed.data.prices);
    return toPlain(parsed.data.prices);
  },
  async write(work, { item }) {
    await ask(work, route("putPrices"), { body: { prices: item } });
    return undefined;
  },
  place: (param) => param.replace(/^prices\.?/, ""),
});
