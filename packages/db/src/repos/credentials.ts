/** Rows of `sys_user_credential` (BLIND-5). Values come and go sealed; only core opens them. */
import { and, eq, getTableName, inArray, lt, or, sql, type SQL } from "drizzle-orm";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { CredentialRepo, CredentialView } from "@toolyard/core/ports/credentials";
import type { StoredCredential } from "@toolyard/core/secrets/credential";
import { nowMs } from "../columns.ts";
import type { Shards, Statement } from "../database.ts";
import { sysUserCredential } from "../schema/sys-user-credential.ts";
import { build, statement } from "../sql.ts";
import { now } from "./fragments.ts";
import {
  pageAfterNumber,
  raiseConfigVersion,
  readAll,
  readFirst,
  readPage,
  selectPage,
  type OnBrokenRow,
  type Reader,
} from "./rows.ts";

/** Each is part of the tenant's snapshot, and anybody may set their own. */
const mostCredentials = 10_000;
const mostOfUser = 200;
/** As they are sealed. No user's share is the whole. */
const mostBytes = 16_777_216;
const mostBytesOfUser = 2_097_152;
/** A new value of this length is taken in place of any other, or a token that was renewed would be lost. */
const alwaysReplaces = 8_192;

const limits = {
  credentials: [mostCredentials, "name", `A tenant has at most ${mostCredentials} credentials; delete one first.`],
  of_user: [mostOfUser, "name", `A user has at most ${mostOfUser} credentials; delete one first.`],
  bytes: [
    mostBytes,
    "value",
    `The credentials of a tenant have at most ${mostBytes} bytes together, as they are sealed; delete some first, or set a shorter value.`,
  ],
  bytes_of_user: [
    mostBytesOfUser,
    "value",
    `The credentials of a user have at most ${mostBytesOfUser} bytes together, as they are sealed; delete some first, or set a shorter value.`,
  ],
} as const;

/** Which of the limits is in the way of value ?5 of credential ?2 of user ?3; null: none. */
const inTheWay = `(SELECT CASE
    WHEN OCTET_LENGTH(?5) <= MAX(replaced, ${alwaysReplaces}) THEN NULL
    WHEN replaced IS NULL AND credentials >= ${mostCredentials} THEN 'credentials'
    WHEN replaced IS NULL AND of_user >= ${mostOfUser} AND ?3 <> '' THEN 'of_user'
    WHEN bytes - COALESCE(replaced, 0) + OCTET_LENGTH(?5) > ${mostBytes} THEN 'bytes'
    WHEN bytes_of_user - COALESCE(replaced, 0) + OCTET_LENGTH(?5) > ${mostBytesOfUser} AND ?3 <> '' THEN 'bytes_of_user'
    END
  FROM (SELECT COUNT(*) AS credentials, COUNT(*) FILTER (WHERE user_id = ?3) AS of_user,
      TOTAL(OCTET_LENGTH(sealed)) AS bytes, TOTAL(OCTET_LENGTH(sealed)) FILTER (WHERE user_id = ?3) AS bytes_of_user,
      MAX(OCTET_LENGTH(sealed)) FILTER (WHERE user_id = ?3 AND name = ?2) AS replaced
    FROM sys_user_credential WHERE tenant = ?1))`;

const putCredential = `INSERT INTO sys_user_credential (tenant, name, user_id, version, sealed)
  SELECT ?1, ?2, ?3, ?4, ?5 WHERE ${inTheWay} IS NULL
  ON CONFLICT (tenant, name, user_id) DO UPDATE SET
    version = excluded.version, sealed = excluded.sealed, last_used_at = NULL, updated_at = ${now}
  WHERE sys_user_credential.version = excluded.version - 1`;

const explainPut = `SELECT ${inTheWay} AS reached WHERE NOT EXISTS (SELECT 1 FROM sys_user_credential
  WHERE tenant = ?1 AND name = ?2 AND user_id = ?3 AND version = ?4 AND sealed = ?5)`;

/** `last_used_at` is for people; more exact than this it would cost a write with every call. */
const usedResolutionMs = 60_000;

type CredentialReader<R> = Reader<typeof sysUserCredential, R>;

export function storedCredentialReader(onBrokenRow: OnBrokenRow): CredentialReader<StoredCredential> {
  return {
    ...place(onBrokenRow),
    toRecord: ({ name, userId, version, sealed }) =>
      userId === "" ? { name, level: "tenant", version, sealed } : { name, level: "user", userId, version, sealed },
  };
}

export function selectCredentials(tenant: string): Statement {
  return statement(build.select().from(sysUserCredential).where(eq(sysUserCredential.tenant, tenant)));
}

export function createCredentialRepo(shards: Shards, onBrokenRow: OnBrokenRow): CredentialRepo {
  const stored = storedCredentialReader(onBrokenRow);
  const views: CredentialReader<CredentialView> = {
    ...place(onBrokenRow),
    toRecord: ({ credentialId, name, userId, version, lastUsedAt, createdAt, updatedAt }) => ({
      id: `cred_${credentialId}`,
      name,
      level: userId === "" ? "tenant" : "user",
      userId: userId === "" ? null : userId,
      version,
      lastUsedAt,
      createdAt,
      updatedAt,
    }),
  };
  return {
    nextVersion: async (tenant, name, userId) => {
      const [found] = await shards.databaseFor(tenant).batch([select(only(tenant, name, userId))], { readonly: true });
      return (readFirst(stored, found)?.version ?? 0) + 1;
    },

    put: async (tenant, { name, userId = "", version, sealed }) => {
      const args = [tenant, name, userId, version, sealed];
      const [, , found, explained] = await shards
        .databaseFor(tenant)
        .batch(
          [
            { sql: putCredential, args },
            raiseConfigVersion(tenant),
            select(and(only(tenant, name, userId), written(version, sealed))),
            { sql: explainPut, args },
          ],
          { repeatable: true },
        );
      const view = readFirst(views, found);
      if (view !== undefined) return view;
      throw refusal(name, explained?.rows[0]?.["reached"]);
    },

    fetch: async (tenant, names, userId) => {
      if (names.length === 0) return [];
      const owners = userId === undefined ? [""] : ["", userId];
      const wanted = and(
        eq(sysUserCredential.tenant, tenant),
        inArray(sysUserCredential.name, [...names]),
        inArray(sysUserCredential.userId, owners),
      );
      const [, found] = await shards
        .databaseFor(tenant)
        .batch([markUsed(wanted), select(wanted)], { repeatable: true });
      return preferUsers(readAll(stored, found));
    },

    list: async (tenant, page, userId) => {
      const ofTenant = eq(sysUserCredential.tenant, tenant);
      const wanted = userId === undefined ? ofTenant : and(ofTenant, eq(sysUserCredential.userId, userId));
      const [found] = await shards
        .databaseFor(tenant)
        .batch([selectPage(views, wanted, pageAfterNumber(page, "cred"))], { readonly: true });
      return readPage(views, found, page);
    },

    all: async (tenant) => {
      const [found] = await shards.databaseFor(tenant).batch([selectCredentials(tenant)], { readonly: true });
      return readAll(stored, found);
    },

    delete: async (tenant, name, userId) => {
      const [deleted] = await shards
        .databaseFor(tenant)
        .batch([
          statement(build.delete(sysUserCredential).where(only(tenant, name, userId))),
          raiseConfigVersion(tenant),
        ]);
      return (deleted?.changes ?? 0) > 0;
    },
  };
}

function place(onBrokenRow: OnBrokenRow): Omit<CredentialReader<never>, "toRecord"> {
  return {
    table: sysUserCredential,
    tableName: getTableName(sysUserCredential),
    key: sysUserCredential.credentialId,
    onBrokenRow,
  };
}

function only(tenant: string, name: string, userId: string | null): SQL | undefined {
  return and(
    eq(sysUserCredential.tenant, tenant),
    eq(sysUserCredential.name, name),
    eq(sysUserCredential.userId, userId ?? ""),
  );
}

/** Sealing is random, so equal text is the row of this very put, perhaps sent twice. */
function written(version: number, sealed: string): SQL | undefined {
  return and(eq(sysUserCredential.version, version), eq(sysUserCredential.sealed, sealed));
}

function refusal(name: string, reached: unknown): GatewayError {
  for (const [which, [limit, param, message]] of Object.entries(limits)) {
    if (which === reached) return new GatewayError("conflict", message, { param, extra: { limit } });
  }
  return new GatewayError("conflict", `Credential '${name}' was changed by somebody else just now; put it again.`, {
    param: "name",
  });
}

function select(where: SQL | undefined): Statement {
  return statement(build.select().from(sysUserCredential).where(where));
}

function markUsed(where: SQL | undefined): Statement {
  const stale = or(
    sql`${sysUserCredential.lastUsedAt} IS NULL`,
    lt(sysUserCredential.lastUsedAt, sql`${nowMs} - ${usedResolutionMs}`),
  );
  return statement(build.update(sysUserCredential).set({ lastUsedAt: nowMs }).where(and(where, stale)));
}

function preferUsers(found: readonly StoredCredential[]): readonly StoredCredential[] {
  const byName = new Map<string, StoredCredential>();
  for (const credential of found) {
    if (credential.level === "user" || !byName.has(credential.name)) byName.set(credential.name, credential);
  }
  return [...byName.values()];
}
