/** Flows, their versions and hooks. Contract: `FlowRepo`. */
import { and, asc, desc, eq, getTableName, gt, lt } from "drizzle-orm";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type {
  FlowContent,
  FlowHook,
  FlowPlace,
  FlowRecord,
  FlowReference,
  FlowRepo,
  FlowVersion,
} from "@toolyard/core/ports/flows";
import { mostOf } from "@toolyard/core/ports/limits";
import * as z from "zod";
import type { Shards, StatementResult } from "../database.ts";
import { flowHooks } from "../schema/flow-hooks.ts";
import { flowVersions } from "../schema/flow-versions.ts";
import { flows } from "../schema/flows.ts";
import { build, readColumn, statement } from "../sql.ts";
import { now } from "./fragments.ts";
import {
  type OnBrokenRow,
  otherVersion,
  pageAfterNumber,
  raiseConfigVersion,
  type Reader,
  readFirst,
  readPage,
  readRows,
  type Row,
  selectPage,
} from "./rows.ts";

/** Each that is published is part of the tenant's snapshot. */
const mostFlows = mostOf.flows;
const mostVersions = 1_000;
const mostHooks = mostOf.flowHooks;

const insertFlow = `INSERT INTO flows (id, tenant, name, enabled, draft, draft_hash, draft_refs)
  SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7 WHERE (SELECT COUNT(*) FROM flows WHERE tenant = ?2) < ${mostFlows}
  ON CONFLICT DO NOTHING`;
const readFlow = "SELECT * FROM flows WHERE tenant = ?1 AND id = ?2";
const saveFlow = `UPDATE flows SET draft = COALESCE(?3, draft), draft_hash = COALESCE(?4, draft_hash),
    draft_refs = COALESCE(?5, draft_refs), enabled = COALESCE(?6, enabled), revision = revision + 1, updated_at = ${now}
  WHERE tenant = ?1 AND id = ?2 AND (?7 IS NULL OR revision = ?7) RETURNING *`;
/** As long as the flow is as it was read; the same definition again is the version that it is already. */
const insertVersion = `INSERT INTO flow_versions
    (tenant, flow_id, number, hash, definition, description, input, effect, refs, published_by)
  SELECT ?1, ?2, COALESCE(latest, 0) + 1, ?3, ?4, ?5, ?6, ?7, ?8, ?9 FROM flows
  WHERE tenant = ?1 AND id = ?2 AND revision = ?10 AND latest_hash IS NOT ?3 AND COALESCE(latest, 0) < ${mostVersions}`;
const noteVersion = `UPDATE flows SET latest = v.number, latest_hash = v.hash, revision = revision + 1, updated_at = ${now}
  FROM (SELECT number, hash FROM flow_versions WHERE tenant = ?1 AND flow_id = ?2 ORDER BY number DESC LIMIT 1) AS v
  WHERE tenant = ?1 AND id = ?2 AND latest IS NOT v.number`;
const deleteParts = ["flow_versions", "flow_hooks"].map(
  (table) => `DELETE FROM ${table} WHERE tenant = ?1 AND flow_id = ?2`,
);

const insertHook = `INSERT INTO flow_hooks (id, tenant, flow_id, name, enabled, role, token_hash, hint, sealed)
  SELECT ?1, ?2, ?3, ?4, 1, ?5, ?6, ?7, ?8 WHERE (?9 OR EXISTS (SELECT 1 FROM flows WHERE tenant = ?2 AND id = ?3))
    AND (SELECT COUNT(*) FROM flow_hooks WHERE tenant = ?2 AND flow_id = ?3) < ${mostHooks}
  ON CONFLICT DO NOTHING`;
const saveHook = `UPDATE flow_hooks SET enabled = COALESCE(?4, enabled), token_hash = COALESCE(?5, token_hash),
    hint = COALESCE(?6, hint), sealed = COALESCE(?7, iif(sealed IS NULL, NULL, ?8), sealed), updated_at = ${now}
  WHERE tenant = ?1 AND flow_id = ?2 AND id = ?3 RETURNING *`;
const useHook = `UPDATE flow_hooks SET last_used_at = ${now} WHERE tenant = ?1 AND flow_id = ?2 AND token_hash = ?3`;
/** A flow without a row is a shipped one, and its id is its name: those of others go with their flow. */
const openHook = `SELECT h.*, COALESCE(f.name, h.flow_id) AS flow_name, t.wrapped_key, t.config_version FROM flow_hooks AS h
    LEFT JOIN flows AS f ON f.tenant = h.tenant AND f.id = h.flow_id JOIN tenants AS t ON t.id = h.tenant
  WHERE h.tenant = ?1 AND h.flow_id = ?2 AND h.token_hash = ?3`;
const hasFlow = "SELECT 1 FROM flows WHERE tenant = ?1 AND id = ?2";

const readonly = { readonly: true } as const;

const refsSchema: z.ZodType<readonly FlowReference[]> = z.array(z.object({ field: z.string(), value: z.string() }));

function placeOf(row: Row): FlowPlace {
  return {
    id: String(row["id"]),
    name: String(row["name"]),
    version: row["version"] === null ? null : Number(row["version"]),
  };
}

export function createFlowRepo(shards: Shards, onBrokenRow: OnBrokenRow): FlowRepo {
  const reader: Reader<typeof flows, FlowRecord> = {
    table: flows,
    tableName: getTableName(flows),
    key: flows.id,
    onBrokenRow,
    toRecord: ({ tenant: _tenant, draftRefs: _refs, ...flow }) => flow,
  };
  const refsReader: Reader<typeof flows, FlowPlace & { readonly refs: readonly FlowReference[] }> = {
    ...reader,
    toRecord: (_flow, row) => ({
      ...placeOf(row),
      refs: readColumn("refs", () => refsSchema.parse(JSON.parse(String(row["refs"])))),
    }),
  };
  const versionReader: Reader<typeof flowVersions, FlowVersion & { readonly definition: string }> = {
    table: flowVersions,
    tableName: getTableName(flowVersions),
    key: flowVersions.number,
    prefix: "ver",
    onBrokenRow,
    toRecord: ({ number, hash, description, definition, publishedBy, publishedAt }) => ({
      number,
      hash,
      description,
      definition,
      publishedBy,
      publishedAt,
    }),
  };
  const hookReader: Reader<typeof flowHooks, FlowHook & { readonly sealed: string | null }> = {
    table: flowHooks,
    tableName: getTableName(flowHooks),
    key: flowHooks.id,
    onBrokenRow,
    toRecord: ({ tenant: _tenant, tokenHash: _hash, ...hook }) => ({ ...hook, signed: hook.sealed !== null }),
  };
  return {
    create: async (tenant, { id, name, enabled, ...draft }) => {
      const args = [id, tenant, name, enabled ? 1 : 0, ...contentOf(draft)];
      const [, found, counted] = await shards.databaseFor(tenant).batch(
        [
          { sql: insertFlow, args },
          { sql: readFlow, args: [tenant, id] },
          { sql: "SELECT COUNT(*) AS count FROM flows WHERE tenant = ?1", args: [tenant] },
        ],
        { repeatable: true },
      );
      const created = readFirst(reader, found);
      if (created !== undefined) return created;
      throw Number(counted?.rows[0]?.["count"]) >= mostFlows
        ? tooMany(`A tenant has at most ${mostFlows} flows`)
        : new GatewayError("conflict", `There is a flow '${name}' already; change it, or take another name.`, {
            param: "definition.name",
          });
    },

    get: async (tenant, id) => {
      const [found] = await shards.databaseFor(tenant).batch([{ sql: readFlow, args: [tenant, id] }], readonly);
      return readFirst(reader, found);
    },

    list: async (tenant, page) => {
      const [found] = await shards
        .databaseFor(tenant)
        .batch([selectPage(reader, eq(flows.tenant, tenant), page)], readonly);
      return readPage(reader, found, page);
    },

    update: async (tenant, id, { draft, enabled }, expectedRevision) => {
      const content = draft === undefined ? [null, null, null] : contentOf(draft);
      const args = [tenant, id, ...content, enabled === undefined ? null : Number(enabled), expectedRevision ?? null];
      const raise = enabled === undefined ? [] : [raiseConfigVersion(tenant)];
      const results = await shards
        .databaseFor(tenant)
        .batch([{ sql: saveFlow, args }, ...raise, { sql: readFlow, args: [tenant, id] }]);
      const record = readFirst(reader, results[0]);
      refuseOther(record, results.at(-1), expectedRevision);
      return record;
    },

    publish: async (tenant, id, { revision, ...version }) => {
      const { hash, definition, description, input, effect, refs, publishedBy } = version;
      const content = [hash, definition, description, JSON.stringify(input), effect, JSON.stringify(refs)];
      const [, , , found] = await shards
        .databaseFor(tenant)
        .batch(
          [
            { sql: insertVersion, args: [tenant, id, ...content, publishedBy, revision] },
            { sql: noteVersion, args: [tenant, id] },
            raiseConfigVersion(tenant),
            { sql: readFlow, args: [tenant, id] },
          ],
          { repeatable: true },
        );
      const record = readFirst(reader, found);
      if (record === undefined || record.latestHash === hash) return record;
      if ((record.latest ?? 0) >= mostVersions) throw tooMany(`A flow has at most ${mostVersions} versions`);
      throw otherVersion("flow", record.revision, revision);
    },

    versions: async (tenant, id, page) => {
      const { after, order, limit } = pageAfterNumber(page, "ver");
      const { number } = flowVersions;
      const beyond = after === undefined ? undefined : order === "asc" ? gt(number, after) : lt(number, after);
      const select = build
        .select()
        .from(flowVersions)
        .where(and(eq(flowVersions.tenant, tenant), eq(flowVersions.flowId, id), beyond))
        .orderBy(order === "asc" ? asc(number) : desc(number))
        .limit(limit + 1);
      const [found, flow] = await shards
        .databaseFor(tenant)
        .batch([statement(select), { sql: hasFlow, args: [tenant, id] }], readonly);
      return flow?.rows.length === 0 ? undefined : readPage(versionReader, found, page);
    },

    version: async (tenant, id, number) => {
      const sql = "SELECT * FROM flow_versions WHERE tenant = ?1 AND flow_id = ?2 AND number = ?3";
      const [found] = await shards.databaseFor(tenant).batch([{ sql, args: [tenant, id, number] }], readonly);
      return readFirst(versionReader, found);
    },

    definition: async (tenant, hash) => {
      const sql = "SELECT definition FROM flow_versions WHERE tenant = ?1 AND hash = ?2 LIMIT 1";
      const [found] = await shards.databaseFor(tenant).batch([{ sql, args: [tenant, hash] }], readonly);
      const text = found?.rows[0]?.["definition"];
      return typeof text === "string" ? text : undefined;
    },

    references: async (tenant) => {
      const sql = `SELECT id, tenant, name, NULL AS version, draft_refs AS refs FROM flows WHERE tenant = ?1
        UNION ALL SELECT v.flow_id, v.tenant, f.name, v.number, v.refs FROM flow_versions AS v
          JOIN flows AS f ON f.tenant = v.tenant AND f.id = v.flow_id WHERE v.tenant = ?1 AND v.refs <> '[]'
        ORDER BY 1, 4 DESC`;
      const [found] = await shards.databaseFor(tenant).batch([{ sql, args: [tenant] }], readonly);
      const rows = found?.rows ?? [];
      const { data, unreadable = [] } = readRows(refsReader, rows);
      return {
        data,
        unreadable: unreadable.flatMap(({ at, message }) =>
          rows.slice(at, at + 1).map((row) => ({ ...placeOf(row), message })),
        ),
      };
    },

    delete: async (tenant, id) => {
      const [deleted] = await shards
        .databaseFor(tenant)
        .batch([
          { sql: "DELETE FROM flows WHERE tenant = ?1 AND id = ?2", args: [tenant, id] },
          raiseConfigVersion(tenant),
          ...deleteParts.map((sql) => ({ sql, args: [tenant, id] })),
        ]);
      return (deleted?.changes ?? 0) > 0;
    },

    createHook: async (tenant, { id, flowId, isShipped, name, role, tokenHash, hint, sealed }) => {
      const [, found, flow] = await shards.databaseFor(tenant).batch(
        [
          { sql: insertHook, args: [id, tenant, flowId, name, role, tokenHash, hint, sealed, isShipped ? 1 : 0] },
          { sql: "SELECT * FROM flow_hooks WHERE tenant = ?1 AND id = ?2", args: [tenant, id] },
          { sql: hasFlow, args: [tenant, flowId] },
        ],
        { repeatable: true },
      );
      const hook = readFirst(hookReader, found);
      if (hook === undefined && (isShipped || flow?.rows.length === 1))
        throw tooMany(`A flow has at most ${mostHooks} hooks`);
      return hook;
    },

    listHooks: async (tenant, { flowId, isShipped }, page) => {
      const where = and(eq(flowHooks.tenant, tenant), eq(flowHooks.flowId, flowId));
      const [found, flow] = await shards
        .databaseFor(tenant)
        .batch([selectPage(hookReader, where, page), { sql: hasFlow, args: [tenant, flowId] }], readonly);
      return flow?.rows.length === 0 && !isShipped ? undefined : readPage(hookReader, found, page);
    },

    updateHook: async (tenant, flowId, id, { enabled, token, sealed, resealed }) => {
      const change = [enabled === undefined ? null : Number(enabled), token?.tokenHash ?? null, token?.hint ?? null];
      const [updated] = await shards
        .databaseFor(tenant)
        .batch([{ sql: saveHook, args: [tenant, flowId, id, ...change, sealed ?? null, resealed ?? null] }], {
          repeatable: true,
        });
      return readFirst(hookReader, updated);
    },

    deleteHook: async (tenant, flowId, id) => {
      const sql = "DELETE FROM flow_hooks WHERE tenant = ?1 AND flow_id = ?2 AND id = ?3";
      const [deleted] = await shards.databaseFor(tenant).batch([{ sql, args: [tenant, flowId, id] }]);
      return (deleted?.changes ?? 0) > 0;
    },

    openHook: async (tenant, flowId, tokenHash) => {
      const args = [tenant, flowId, tokenHash];
      const [, found] = await shards.databaseFor(tenant).batch(
        [
          { sql: useHook, args },
          { sql: openHook, args },
        ],
        { repeatable: true },
      );
      const hook = readFirst(hookReader, found);
      const row = found?.rows[0];
      if (hook === undefined || row === undefined) return undefined;
      return {
        ...hook,
        flowName: String(row["flow_name"]),
        wrappedKey: String(row["wrapped_key"]),
        configVersion: Number(row["config_version"]),
      };
    },
  };
}

function contentOf({ definition, hash, refs }: FlowContent): readonly string[] {
  return [definition, hash, JSON.stringify(refs)];
}

function refuseOther(
  record: FlowRecord | undefined,
  found: StatementResult | undefined,
  expected: number | undefined,
): void {
  const revision = found?.rows[0]?.["revision"];
  if (record === undefined && revision !== undefined) throw otherVersion("flow", Number(revision), expected);
}

function tooMany(problem: string): GatewayError {
  return new GatewayError("conflict", `${problem}; delete one first.`);
}
