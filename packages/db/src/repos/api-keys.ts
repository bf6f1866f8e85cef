/** API keys of a tenant. Keys are proved in `admit`, from their hash; here they are managed. */
import { and, eq, getTableName, sql } from "drizzle-orm";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { ApiKey, ApiKeyRepo } from "@toolyard/core/ports/api-keys";
import { nowMs } from "../columns.ts";
import type { Shards, Statement } from "../database.ts";
import { apiKeys } from "../schema/api-keys.ts";
import { build, statement } from "../sql.ts";
import { endConnections } from "./live-connections.ts";
import { readFirst, readPage, selectPage, type OnBrokenRow, type Reader } from "./rows.ts";

export function createApiKeyRepo(shards: Shards, onBrokenRow: OnBrokenRow): ApiKeyRepo {
  const reader: Reader<typeof apiKeys, ApiKey> = {
    table: apiKeys,
    tableName: getTableName(apiKeys),
    key: apiKeys.id,
    onBrokenRow,
    toRecord: ({ tenant: _tenant, hash: _hash, ...key }) => key,
  };
  const select = (tenant: string, id: string): Statement =>
    statement(
      build
        .select()
        .from(apiKeys)
        .where(and(eq(apiKeys.tenant, tenant), eq(apiKeys.id, id))),
    );
  return {
    create: async (tenant, key) => {
      const values = { ...key, tenant, scopes: [...key.scopes], tools: key.tools === null ? null : [...key.tools] };
      const [, found] = await shards.databaseFor(tenant).batch(
        [
          statement(build.insert(apiKeys).values(values).onConflictDoNothing()),
          statement(
            build
              .select()
              .from(apiKeys)
              .where(and(eq(apiKeys.tenant, tenant), eq(apiKeys.id, key.id), eq(apiKeys.hash, key.hash))),
          ),
        ],
        { repeatable: true },
      );
      const created = readFirst(reader, found);
      if (created === undefined)
        throw new GatewayError("conflict", `There is a key '${key.id}' already.`, { param: "id" });
      return created;
    },

    get: async (tenant, id) => {
      const [found] = await shards.databaseFor(tenant).batch([select(tenant, id)], { readonly: true });
      return readFirst(reader, found);
    },

    list: async (tenant, page) => {
      const [found] = await shards
        .databaseFor(tenant)
        .batch([selectPage(reader, eq(apiKeys.tenant, tenant), page)], { readonly: true });
      return readPage(reader, found, page);
    },

    revoke: async (tenant, id) => {
      const [revoked] = await shards.databaseFor(tenant).batch(
        [
          statement(
            build
              .update(apiKeys)
              // A key stays revoked since the first time.
              .set({ revokedAt: sql`coalesce(${apiKeys.revokedAt}, ${nowMs})` })
              .where(and(eq(apiKeys.tenant, tenant), eq(apiKeys.id, id))),
          ),
          { sql: endConnections, args: [tenant] },
        ],
        { repeatable: true },
      );
      return (revoked?.changes ?? 0) > 0;
    },
  };
}
