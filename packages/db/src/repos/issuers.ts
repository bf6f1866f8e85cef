/** Trusted JWT issuers. They lie in the directory: a token names its issuer before it names a tenant. */
import { and, eq, getTableName, inArray, sql, type SQL } from "drizzle-orm";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { IssuerRepo, TrustedIssuer } from "@toolyard/core/ports/issuers";
import type { Shards, Statement } from "../database.ts";
import { jwtIssuers } from "../schema/jwt-issuers.ts";
import { build, statement } from "../sql.ts";
import { readAll, readFirst, readPage, selectPage, type OnBrokenRow, type Reader } from "./rows.ts";

/**
 * With `escapesIds` where ids need it beside those of another issuer, whose ids are written plainly. The same issuer has
 * one way of writing them, whatever the audience.
 */
function claimsOf(tenant: string, { issuer, claims }: Pick<TrustedIssuer, "issuer" | "claims">): SQL {
  const given = JSON.stringify(claims);
  const beginsWith = (whole: SQL, part: SQL): SQL => sql`substr(${whole}, 1, length(${part}) + 1) = ${part} || ':'`;
  const [own, other] = [sql`${issuer}`, sql`other.issuer`];
  return sql`COALESCE(
    (SELECT json_set(${given}, '$.escapesIds', json(CASE other.claims ->> '$.escapesIds' WHEN 1 THEN 'true' ELSE 'false' END))
      FROM jwt_issuers AS other WHERE other.tenant = ${tenant} AND ${other} = ${own} LIMIT 1),
    (SELECT json_set(${given}, '$.escapesIds', json('true'))
      FROM jwt_issuers AS other WHERE other.tenant = ${tenant} AND COALESCE(other.claims ->> '$.escapesIds', 0) = 0
        AND (${beginsWith(own, other)} OR ${beginsWith(other, own)}) LIMIT 1),
    ${given})`;
}

/** Of one that is trusted already, where ids are written as they ever were. */
const claimsInPlace = (claims: TrustedIssuer["claims"]): SQL =>
  sql`json_patch(${JSON.stringify(claims)}, CASE ${jwtIssuers.claims} ->> '$.escapesIds'
    WHEN 1 THEN '{"escapesIds":true}' WHEN 0 THEN '{"escapesIds":false}' ELSE '{}' END)`;

export function createIssuerRepo({ directory }: Shards, onBrokenRow: OnBrokenRow): IssuerRepo {
  const reader: Reader<typeof jwtIssuers, TrustedIssuer> = {
    table: jwtIssuers,
    tableName: getTableName(jwtIssuers),
    key: jwtIssuers.id,
    onBrokenRow,
    toRecord: ({ claims: { escapesIds = false, ...claims }, ...row }) => ({ ...row, claims, escapesIds }),
  };
  const own = (tenant: string, id: string): SQL | undefined =>
    and(eq(jwtIssuers.tenant, tenant), eq(jwtIssuers.id, id));
  const readOwn = (tenant: string, id: string): Statement =>
    statement(build.select().from(jwtIssuers).where(own(tenant, id)));
  return {
    create: async (tenant, issuer) => {
      const claims = claimsOf(tenant, issuer);
      const values = { ...issuer, tenant, claims, defaultScopes: [...issuer.defaultScopes] };
      const [, found] = await directory.batch(
        [statement(build.insert(jwtIssuers).values(values).onConflictDoNothing()), readOwn(tenant, issuer.id)],
        { repeatable: true },
      );
      const created = readFirst(reader, found);
      if (created === undefined) {
        throw new GatewayError("conflict", "This issuer is trusted for this audience already.", { param: "issuer" });
      }
      return created;
    },

    get: async (tenant, id) => {
      const [found] = await directory.batch([readOwn(tenant, id)], { readonly: true });
      return readFirst(reader, found);
    },

    list: async (tenant, page) => {
      const [found] = await directory.batch([selectPage(reader, eq(jwtIssuers.tenant, tenant), page)], {
        readonly: true,
      });
      return readPage(reader, found, page);
    },

    update: async (tenant, id, { claims, defaultScopes, ...plain }) => {
      const values = { ...plain, claims: claimsInPlace(claims), defaultScopes: [...defaultScopes] };
      const [, found] = await directory.batch(
        [statement(build.update(jwtIssuers).set(values).where(own(tenant, id))), readOwn(tenant, id)],
        { repeatable: true },
      );
      return readFirst(reader, found);
    },

    delete: async (tenant, id) => {
      const [deleted] = await directory.batch([statement(build.delete(jwtIssuers).where(own(tenant, id)))]);
      return (deleted?.changes ?? 0) > 0;
    },

    find: async (issuer, audiences) => {
      if (audiences.length === 0) return [];
      const trusted = and(eq(jwtIssuers.issuer, issuer), inArray(jwtIssuers.audience, [...audiences]));
      const [found] = await directory.batch([statement(build.select().from(jwtIssuers).where(trusted))], {
        readonly: true,
      });
      return readAll(reader, found);
    },
  };
}
