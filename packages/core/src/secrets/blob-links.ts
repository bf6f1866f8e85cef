/**
 * Links to single blobs for stores that have no HTTP of their own (CHAT-19): the gateway serves them under
 * `/v1/blobs/{token}`. The token says which blob, which method, until when and what may be sent, signed
 * with the tenant's key, so that every instance knows it and erasing the tenant ends it. It is all that is
 * needed to use the link, and stands in no log.
 */
import { timingSafeEqual } from "node:crypto";
import * as z from "zod";
import { GatewayError } from "../errors/gateway-error.ts";
import { parseJson } from "../json.ts";
import { tenantOfKey, type Presign, type PresignOptions } from "../ports/blob-store.ts";
import type { Clock } from "../ports/clock.ts";
import type { Tenant, TenantRepo } from "../ports/tenants.ts";
import type { Sealer } from "./sealer.ts";

export const blobPath = "/v1/blobs/";

/** What an opened link allows. */
export interface BlobLink {
  readonly key: string;
  readonly tenant: string;
  /** Of a download. */
  readonly fileName: string | undefined;
  /** Of an upload. */
  readonly bytes: number;
  readonly mediaType: string;
}

export interface BlobLinks {
  readonly presign: Presign;
  /** @throws GatewayError `link_invalid` for a token that we did not make for this method, `link_expired`, `tenant_suspended` */
  open(token: string, method: "GET" | "PUT"): Promise<BlobLink>;
}

export interface BlobLinkDeps {
  readonly tenants: Pick<TenantRepo, "get">;
  readonly sealer: Sealer;
  readonly clock: Pick<Clock, "now">;
  /** Base of the links, without a slash at the end. */
  readonly publicUrl: string;
}

const payloadSchema = z.object({
  key: z.string(),
  method: z.enum(["GET", "PUT"]),
  until: z.number(),
  bytes: z.number().default(0),
  type: z.string().default(""),
  name: z.string().optional(),
});
type Payload = z.input<typeof payloadSchema>;

const longestToken = 8_192;
const version = "blob-link.v1";

export function createBlobLinks({ tenants, sealer, clock, publicUrl }: BlobLinkDeps): BlobLinks {
  async function ownerOf(key: string): Promise<Tenant | undefined> {
    const id = tenantOfKey(key);
    return id === undefined ? undefined : tenants.get(id);
  }

  return {
    async presign(key, options) {
      const tenant = await ownerOf(key);
      if (tenant === undefined) throw new GatewayError("not_found", "The tenant of this blob is gone.");
      const payload = encode(toPayload(key, options, clock.now() + options.expiresInMs));
      const signature = await sealer.sign(tenant.id, tenant.wrappedKey, `${version}.${payload}`);
      return {
        method: options.method,
        url: `${publicUrl}${blobPath}${payload}.${signature.toString("base64url")}`,
        headers: options.method === "PUT" ? { "content-type": options.mediaType } : {},
      };
    },
    async open(token, method) {
      const { payload, signature, claims } = parseToken(token);
      const tenant = await ownerOf(claims.key);
      if (tenant === undefined) throw invalid();
      const expected = await sealer.sign(tenant.id, tenant.wrappedKey, `${version}.${payload}`);
      const isOurs = signature.byteLength === expected.byteLength && timingSafeEqual(signature, expected);
      if (!isOurs) throw invalid();
      if (claims.method !== method) throw invalid(` It is for ${claims.method}, not for ${method}.`);
      if (claims.until <= clock.now()) {
        throw new GatewayError("link_expired", "The time of this link is over; ask for another one.");
      }
      if (tenant.status !== "active") {
        throw new GatewayError("tenant_suspended", "The tenant of this link is suspended.");
      }
      return { key: claims.key, tenant: tenant.id, fileName: claims.name, bytes: claims.bytes, mediaType: claims.type };
    },
  };
}

function toPayload(key: string, options: PresignOptions, until: number): Payload {
  if (options.method === "PUT") {
    return { key, method: "PUT", until, bytes: options.bytes, type: options.mediaType };
  }
  const { fileName } = options;
  return { key, method: "GET", until, ...(fileName === undefined ? {} : { name: fileName.toWellFormed() }) };
}

const encode = (payload: Payload): string => Buffer.from(JSON.stringify(payload), "utf8").toString("base64url");

interface ParsedToken {
  readonly payload: string;
  readonly signature: Buffer;
  readonly claims: z.output<typeof payloadSchema>;
}

/** What it claims, proven by nothing yet. */
function parseToken(token: string): ParsedToken {
  const [payload = "", signature = "", ...more] = token.length > longestToken ? [] : token.split(".");
  const parsed = payloadSchema.safeParse(parseJson(Buffer.from(payload, "base64url").toString("utf8")));
  // One spelling only: base64 has characters whose last bits mean nothing.
  const bytes = Buffer.from(signature, "base64url");
  if (!parsed.success || more.length > 0 || bytes.toString("base64url") !== signature) throw invalid();
  return { payload, signature: bytes, claims: parsed.data };
}

function invalid(why = ""): GatewayError {
  return new GatewayError(
    "link_invalid",
    `This link is not one of ours, or was changed on the way.${why} Ask for a new one with your key.`,
  );
}
