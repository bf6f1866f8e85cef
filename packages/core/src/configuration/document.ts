/** A tenant's configuration as one JSON document: the same bytes for the same state, and no secret in it. */
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { currentConfig } from "../current-config.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { canonicalJson, isJsonObject, type JsonObject, type JsonValue } from "../json.ts";
import type { TenantConfig } from "../tenant-config.ts";
import type { Kinds, Live, Work } from "./kind.ts";
import { documentFormat, kindNames, type KindName } from "./names.ts";
import { plainSecretsIn } from "./plain-secrets.ts";

export interface Named extends Live {
  readonly name: string;
}

/** All that there is, by kind, each in its order. */
export type State = { readonly [Name in KindName]: readonly Named[] };

export interface Needed {
  readonly name: string;
  /** `tool_services/api://crm` */
  readonly usedBy: readonly string[];
}

/** @throws GatewayError `not_found` where the tenant is gone */
export async function contextOfNow(core: CoreDeps, context: CallContext): Promise<CallContext> {
  const config = await currentConfig(core, context.tenant);
  if (config === undefined) throw new GatewayError("not_found", "The tenant is gone.");
  return { ...context, config };
}

export async function readState(kinds: Kinds, work: Work): Promise<State> {
  const read = async (name: KindName): Promise<readonly [KindName, readonly Named[]]> => {
    const kind = kinds[name];
    const live = await kind.read(work);
    return [name, inOrder(live.map((each) => ({ ...each, name: kind.identify(each.item) })))];
  };
  return Object.fromEntries(await Promise.all(kindNames.map(read))) as unknown as State;
}

/** By name, and those of one name by what they are. */
export function inOrder<Item extends { readonly name: string; readonly item: JsonValue }>(
  items: readonly Item[],
): readonly Item[] {
  const keyed = items.map((each) => ({ each, key: `${each.name}\n${canonicalJson(each.item)}` }));
  return keyed.sort((a, b) => (a.key < b.key ? -1 : a.key === b.key ? 0 : 1)).map(({ each }) => each);
}

export function toDocument(kinds: Kinds, state: State, told: JsonObject = {}): JsonObject {
  const fields = kindNames.map((name): readonly [string, JsonValue] => {
    const items = state[name].map(({ item }) => sorted(item));
    return [name, kinds[name].merge === undefined ? items : (items[0] ?? null)];
  });
  return {
    object: "configuration",
    format: documentFormat,
    credentials: neededIn(kinds, state).map(({ name, usedBy }) => ({ name, used_by: [...usedBy] })),
    ...told,
    ...Object.fromEntries(fields),
  };
}

/** The same for whoever keeps it: with what they should know of it, where there is anything. */
export function toExport(kinds: Kinds, state: State): JsonObject {
  const warnings = kindNames.flatMap((name) =>
    state[name].flatMap(({ item }, at) =>
      plainSecretsIn(kinds[name].merge === undefined ? `${name}[${at}]` : name, item).map((warning) => ({
        ...warning,
      })),
    ),
  );
  return toDocument(kinds, state, warnings.length === 0 ? {} : { warnings });
}

/** Of a provider the first model is that of requests that name none; arguments of tools are told in their order. */
const inTheirOrder: ReadonlySet<string> = new Set(["models", "properties"]);

/** Fields in the order of their names, but where their own means something. */
function sorted(item: JsonValue, field = ""): JsonValue {
  if (Array.isArray(item)) return item.map((each) => sorted(each));
  if (!isJsonObject(item)) return item;
  const names = inTheirOrder.has(field) ? Object.keys(item) : Object.keys(item).sort();
  return Object.fromEntries(names.map((name) => [name, sorted(item[name] ?? null, name)]));
}

/** The credentials that these things need, in order of their names. */
export function neededIn(
  kinds: Kinds,
  state: { readonly [Name in KindName]?: readonly Pick<Named, "name" | "item">[] },
): readonly Needed[] {
  const uses = kindNames.flatMap((kind) =>
    (state[kind] ?? []).flatMap(({ name, item }) =>
      (kinds[kind].credentials?.(item) ?? []).map((credential) => ({ credential, by: `${kind}/${name}` })),
    ),
  );
  return [...Map.groupBy(uses, ({ credential }) => credential)]
    .map(([name, all]) => ({ name, usedBy: [...new Set(all.map(({ by }) => by))].sort() }))
    .sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** Names of the tenant's own credentials: what a user has stored is that user's. */
export function storedIn({ credentials }: TenantConfig): ReadonlySet<string> {
  return new Set(credentials.flatMap(({ level, name }) => (level === "tenant" ? [name] : [])));
}
