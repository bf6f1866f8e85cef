/**
 * Which database holds a tenant's rows (design "Tenants, callers, secrets"). Most tenants live in the
 * directory itself; a large one may own a database, named by `tenants.shard` in the directory. A tenant
 * is moved while suspended: copy its rows, set `shard`, restart.
 */
import { isNotNull } from "drizzle-orm";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { Database, Shards } from "./database.ts";
import { shards } from "./schema/shards.ts";
import { tenants } from "./schema/tenants.ts";
import { build, decodeRow, statement } from "./sql.ts";

export interface OpenShards extends Shards {
  close(): Promise<void>;
}

/**
 * Reads the map of shards once and opens each. The directory must have been migrated.
 * @param open opens a shard's database; the credentials for it are the caller's business
 * @throws GatewayError `conflict` for a tenant on a shard that is not listed, `database_unavailable`
 */
export async function openShards(directory: Database, open: (url: string) => Promise<Database>): Promise<OpenShards> {
  const [listed, placed] = await directory.batch(
    [statement(build.select().from(shards)), statement(build.select().from(tenants).where(isNotNull(tenants.shard)))],
    { readonly: true },
  );
  const databases = new Map<string, Database>();
  for (const row of listed?.rows ?? []) {
    const { id, url } = decodeRow(shards, row);
    databases.set(id, url === null ? directory : await open(url));
  }
  const placement = new Map<string, string>();
  for (const row of placed?.rows ?? []) {
    const { id, shard } = decodeRow(tenants, row);
    if (shard === null) continue;
    if (!databases.has(shard)) {
      throw new GatewayError("conflict", `Tenant '${id}' is on shard '${shard}', which has no row in table 'shards'.`);
    }
    placement.set(id, shard);
  }
  return tenantShards(directory, databases, placement);
}

function tenantShards(
  directory: Database,
  databases: ReadonlyMap<string, Database>,
  placement: ReadonlyMap<string, string>,
): OpenShards {
  const all = [...new Set([directory, ...databases.values()])];
  return {
    directory,
    databaseFor: (tenant) => databases.get(placement.get(tenant) ?? "") ?? directory,
    all: () => all,
    close: async () => {
      await Promise.all(all.map((database) => database.close()));
    },
  };
}
