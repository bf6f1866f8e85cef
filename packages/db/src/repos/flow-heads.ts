/** What every request knows of a tenant's flows; the rest of their repository is read when it is needed. */
import { isJsonObject } from "@toolyard/core/json";
import type { FlowHead } from "@toolyard/core/ports/flows";
import type { Statement, StatementResult } from "../database.ts";
import type { OnBrokenRow } from "./rows.ts";

type Row = StatementResult["rows"][number];

/** Published ones, for the tenant's snapshot. */
export function selectFlowHeads(tenant: string): Statement {
  const sql = `SELECT f.id, f.tenant, f.name, f.enabled, f.latest, v.description, v.input, v.effect,
      (SELECT json_group_array(json_array(number, hash)) FROM
        (SELECT number, hash FROM flow_versions WHERE tenant = f.tenant AND flow_id = f.id ORDER BY number)) AS versions
    FROM flows AS f JOIN flow_versions AS v ON v.tenant = f.tenant AND v.flow_id = f.id AND v.number = f.latest
    WHERE f.tenant = ?1 ORDER BY f.id`;
  return { sql, args: [tenant] };
}

/** All that can be read; the rest is reported and left out. */
export function readFlowHeads(result: StatementResult | undefined, onBrokenRow: OnBrokenRow): readonly FlowHead[] {
  return (result?.rows ?? []).flatMap((row) => {
    try {
      return [toHead(row)];
    } catch {
      const reason = "input or versions: hold no JSON of their kind";
      onBrokenRow({ table: "flows", tenant: String(row["tenant"]), id: String(row["id"]), reason });
      return [];
    }
  });
}

function toHead(row: Row): FlowHead {
  const input: unknown = JSON.parse(String(row["input"]));
  if (!isJsonObject(input)) throw new TypeError("no schema");
  const versions = JSON.parse(String(row["versions"])) as readonly (readonly [number, string])[];
  return {
    id: String(row["id"]),
    name: String(row["name"]),
    enabled: row["enabled"] === 1,
    latest: Number(row["latest"]),
    description: String(row["description"]),
    input,
    effect: row["effect"] === "read" ? "read" : "write",
    versions: versions.map(([number, hash]) => ({ number, hash })),
  };
}
