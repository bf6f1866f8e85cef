/** Model back ends of a tenant. */
import { and, eq, getTableName, ne, notExists, sql, type InferSelectModel, type SQL } from "drizzle-orm";
import { alias } from "drizzle-orm/sqlite-core";
import type { ProviderRecord } from "@toolyard/core/chat/providers/provider";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { NewProvider, ProviderRepo } from "@toolyard/core/ports/providers";
import { mostOf } from "@toolyard/core/ports/limits";
import { nowMs } from "../columns.ts";
import type { Shards, Statement } from "../database.ts";
import { providers } from "../schema/providers.ts";
import { build, statement } from "../sql.ts";
import { raiseConfigVersion, readFirst, readPage, selectPage, type OnBrokenRow, type Reader } from "./rows.ts";

/** Each is part of the tenant's snapshot. */
const mostProviders = mostOf.providers;

export type ProviderReader = Reader<typeof providers, ProviderRecord>;

export function providerReader(onBrokenRow: OnBrokenRow): ProviderReader {
  return {
    table: providers,
    tableName: getTableName(providers),
    key: providers.id,
    onBrokenRow,
    toRecord: ({ tenant: _tenant, createdAt: _createdAt, updatedAt: _updatedAt, ...provider }) => provider,
  };
}

export function createProviderRepo(shards: Shards, onBrokenRow: OnBrokenRow): ProviderRepo {
  const reader = providerReader(onBrokenRow);
  return {
    create: async (tenant, id, provider) => {
      const [, , found, namesakes] = await shards.databaseFor(tenant).batch(
        [
          insert(tenant, id, provider),
          raiseConfigVersion(tenant),
          statement(build.select().from(providers).where(own(tenant, id))),
          statement(
            build
              .select({ id: providers.id })
              .from(providers)
              .where(and(eq(providers.tenant, tenant), eq(providers.name, provider.name))),
          ),
        ],
        { repeatable: true },
      );
      const created = readFirst(reader, found);
      if (created !== undefined) return created;
      throw namesakes?.rows.length === 0 ? tooMany() : nameTaken(provider.name);
    },

    update: async (tenant, id, provider) => {
      const other = alias(providers, "other");
      const namesake = build
        .select({ found: sql`1` })
        .from(other)
        .where(and(eq(other.tenant, tenant), eq(other.name, provider.name), ne(other.id, id)));
      const change = build
        .update(providers)
        .set({ ...columnsOf(provider), updatedAt: nowMs })
        .where(and(own(tenant, id), notExists(namesake)))
        .returning();
      const present = build.select({ id: providers.id }).from(providers).where(own(tenant, id));
      const [updated, , found] = await shards
        .databaseFor(tenant)
        .batch([statement(change), raiseConfigVersion(tenant), statement(present)], { repeatable: true });
      const record = readFirst(reader, updated);
      if (record === undefined && (found?.rows.length ?? 0) > 0) throw nameTaken(provider.name);
      return record;
    },

    get: async (tenant, id) => {
      const [found] = await shards
        .databaseFor(tenant)
        .batch([statement(build.select().from(providers).where(own(tenant, id)))], { readonly: true });
      return readFirst(reader, found);
    },

    list: async (tenant, page) => {
      const [found] = await shards
        .databaseFor(tenant)
        .batch([selectPage(reader, eq(providers.tenant, tenant), page)], { readonly: true });
      return readPage(reader, found, page);
    },

    delete: async (tenant, id) => {
      const [deleted] = await shards
        .databaseFor(tenant)
        .batch([statement(build.delete(providers).where(own(tenant, id))), raiseConfigVersion(tenant)]);
      return (deleted?.changes ?? 0) > 0;
    },
  };
}

const insertProvider = `INSERT INTO providers (id, tenant, name, kind, base_url, credential, models, passthrough_models,
    schema_family, priority, enabled, max_attempts, timeout_ms)
  SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13
  WHERE (SELECT COUNT(*) FROM providers WHERE tenant = ?2) < ${mostProviders}
  ON CONFLICT DO NOTHING`;

function insert(tenant: string, id: string, provider: NewProvider): Statement {
  const { name, kind, baseUrl, credential, models, passthroughModels, schemaFamily, priority } = provider;
  const { enabled, maxAttempts, timeoutMs } = provider;
  const flags = { passthrough: passthroughModels ? 1 : 0, enabled: enabled ? 1 : 0 };
  const address = [id, tenant, name, kind, baseUrl, credential];
  const offered = [JSON.stringify(models), flags.passthrough, schemaFamily, priority, flags.enabled];
  return { sql: insertProvider, args: [...address, ...offered, maxAttempts, timeoutMs] };
}

function columnsOf(
  provider: NewProvider,
): Omit<InferSelectModel<typeof providers>, "id" | "tenant" | "createdAt" | "updatedAt"> {
  return { ...provider, models: { ...provider.models } };
}

function own(tenant: string, id: string): SQL | undefined {
  return and(eq(providers.tenant, tenant), eq(providers.id, id));
}

function nameTaken(name: string): GatewayError {
  return new GatewayError("conflict", `There is a provider '${name}' already; take another name, or change that one.`, {
    param: "name",
  });
}

function tooMany(): GatewayError {
  return new GatewayError("conflict", `A tenant has at most ${mostProviders} providers; delete one first.`, {
    param: "name",
    extra: { limit: mostProviders },
  });
}
