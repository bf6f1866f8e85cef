/**
 * Where a vendor says what became of messages. The token in the address names tenant and service and is signed
 * with the tenant's key: it is all that a vendor has to prove itself with, and stands in no log.
 */
import { timingSafeEqual } from "node:crypto";
import * as z from "zod";
import { parseJson } from "../json.ts";
import type { TenantRepo } from "../ports/tenants.ts";
import type { Sealer } from "../secrets/sealer.ts";

export const receiptPath = "/v1/sms/receipts/";

const version = "sms-receipts.v1";
const claimsSchema = z.tuple([z.string().max(64), z.string().max(64)]);

export interface ReceiptPlace {
  readonly tenant: string;
  /** Id of the service's row. */
  readonly service: string;
}

export async function receiptUrl(
  { sealer, publicUrl }: { readonly sealer: Sealer; readonly publicUrl: string },
  { tenant, service }: ReceiptPlace,
  wrappedKey: string,
): Promise<string> {
  const payload = Buffer.from(JSON.stringify([tenant, service]), "utf8").toString("base64url");
  const signature = await sealer.sign(tenant, wrappedKey, `${version}.${payload}`);
  return `${publicUrl}${receiptPath}${payload}.${signature.toString("base64url")}`;
}

/** Undefined: none of ours, or of a tenant that is gone. */
export async function openReceiptToken(
  { sealer, tenants }: { readonly sealer: Sealer; readonly tenants: Pick<TenantRepo, "get"> },
  token: string,
): Promise<ReceiptPlace | undefined> {
  const [payload = "", signature = "", ...more] = token.length > 512 ? [] : token.split(".");
  const claims = claimsSchema.safeParse(parseJson(Buffer.from(payload, "base64url").toString("utf8")));
  const given = Buffer.from(signature, "base64url");
  // One spelling only: base64 has characters whose last bits mean nothing.
  if (!claims.success || more.length > 0 || given.toString("base64url") !== signature) return undefined;
  const [tenant, service] = claims.data;
  const row = await tenants.get(tenant);
  if (row === undefined) return undefined;
  const expected = await sealer.sign(tenant, row.wrappedKey, `${version}.${payload}`);
  const isOurs = given.byteLength === expected.byteLength && timingSafeEqual(given, expected);
  return isOurs ? { tenant, service } : undefined;
}
