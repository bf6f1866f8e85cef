/** Issuers of JWTs that a tenant trusts. Several tenants may trust one pair of issuer and audience. */
import { index, sqliteTable, text, uniqueIndex } from "drizzle-orm/sqlite-core";
import { roles, scopes } from "@toolyard/core/callers/caller";
import { knownValues } from "@toolyard/core/known-values";
import * as z from "zod";
import { json, nowMs, tenantColumn, time } from "../columns.ts";

const claimNamesSchema = z.object({
  role: z.string().exactOptional(),
  scopes: z.string().exactOptional(),
  tools: z.string().exactOptional(),
  businessUnit: z.string().exactOptional(),
  /** No claim: `TrustedIssuer.escapesIds`. */
  escapesIds: z.boolean().exactOptional(),
});

export const jwtIssuers = sqliteTable(
  "jwt_issuers",
  {
    id: text("id").primaryKey(),
    tenant: tenantColumn().notNull(),
    issuer: text("issuer").notNull(),
    audience: text("audience").notNull(),
    jwksUrl: text("jwks_url").notNull(),
    claims: json("claims", claimNamesSchema).notNull(),
    defaultRole: text("default_role", { enum: roles }).notNull(),
    defaultScopes: json("default_scopes", knownValues(scopes)).notNull(),
    createdAt: time("created_at").notNull().default(nowMs),
  },
  (table) => [
    uniqueIndex("jwt_issuers_tenant_issuer_audience").on(table.tenant, table.issuer, table.audience),
    index("jwt_issuers_issuer_audience").on(table.issuer, table.audience),
  ],
);
