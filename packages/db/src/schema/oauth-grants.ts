/**
 * Access that authorization servers gave: tokens of tenants' clients and of users' connections, and
 * connect links that a user has still to follow. One row for each owner and client, so that a refresh
 * has one lease over all instances, and a token one generation.
 */
import { sql } from "drizzle-orm";
import { index, integer, sqliteTable, text, uniqueIndex } from "drizzle-orm/sqlite-core";
import { flag, nowMs, tenantColumn, time } from "../columns.ts";

export const oauthGrants = sqliteTable(
  "oauth_grants",
  {
    id: text("id").primaryKey(),
    tenant: tenantColumn().notNull(),
    /** `client_credentials` or `authorization_code`. */
    kind: text("kind").notNull(),
    /** Empty for the tenant's own: a null would escape the unique index. */
    userId: text("user_id").notNull().default(""),
    /** HMAC of the client under the tenant's key. */
    identity: text("identity").notNull(),
    tool: text("tool").notNull(),
    generation: integer("generation").notNull().default(0),
    /** JWE of the tokens, see core/oauth/grant.ts. */
    sealed: text("sealed"),
    scope: text("scope"),
    renewable: flag("renewable").notNull().default(false),
    /** When the access token is no longer used; null: once it is refused. */
    expiresAt: time("expires_at"),
    /** Who is getting a new token, and until when nobody else does. */
    leaseBy: text("lease_by"),
    leaseUntil: time("lease_until"),
    /** SHA-256 of the state in the connect link, and what belongs to it, sealed. */
    linkHash: text("link_hash"),
    linkSealed: text("link_sealed"),
    linkUntil: time("link_until"),
    createdAt: time("created_at").notNull().default(nowMs),
    updatedAt: time("updated_at").notNull().default(nowMs),
  },
  (table) => [
    uniqueIndex("oauth_grants_owner").on(table.tenant, table.userId, table.identity),
    uniqueIndex("oauth_grants_link")
      .on(table.tenant, table.linkHash)
      .where(sql`link_hash is not null`),
    index("oauth_grants_listed").on(table.tenant, table.kind, table.id),
    index("oauth_grants_updated").on(table.updatedAt),
  ],
);
