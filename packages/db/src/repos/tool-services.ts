/** Tool services of a tenant. Contract: `ToolServiceRepo`. */
import { and, asc, eq, getTableName, sql, type SQL } from "drizzle-orm";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { ToolServiceRepo } from "@toolyard/core/ports/tool-services";
import type { ToolService, ToolServiceChange } from "@toolyard/core/services/service";
import { isToolScheme } from "@toolyard/core/tools/uri";
import { mostOf } from "@toolyard/core/ports/limits";
import { nowMs } from "../columns.ts";
import type { Shards, Statement } from "../database.ts";
import { toolServices } from "../schema/tool-services.ts";
import { build, statement } from "../sql.ts";
import { forgetBreaker } from "./breakers.ts";
import {
  type OnBrokenRow,
  otherVersion,
  raiseConfigVersion,
  type Reader,
  readFirst,
  readPage,
  selectPage,
} from "./rows.ts";

/** Each is part of the tenant's snapshot. */
const mostServices = mostOf.services;

export function toolServiceReader(onBrokenRow: OnBrokenRow): Reader<typeof toolServices, ToolService> {
  return {
    table: toolServices,
    tableName: getTableName(toolServices),
    key: toolServices.id,
    onBrokenRow,
    toRecord: ({ tenant: _tenant, scheme, ...service }) => {
      if (!isToolScheme(scheme)) throw new TypeError("unknown scheme");
      return { ...service, scheme };
    },
  };
}

/** All of a tenant, for its snapshot. */
export function selectToolServices(tenant: string): Statement {
  return statement(
    build.select().from(toolServices).where(eq(toolServices.tenant, tenant)).orderBy(asc(toolServices.id)),
  );
}

export function createToolServiceRepo(shards: Shards, onBrokenRow: OnBrokenRow): ToolServiceRepo {
  const reader = toolServiceReader(onBrokenRow);
  return {
    create: async (tenant, service) => {
      const args = [
        service.id,
        tenant,
        service.scheme,
        service.serviceId,
        service.displayName,
        service.description,
        JSON.stringify(service.config),
        service.enabled ? 1 : 0,
      ];
      const [, , found, counted] = await shards
        .databaseFor(tenant)
        .batch(
          [
            { sql: insertService, args },
            raiseConfigVersion(tenant),
            statement(build.select().from(toolServices).where(own(tenant, service.id))),
            { sql: "SELECT COUNT(*) AS services FROM tool_services WHERE tenant = ?1", args: [tenant] },
          ],
          { repeatable: true },
        );
      const created = readFirst(reader, found);
      if (created !== undefined) return created;
      throw Number(counted?.rows[0]?.["services"]) >= mostServices ? tooMany() : idTaken(service);
    },

    update: async (tenant, id, change, expectedVersion) => {
      const expected = expectedVersion === undefined ? undefined : eq(toolServices.version, expectedVersion);
      const update = build
        .update(toolServices)
        .set({ ...columnsOf(change), version: sql`${toolServices.version} + 1`, updatedAt: nowMs })
        .where(and(own(tenant, id), expected))
        .returning();
      const present = build.select({ version: toolServices.version }).from(toolServices).where(own(tenant, id));
      const [updated, , found] = await shards
        .databaseFor(tenant)
        .batch([statement(update), raiseConfigVersion(tenant), statement(present), forgetBreaker(tenant, id)]);
      const record = readFirst(reader, updated);
      const version = found?.rows[0]?.["version"];
      if (record === undefined && version !== undefined)
        throw otherVersion("tool service", Number(version), expectedVersion);
      return record;
    },

    get: async (tenant, id) => {
      const [found] = await shards
        .databaseFor(tenant)
        .batch([statement(build.select().from(toolServices).where(own(tenant, id)))], { readonly: true });
      return readFirst(reader, found);
    },

    list: async (tenant, { scheme, ...page }) => {
      const ofScheme = scheme === undefined ? undefined : eq(toolServices.scheme, scheme);
      const [found] = await shards
        .databaseFor(tenant)
        .batch([selectPage(reader, and(eq(toolServices.tenant, tenant), ofScheme), page)], { readonly: true });
      return readPage(reader, found, page);
    },

    delete: async (tenant, id) => {
      const [deleted] = await shards
        .databaseFor(tenant)
        .batch([
          statement(build.delete(toolServices).where(own(tenant, id))),
          raiseConfigVersion(tenant),
          forgetBreaker(tenant, id),
        ]);
      return (deleted?.changes ?? 0) > 0;
    },

    callsUnderWay: async (tenant, uri) => {
      const args = [tenant, uri, `${uri}/`];
      const [found] = await shards.databaseFor(tenant).batch([{ sql: selectUnderWay, args }], { readonly: true });
      return (found?.rows ?? []).map(({ id, tool, state }) => ({
        id: String(id),
        tool: String(tool),
        state: String(state),
      }));
    },

    saveDiscovered: async (tenant, id, version, discovered) => {
      const update = build
        .update(toolServices)
        .set({ discovered, updatedAt: nowMs })
        .where(and(own(tenant, id), eq(toolServices.version, version)));
      await shards.databaseFor(tenant).batch([statement(update), raiseConfigVersion(tenant)], { repeatable: true });
    },
  };
}

const insertService = `INSERT INTO tool_services
    (id, tenant, scheme, service_id, display_name, description, config, enabled)
  SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8
  WHERE (SELECT COUNT(*) FROM tool_services WHERE tenant = ?2) < ${mostServices}
  ON CONFLICT DO NOTHING`;

/**
 * Each of the states has an index of its own, which must be named: SQLite would rather go through all calls of the
 * tenant in the order asked for. Not by LIKE: an id may hold what it takes for wildcards.
 */
const selectUnderWay = `SELECT id, tool, state FROM (${[
  ["queued", "calls_due"],
  ["running", "calls_running"],
  ["input_required", "calls_waiting"],
]
  .map(
    ([state, index]) => `SELECT id, tool, state FROM calls INDEXED BY ${index}
      WHERE tenant = ?1 AND state = '${state}' AND (uri = ?2 OR substr(uri, 1, length(?3)) = ?3)`,
  )
  .join(" UNION ALL ")}) ORDER BY id LIMIT 100`;

type Columns = { -readonly [Field in keyof ToolServiceChange]: ToolServiceChange[Field] };

/** Only what is given. */
function columnsOf({ displayName, description, config, enabled }: ToolServiceChange): Columns {
  return {
    ...(displayName === undefined ? {} : { displayName }),
    ...(description === undefined ? {} : { description }),
    ...(config === undefined ? {} : { config }),
    ...(enabled === undefined ? {} : { enabled }),
  };
}

function own(tenant: string, id: string): SQL | undefined {
  return and(eq(toolServices.tenant, tenant), eq(toolServices.id, id));
}

function idTaken({ scheme, serviceId }: Pick<ToolService, "scheme" | "serviceId">): GatewayError {
  return new GatewayError(
    "conflict",
    `There is an ${scheme} service '${serviceId}' already; take another 'service_id', or change that one.`,
    { param: "service_id" },
  );
}

function tooMany(): GatewayError {
  return new GatewayError("conflict", `A tenant has at most ${mostServices} tool services; delete one first.`, {
    param: "service_id",
  });
}
