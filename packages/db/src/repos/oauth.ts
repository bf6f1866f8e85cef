/**
 * Access that authorization servers gave. Contract: `OAuthRepo`. Tokens come and go sealed; only core
 * opens them. Every write names the generation or the lease that it stands on, so that of any number of
 * instances one refreshes, and nobody overwrites or deletes what is newer.
 */
import type { NewOAuthGrant, OAuthGrant, OAuthLink, OAuthRepo } from "@toolyard/core/ports/oauth";
import type { Page, PageRequest } from "@toolyard/core/ports/page";
import type { Database, Shards, SqlValue, Statement, StatementResult } from "../database.ts";
import { everyShard, mostChanges } from "./every-shard.ts";
import { now } from "./fragments.ts";
import { raiseConfigVersion } from "./rows.ts";

type Row = StatementResult["rows"][number];

const dayMs = 86_400_000;

const columns = `id, kind, user_id, identity, tool, generation, sealed, scope, renewable,
  expires_at - ${now} AS usable_for_ms, CASE WHEN link_until > ${now} THEN link_until END AS link_until,
  link_hash, link_sealed, created_at, updated_at`;

const ofOwner = "tenant = ?1 AND user_id = ?2 AND identity = ?3";
const findGrant = `SELECT ${columns} FROM oauth_grants WHERE ${ofOwner}`;
const getGrant = `SELECT ${columns} FROM oauth_grants WHERE tenant = ?1 AND id = ?2`;

export function createOAuthRepo(shards: Shards): OAuthRepo {
  const of = (tenant: string): Database => shards.databaseFor(tenant);
  const findLink = (tenant: string, hash: string): Statement => ({
    sql: `SELECT ${columns} FROM oauth_grants WHERE tenant = ?1 AND link_hash = ?2 AND link_until > ${now}`,
    args: [tenant, hash],
  });
  return {
    claim: (tenant, grant, lease) => claim(of(tenant), tenant, { grant, lease }),

    find: async (tenant, { userId, identity }) => {
      const found = await of(tenant).batch([{ sql: findGrant, args: [tenant, userId ?? "", identity] }], {
        readonly: true,
      });
      return firstGrant(found[0]);
    },

    extendLease: async (tenant, id, { holder, leaseMs }) => {
      const extend = `UPDATE oauth_grants SET lease_until = ${now} + ?4 WHERE tenant = ?1 AND id = ?2 AND lease_by = ?3`;
      const [extended] = await of(tenant).batch([{ sql: extend, args: [tenant, id, holder, leaseMs] }], {
        repeatable: true,
      });
      return (extended?.changes ?? 0) > 0;
    },

    releaseLease: async (tenant, id, holder) => {
      const release =
        "UPDATE oauth_grants SET lease_by = NULL, lease_until = NULL WHERE tenant = ?1 AND id = ?2 AND lease_by = ?3";
      await of(tenant).batch([{ sql: release, args: [tenant, id, holder] }], { repeatable: true });
    },

    store: (tenant, id, token) => store(of(tenant), tenant, { id, token }),

    discard: async (tenant, id, generation) => {
      const discard = `UPDATE oauth_grants
        SET sealed = NULL, expires_at = NULL, renewable = 0, lease_by = NULL, lease_until = NULL, updated_at = ${now}
        WHERE tenant = ?1 AND id = ?2 AND generation = ?3`;
      const [discarded] = await of(tenant).batch([{ sql: discard, args: [tenant, id, generation] }], {
        repeatable: true,
      });
      return (discarded?.changes ?? 0) > 0;
    },

    offerLink: (tenant, grant, link) => offerLink(of(tenant), tenant, { grant, link }),

    findLink: async (tenant, hash) => {
      const [found] = await of(tenant).batch([findLink(tenant, hash)], { readonly: true });
      return firstLink(found);
    },

    takeLink: async (tenant, hash) => {
      const take = `UPDATE oauth_grants SET link_hash = NULL, link_sealed = NULL, link_until = NULL, updated_at = ${now}
        WHERE tenant = ?1 AND link_hash = ?2 AND link_until > ${now}`;
      // One transaction: of two who come with the same state, the second finds nothing.
      const [found] = await of(tenant).batch([findLink(tenant, hash), { sql: take, args: [tenant, hash] }]);
      return firstLink(found);
    },

    list: (tenant, page, userId) => list(of(tenant), tenant, { page, userId }),

    get: async (tenant, id) => {
      const [found] = await of(tenant).batch([{ sql: getGrant, args: [tenant, id] }], { readonly: true });
      return firstGrant(found);
    },

    delete: async (tenant, id) => {
      const [found] = await of(tenant).batch([
        { sql: getGrant, args: [tenant, id] },
        { sql: "DELETE FROM oauth_grants WHERE tenant = ?1 AND id = ?2", args: [tenant, id] },
        raiseConfigVersion(tenant),
      ]);
      return firstGrant(found);
    },

    expire: async (limit) => {
      const statements = [{ sql: expire, args: [limit] }];
      return mostChanges(await everyShard(shards, (database) => database.batch(statements, { repeatable: true })));
    },
  };
}

/** A token's absence, age or refusal makes it somebody's work; a user's grant without a token is nobody's but the user's. */
const takeLease = `UPDATE oauth_grants SET lease_by = ?4, lease_until = ${now} + ?5
  WHERE ${ofOwner} AND (lease_until IS NULL OR lease_until <= ${now} OR lease_by = ?4)
    AND (kind = 'client_credentials' OR sealed IS NOT NULL)
    AND (sealed IS NULL OR expires_at <= ${now} OR generation <= ?6)
    AND (?7 IS NULL OR generation <= ?7 OR sealed IS NULL)`;

async function claim(
  database: Database,
  tenant: string,
  { grant, lease }: { readonly grant: NewOAuthGrant; readonly lease: Parameters<OAuthRepo["claim"]>[2] },
): ReturnType<OAuthRepo["claim"]> {
  const { holder, leaseMs, refused = -1, seen = null } = lease;
  const owner = [tenant, grant.userId ?? "", grant.identity];
  const results = await database.batch(
    [
      ...(grant.kind === "client_credentials" ? [insertGrant(tenant, grant)] : []),
      { sql: takeLease, args: [...owner, holder, leaseMs, refused, seen] },
      {
        sql: `SELECT ${columns}, lease_by = ?4 AND lease_until > ${now} AS held FROM oauth_grants WHERE ${ofOwner}`,
        args: [...owner, holder],
      },
    ],
    { repeatable: true },
  );
  const row = results.at(-1)?.rows[0];
  return { grant: row === undefined ? undefined : toGrant(row), held: row?.["held"] === 1 };
}

function insertGrant(tenant: string, { id, kind, userId, identity, tool }: NewOAuthGrant): Statement {
  return {
    // A process that has not heard yet that a tenant was erased leaves nothing of it.
    sql: `INSERT INTO oauth_grants (id, tenant, kind, user_id, identity, tool)
      SELECT ?1, ?2, ?3, ?4, ?5, ?6 FROM tenants WHERE id = ?2
      ON CONFLICT (tenant, user_id, identity) DO NOTHING`,
    args: [id, tenant, kind, userId ?? "", identity, tool],
  };
}

async function store(
  database: Database,
  tenant: string,
  { id, token }: { readonly id: string; readonly token: Parameters<OAuthRepo["store"]>[2] },
): Promise<boolean> {
  const { generation, sealed, scope, renewable, usableForMs, raiseConfig } = token;
  const write = `UPDATE oauth_grants SET generation = ?3, sealed = ?4, scope = ?5, renewable = ?6, expires_at = ${now} + ?7,
      lease_by = NULL, lease_until = NULL, updated_at = ${now}
    WHERE tenant = ?1 AND id = ?2 AND generation = ?3 - 1`;
  const args: SqlValue[] = [tenant, id, generation, sealed, scope, renewable ? 1 : 0, usableForMs];
  const results = await database.batch(
    [
      { sql: write, args },
      ...(raiseConfig ? [raiseConfigVersion(tenant)] : []),
      // Sealing is random, so equal text is the row of this very write, perhaps sent twice.
      {
        sql: "SELECT 1 AS one FROM oauth_grants WHERE tenant = ?1 AND id = ?2 AND sealed = ?3",
        args: [tenant, id, sealed],
      },
    ],
    { repeatable: true },
  );
  return (results.at(-1)?.rows.length ?? 0) > 0;
}

async function offerLink(
  database: Database,
  tenant: string,
  { grant, link }: { readonly grant: NewOAuthGrant; readonly link: Parameters<OAuthRepo["offerLink"]>[2] },
): Promise<OAuthLink> {
  const owner = [tenant, grant.userId ?? "", grant.identity];
  const offer = `UPDATE oauth_grants SET link_hash = ?4, link_sealed = ?5, link_until = ${now} + ?6, updated_at = ${now}
    WHERE ${ofOwner} AND (link_until IS NULL OR link_until < ${now} + ?7)`;
  const results = await database.batch(
    [
      insertGrant(tenant, grant),
      { sql: offer, args: [...owner, link.hash, link.sealed, link.lifetimeMs, link.leastMs] },
      { sql: findGrant, args: owner },
    ],
    { repeatable: true },
  );
  const offered = firstLink(results.at(-1));
  if (offered === undefined) throw new Error("A connect link was written, but is not there.");
  return offered;
}

const orders = { asc: { direction: "ASC", follows: ">" }, desc: { direction: "DESC", follows: "<" } } as const;

async function list(
  database: Database,
  tenant: string,
  { page, userId }: { readonly page: PageRequest; readonly userId: string | undefined },
): Promise<Page<OAuthGrant>> {
  const { direction, follows } = orders[page.order];
  const ofUsers = `SELECT ${columns} FROM oauth_grants
    WHERE tenant = ?1 AND kind = 'authorization_code' AND (?2 IS NULL OR user_id = ?2) AND (?3 IS NULL OR id ${follows} ?3)
    ORDER BY id ${direction} LIMIT ?4`;
  const args = [tenant, userId ?? null, page.after ?? null, page.limit + 1];
  const [found] = await database.batch([{ sql: ofUsers, args }], { readonly: true });
  const rows = found?.rows ?? [];
  return { data: rows.slice(0, page.limit).map(toGrant), hasMore: rows.length > page.limit };
}

/** A lapsed link is kept for a day, so that its owner's list still shows it. */
const expire = `DELETE FROM oauth_grants WHERE rowid IN (
  SELECT rowid FROM oauth_grants
  WHERE (updated_at <= ${now} - ${dayMs} AND sealed IS NULL AND COALESCE(link_until, 0) <= ${now} - ${dayMs})
    OR (updated_at <= ${now} - ${30 * dayMs} AND kind = 'client_credentials' AND expires_at <= ${now})
  LIMIT ?1)`;

function firstGrant(result: StatementResult | undefined): OAuthGrant | undefined {
  const row = result?.rows[0];
  return row === undefined ? undefined : toGrant(row);
}

function firstLink(result: StatementResult | undefined): OAuthLink | undefined {
  const row = result?.rows[0];
  const hash = row?.["link_hash"];
  const sealed = row?.["link_sealed"];
  if (row === undefined || typeof hash !== "string" || typeof sealed !== "string") return undefined;
  return { grant: toGrant(row), hash, sealed, until: Number(row["link_until"]) };
}

function toGrant(row: Row): OAuthGrant {
  const userId = String(row["user_id"]);
  return {
    id: String(row["id"]),
    kind: row["kind"] === "authorization_code" ? "authorization_code" : "client_credentials",
    userId: userId === "" ? null : userId,
    identity: String(row["identity"]),
    tool: String(row["tool"]),
    generation: Number(row["generation"]),
    sealed: textOrNull(row["sealed"]),
    scope: textOrNull(row["scope"]),
    renewable: row["renewable"] === 1,
    usableForMs: numberOrNull(row["usable_for_ms"]),
    linkUntil: numberOrNull(row["link_until"]),
    createdAt: Number(row["created_at"]),
    updatedAt: Number(row["updated_at"]),
  };
}

function textOrNull(value: unknown): string | null {
  return typeof value === "string" ? value : null;
}

function numberOrNull(value: unknown): number | null {
  return typeof value === "number" ? value : null;
}
