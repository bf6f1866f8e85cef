/** Knowledge bases may be named by their ids, which mean nothing in another tenant. */
import type { Work } from "@toolyard/core/configuration/kind";
import { readEveryPage } from "@toolyard/core/every-page";
import type { JsonValue } from "@toolyard/core/json";

/** The name behind an id; whatever else is a name already. */
export async function baseNames({ core, context }: Work): Promise<(base: JsonValue) => JsonValue> {
  const bases = await readEveryPage((page) => core.repos.knowledge.listBases(context.tenant, page));
  const names = new Map<JsonValue, string>(bases.map(({ id, name }) => [id, name]));
  return (base) => names.get(base) ?? base;
}
