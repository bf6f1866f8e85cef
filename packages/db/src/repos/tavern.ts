/** Presets, world books and characters. Contract: `TavernRepo`. */
import { tavernKinds, type TavernEntry, type TavernItem, type TavernRepo } from "@toolyard/core/ports/tavern";
import { mostOf } from "@toolyard/core/ports/limits";
import type { Shards, Statement, StatementResult } from "../database.ts";
import { raiseConfigVersion, type OnBrokenRow } from "./rows.ts";

/** Each is part of the tenant's snapshot. */
const mostItems = mostOf.tavernItems;

const entryColumns = "id, tenant, kind, name, hash, length(CAST(content AS BLOB)) AS bytes, created_at, updated_at";

type Row = StatementResult["rows"][number];

/** All of a tenant without their contents, for its snapshot. */
export function selectTavernEntries(tenant: string): Statement {
  return { sql: `SELECT ${entryColumns} FROM tavern_items WHERE tenant = ?1 ORDER BY id`, args: [tenant] };
}

/** All that can be read; the rest is reported and left out. */
export function readTavernEntries(
  result: StatementResult | undefined,
  onBrokenRow: OnBrokenRow,
): readonly TavernEntry[] {
  return (result?.rows ?? []).flatMap((row) => {
    const entry = toEntry(row);
    if (entry !== undefined) return [entry];
    const reason = "kind: is not known";
    onBrokenRow({ table: "tavern_items", tenant: String(row["tenant"]), id: String(row["id"]), reason });
    return [];
  });
}

function toEntry(row: Row): TavernEntry | undefined {
  const kind = tavernKinds.find((known) => known === row["kind"]);
  if (kind === undefined) return undefined;
  return {
    id: String(row["id"]),
    kind,
    name: String(row["name"]),
    hash: String(row["hash"]),
    bytes: Number(row["bytes"]),
    createdAt: Number(row["created_at"]),
    updatedAt: Number(row["updated_at"]),
  };
}

export function createTavernRepo(shards: Shards): TavernRepo {
  return {
    put: async (tenant, { id, kind, name, hash, content }) => {
      const [, , found] = await shards
        .databaseFor(tenant)
        .batch(
          [
            { sql: upsert, args: [id, tenant, kind, name, hash, content] },
            raiseConfigVersion(tenant),
            { sql: `SELECT ${entryColumns} ${own}`, args: [tenant, kind, name] },
          ],
          { repeatable: true },
        );
      const row = found?.rows[0];
      return row === undefined ? undefined : toEntry(row);
    },

    contents: async (tenant, ids) => {
      const sql = `SELECT ${entryColumns}, content FROM tavern_items
        WHERE tenant = ?1 AND id IN (SELECT value FROM json_each(?2))`;
      const [found] = await shards
        .databaseFor(tenant)
        .batch([{ sql, args: [tenant, JSON.stringify(ids)] }], { readonly: true });
      return (found?.rows ?? []).flatMap((row): TavernItem[] => {
        const entry = toEntry(row);
        return entry === undefined ? [] : [{ ...entry, content: String(row["content"]) }];
      });
    },

    delete: async (tenant, kind, name) => {
      const [deleted] = await shards
        .databaseFor(tenant)
        .batch([{ sql: `DELETE ${own}`, args: [tenant, kind, name] }, raiseConfigVersion(tenant)]);
      return (deleted?.changes ?? 0) > 0;
    },
  };
}

const own = "FROM tavern_items WHERE tenant = ?1 AND kind = ?2 AND name = ?3";

/** What is written as it was changes nothing, so that it raises no version. */
const upsert = `INSERT INTO tavern_items (id, tenant, kind, name, hash, content)
  SELECT ?1, ?2, ?3, ?4, ?5, ?6
  WHERE EXISTS (SELECT 1 FROM tavern_items WHERE tenant = ?2 AND kind = ?3 AND name = ?4)
    OR (SELECT COUNT(*) FROM tavern_items WHERE tenant = ?2) < ${mostItems}
  ON CONFLICT (tenant, kind, name) DO UPDATE SET hash = excluded.hash, content = excluded.content,
    updated_at = cast(unixepoch('subsec') * 1000 as integer)
  WHERE tavern_items.hash <> excluded.hash`;
