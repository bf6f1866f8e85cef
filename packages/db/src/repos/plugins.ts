/** Rows of `sys_ai_plugin` (BLIND-4): a tenant's own, and to read also the global NATIVE ones. */
import { and, eq, getTableName, isNull, ne, notExists, or, sql, type InferSelectModel, type SQL } from "drizzle-orm";
import { alias } from "drizzle-orm/sqlite-core";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { PluginRecord } from "@toolyard/core/blind/plugin";
import type { NewPlugin, PluginChanges, PluginRepo } from "@toolyard/core/ports/plugins";
import { mostOf } from "@toolyard/core/ports/limits";
import { nowMs } from "../columns.ts";
import type { Shards, Statement } from "../database.ts";
import { sysAiPlugin } from "../schema/sys-ai-plugin.ts";
import { build, statement } from "../sql.ts";
import {
  pageAfterNumber,
  raiseConfigVersion,
  readFirst,
  readPage,
  selectPage,
  type OnBrokenRow,
  type Reader,
} from "./rows.ts";

/** Each is part of the tenant's snapshot; a few of the largest documents there are to import. */
const mostPlugins = mostOf.plugins;

export type PluginReader = Reader<typeof sysAiPlugin, PluginRecord>;

export function pluginReader(onBrokenRow: OnBrokenRow): PluginReader {
  return {
    table: sysAiPlugin,
    tableName: getTableName(sysAiPlugin),
    key: sysAiPlugin.pluginId,
    prefix: "plg",
    onBrokenRow,
    toRecord: ({ tenant: _tenant, status, ...plugin }) => ({ ...plugin, enabled: status === "0" }),
  };
}

export function createPluginRepo(shards: Shards, onBrokenRow: OnBrokenRow): PluginRepo {
  const reader = pluginReader(onBrokenRow);
  return {
    create: async (tenant, plugin) => {
      const hasRoom = roomFor(tenant, { create: [plugin], update: [], delete: [] });
      const [created, , found] = await shards
        .databaseFor(tenant)
        .batch([
          statement(sql`${insertRows(tenant, [JSON.stringify(driverValues(plugin))], hasRoom)} RETURNING *`),
          raiseConfigVersion(tenant),
          selectNamed(tenant, [plugin.name]),
        ]);
      const record = readFirst(reader, created);
      if (record !== undefined) return record;
      throw found?.rows.length === 0 ? tooMany(1) : nameTaken(plugin.name);
    },

    update: async (tenant, pluginId, plugin) => {
      const other = alias(sysAiPlugin, "other");
      const namesake = build
        .select({ found: sql`1` })
        .from(other)
        .where(and(eq(other.tenant, tenant), eq(other.name, plugin.name), ne(other.pluginId, pluginId)));
      const change = build
        .update(sysAiPlugin)
        .set({ ...columnsOf(plugin), updatedAt: nowMs })
        .where(and(own(tenant, pluginId), notExists(namesake)))
        .returning();
      const present = build.select({ pluginId: sysAiPlugin.pluginId }).from(sysAiPlugin).where(own(tenant, pluginId));
      const [updated, , found] = await shards
        .databaseFor(tenant)
        .batch([statement(change), raiseConfigVersion(tenant), statement(present)], { repeatable: true });
      const record = readFirst(reader, updated);
      if (record === undefined && (found?.rows.length ?? 0) > 0) throw nameTaken(plugin.name);
      return record;
    },

    setEnabled: async (tenant, pluginId, enabled) => {
      const change = build
        .update(sysAiPlugin)
        .set({ status: enabled ? "0" : "1", updatedAt: nowMs })
        .where(own(tenant, pluginId))
        .returning();
      const [updated] = await shards
        .databaseFor(tenant)
        .batch([statement(change), raiseConfigVersion(tenant)], { repeatable: true });
      return readFirst(reader, updated);
    },

    get: async (tenant, pluginId) => {
      const visible = and(visibleTo(tenant), eq(sysAiPlugin.pluginId, pluginId));
      const [found] = await shards
        .databaseFor(tenant)
        .batch([statement(build.select().from(sysAiPlugin).where(visible))], { readonly: true });
      return readFirst(reader, found);
    },

    list: async (tenant, page) => {
      const [found] = await shards
        .databaseFor(tenant)
        .batch([selectPage(reader, visibleTo(tenant), pageAfterNumber(page, "plg"))], { readonly: true });
      return readPage(reader, found, page);
    },

    delete: async (tenant, pluginId) => {
      const [deleted] = await shards
        .databaseFor(tenant)
        .batch([statement(build.delete(sysAiPlugin).where(own(tenant, pluginId))), raiseConfigVersion(tenant)]);
      return (deleted?.changes ?? 0) > 0;
    },

    upsertMany: async (tenant, changes) => {
      const ids = new Map<string, number>();
      const hasRoom = roomFor(tenant, changes);
      for (const part of toParts(changes)) {
        const statements = changeStatements(tenant, part, hasRoom);
        const results = await shards.databaseFor(tenant).batch(statements, { repeatable: true });
        const hashes = new Map(
          part.flatMap(({ plugin }) => (plugin === undefined ? [] : [[plugin.name, plugin.hash]])),
        );
        if (results[0]?.rows[0]?.["room"] !== 1) throw tooMany(changes.create.length);
        for (const row of results.at(-1)?.rows ?? []) {
          const name = String(row["name"]);
          if (hashes.get(name) === row["hash"]) ids.set(name, Number(row["plugin_id"]));
        }
      }
      return ids;
    },

    mirrorNative: async (plugins) => {
      const statements = mirrorStatements(plugins);
      await Promise.all(shards.all().map((database) => database.batch(statements, { repeatable: true })));
    },
  };
}

/** Rows of one batch, and characters of text in it. */
const mostRows = 250;
const mostText = 1_048_576;

/** One row of a change as JSON, so that a batch is a few statements whatever its size. */
interface Entry {
  readonly list: "create" | "update" | "delete";
  readonly text: string;
  /** What the row is to be. */
  readonly plugin?: NewPlugin;
}

function* toParts(changes: PluginChanges): Generator<readonly Entry[]> {
  let part: Entry[] = [];
  let length = 0;
  for (const entry of toEntries(changes)) {
    if (part.length === mostRows || (part.length > 0 && length + entry.text.length > mostText)) {
      yield part;
      part = [];
      length = 0;
    }
    part.push(entry);
    length += entry.text.length;
  }
  if (part.length > 0) yield part;
}

function* toEntries(changes: PluginChanges): Generator<Entry> {
  for (const pluginId of changes.delete) yield { list: "delete", text: JSON.stringify(pluginId) };
  for (const { pluginId, expectedHash, plugin } of changes.update) {
    const row = { ...driverValues(plugin), plugin_id: pluginId, expected_hash: expectedHash };
    yield { list: "update", text: JSON.stringify(row), plugin };
  }
  for (const plugin of changes.create) yield { list: "create", text: JSON.stringify(driverValues(plugin)), plugin };
}

/** Columns that a plugin fills, by their names in the table. */
const written = (
  [
    "name",
    "title",
    "description",
    "iconUrl",
    "type",
    "parameterSchema",
    "executionConfig",
    "status",
    "requiredCredentials",
    "sensitive",
    "roles",
    "hash",
  ] as const
).map((key) => ({ key, column: sysAiPlugin[key] }));

function driverValues(plugin: NewPlugin): Record<string, unknown> {
  const values = columnsOf(plugin);
  return Object.fromEntries(
    written.map(({ key, column }) => {
      const value = values[key];
      return [column.name, value === null ? null : column.mapToDriverValue(value)];
    }),
  );
}

const names = written.map(({ column }) => column.name);

/** Of the row in `j`. */
const read = (name: string): SQL => sql.raw(`j.value ->> '$.${name}'`);

const toJsonArray = (texts: readonly string[]): string => `[${texts.join(",")}]`;

/** Whether a whole change fits, asked with each part of it: so it is also true of a part that is sent again. */
function roomFor(tenant: string, changes: PluginChanges): SQL {
  if (changes.create.length === 0) return sql`1`;
  const others = sql`had.plugin_id NOT IN (SELECT value FROM json_each(${JSON.stringify(changes.delete)}))
    AND had.name NOT IN (SELECT value FROM json_each(${JSON.stringify(changes.create.map(({ name }) => name))}))`;
  return sql`(SELECT COUNT(*) FROM ${sysAiPlugin} AS had WHERE had.tenant = ${tenant} AND ${others}) + ${changes.create.length} <= ${mostPlugins}`;
}

function insertRows(tenant: string, rows: readonly string[], hasRoom: SQL): SQL {
  const columns = sql.join([sql.identifier("tenant"), ...names.map((name) => sql.identifier(name))], sql`, `);
  return sql`INSERT INTO ${sysAiPlugin} (${columns})
    SELECT ${sql.join([sql`${tenant}`, ...names.map(read)], sql`, `)} FROM json_each(${toJsonArray(rows)}) AS j
    WHERE ${hasRoom} ON CONFLICT DO NOTHING`;
}

/** What the rows of these names are now. */
function selectNamed(tenant: string, wanted: readonly string[]): Statement {
  const isWanted = sql`${sysAiPlugin.name} IN (SELECT value FROM json_each(${JSON.stringify(wanted)}))`;
  return statement(
    build
      .select({ plugin_id: sysAiPlugin.pluginId, name: sysAiPlugin.name, hash: sysAiPlugin.hash })
      .from(sysAiPlugin)
      .where(and(eq(sysAiPlugin.tenant, tenant), isWanted)),
  );
}

/** The first statement tells whether there is room for all, without which none changes anything; the last, what the rows of these names are now. */
function changeStatements(tenant: string, entries: readonly Entry[], hasRoom: SQL): readonly Statement[] {
  const listOf = (list: Entry["list"]): readonly string[] =>
    entries.flatMap((entry) => (entry.list === list ? [entry.text] : []));
  const [updated, deleted] = [toJsonArray(listOf("update")), toJsonArray(listOf("delete"))];
  const sets = [...names.filter((name) => name !== "name" && name !== "status"), "updated_at"].map(
    (name) => sql`${sql.identifier(name)} = ${name === "updated_at" ? nowMs : read(name)}`,
  );
  return [
    statement(sql`SELECT ${hasRoom} AS room`),
    statement(
      sql`DELETE FROM ${sysAiPlugin} WHERE ${sysAiPlugin.tenant} = ${tenant} AND ${sysAiPlugin.pluginId} IN (SELECT value FROM json_each(${deleted})) AND ${hasRoom}`,
    ),
    raiseConfigVersion(tenant),
    statement(sql`UPDATE ${sysAiPlugin} SET ${sql.join(sets, sql`, `)} FROM json_each(${updated}) AS j
      WHERE ${sysAiPlugin.tenant} = ${tenant} AND ${sysAiPlugin.pluginId} = ${read("plugin_id")} AND ${sysAiPlugin.hash} = ${read("expected_hash")} AND ${hasRoom}`),
    raiseConfigVersion(tenant),
    statement(insertRows(tenant, listOf("create"), hasRoom)),
    raiseConfigVersion(tenant),
    selectNamed(
      tenant,
      entries.flatMap(({ plugin }) => (plugin === undefined ? [] : [plugin.name])),
    ),
  ];
}

/** Rows of tools that this release no longer has go; the others keep their ids. */
function mirrorStatements(plugins: readonly NewPlugin[]): readonly Statement[] {
  const names = sql.join(
    plugins.map(({ name }) => sql`${name}`),
    sql`, `,
  );
  const gone = and(isNull(sysAiPlugin.tenant), sql`${sysAiPlugin.name} NOT IN (${names})`);
  return [
    statement(build.delete(sysAiPlugin).where(gone)),
    ...plugins.map((plugin) =>
      statement(
        build
          .insert(sysAiPlugin)
          .values({ ...columnsOf(plugin), type: "NATIVE", tenant: null })
          .onConflictDoUpdate({
            target: sysAiPlugin.name,
            targetWhere: isNull(sysAiPlugin.tenant),
            set: { ...columnsOf(plugin), type: "NATIVE", updatedAt: nowMs },
            setWhere: ne(sysAiPlugin.hash, plugin.hash),
          }),
      ),
    ),
  ];
}

function columnsOf({
  enabled,
  requiredCredentials,
  roles,
  ...plugin
}: NewPlugin): Omit<InferSelectModel<typeof sysAiPlugin>, "pluginId" | "tenant" | "createdAt" | "updatedAt"> {
  return {
    ...plugin,
    requiredCredentials: [...requiredCredentials],
    roles: [...roles],
    status: enabled ? "0" : "1",
  };
}

function own(tenant: string, pluginId: number): SQL | undefined {
  return and(eq(sysAiPlugin.tenant, tenant), eq(sysAiPlugin.pluginId, pluginId));
}

function visibleTo(tenant: string): SQL | undefined {
  return or(eq(sysAiPlugin.tenant, tenant), isNull(sysAiPlugin.tenant));
}

function nameTaken(name: string): GatewayError {
  return new GatewayError("conflict", `There is a plugin '${name}' already; take another name, or change that one.`, {
    param: "name",
  });
}

function tooMany(wanted: number): GatewayError {
  const room = wanted === 1 ? "" : ` and no room for ${wanted} more`;
  return new GatewayError("conflict", `A tenant has at most ${mostPlugins} plugins${room}; delete some first.`, {
    param: "name",
    extra: { limit: mostPlugins },
  });
}
