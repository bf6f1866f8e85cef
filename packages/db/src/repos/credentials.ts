/** Rows of `sys_user_credential` (BLIND-5). Values come and go sealed; only core opens them. */
import { and, eq, getTableName, inArray, lt, or, sql, type SQL } from "drizzle-orm";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { CredentialRepo, CredentialView } from "@toolyard/core/ports/repos";
import type { StoredCredential } from "@toolyard/core/secrets/credential";
import { nowMs } from "../columns.ts";
import type { Shards, Statement } from "../database.ts";
import { sysUserCredential } from "../schema/sys-user-credential.ts";
import { build, statement } from "../sql.ts";
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
      const put = build
        .insert(sysUserCredential)
        .values({ tenant, name, userId, version, sealed })
        .onConflictDoUpdate({
          target: [sysUserCredential.tenant, sysUserCredential.name, sysUserCredential.userId],
          set: { version, sealed, lastUsedAt: null, updatedAt: nowMs },
          setWhere: eq(sysUserCredential.version, version - 1),
        });
      const [, , found] = await shards
        .databaseFor(tenant)
        .batch(
          [
            statement(put),
            raiseConfigVersion(tenant),
            select(and(only(tenant, name, userId), written(version, sealed))),
          ],
          {
            repeatable: true,
          },
        );
      const view = readFirst(views, found);
      if (view === undefined) {
        throw new GatewayError(
          "conflict",
          `Credential '${name}' was changed by somebody else just now; put it again.`,
          {
            param: "name",
          },
        );
      }
      return view;
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

    list: async (tenant, page) => {
      const [found] = await shards
        .databaseFor(tenant)
        .batch([selectPage(views, eq(sysUserCredential.tenant, tenant), pageAfterNumber(page, "cred"))], {
          readonly: true,
        });
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
