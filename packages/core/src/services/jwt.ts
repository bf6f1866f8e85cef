/**
 * Tokens by which services know each other (SVC-2): a JWT signed for each call, for one audience and for a
 * short time, so that one that leaks is soon worth nothing. The key is a credential of the tenant.
 */
import { createPrivateKey, createSecretKey, type KeyObject } from "node:crypto";
import { SignJWT } from "jose";
import * as z from "zod";
import type { CredentialContext, CredentialResolver } from "../blind/credential-resolver.ts";
import { isHeaderName, isTransportHeader } from "../blind/header-rules.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { randomHex } from "../random-hex.ts";
import { withDelivery } from "../tools/adapter.ts";
import { secretField } from "./config-fields.ts";
import { openSecret } from "./open-secret.ts";

const algorithms = [
  "HS256",
  "HS384",
  "HS512",
  "RS256",
  "RS384",
  "RS512",
  "PS256",
  "PS384",
  "PS512",
  "ES256",
  "ES384",
  "ES512",
  "EdDSA",
] as const;

/** Claims that have fields of their own, or are the gateway's. */
const reservedClaims: ReadonlySet<string> = new Set(["iss", "sub", "aud", "exp", "iat", "nbf", "jti"]);

const text = (description: string): z.ZodString => z.string().min(1).max(2_048).meta({ description });

export const jwtSchema = z.strictObject({
  key: secretField("What signs: the shared secret for HS…, the private key in PEM form otherwise."),
  algorithm: z.enum(algorithms).default("HS256").meta({ description: "How it signs." }),
  issuer: text("Claim `iss`: who we are.").optional(),
  subject: text("Claim `sub`.").optional(),
  audience: z
    .union([text("Claim `aud`."), z.array(text("One audience.")).min(1).max(16)])
    .meta({ description: "Claim `aud`: who may take the token; one or several." }),
  key_id: text("Header `kid`: which of our keys it is.").optional(),
  expires_in_s: z
    .int()
    .min(5)
    .max(3_600)
    .default(60)
    .meta({ description: "Seconds for which a token is good; each call has its own." }),
  header: z
    .string()
    .refine((name) => isHeaderName(name) && !isTransportHeader(name), "must be the name of a header that may be set")
    .optional()
    .meta({ description: "Header that carries it; absent: `Authorization: Bearer …`." }),
  claims: z
    .record(z.string().min(1).max(128), z.json())
    .superRefine((claims, check) => {
      for (const name of Object.keys(claims)) {
        if (!reservedClaims.has(name)) continue;
        check.addIssue({
          code: "custom",
          message: "is a claim that has a field of its own, or is the gateway's",
          path: [name],
        });
      }
    })
    .optional()
    .meta({ description: "Further claims. Never secrets." }),
});
export type JwtConfig = z.output<typeof jwtSchema>;

export interface Signing {
  readonly credentials: CredentialResolver;
  readonly context: CredentialContext;
  /** Epoch milliseconds. */
  readonly now: number;
}

/** @throws GatewayError `credential_missing`, `credential_invalid` naming the key's credential; `not_sent` */
export async function signJwt(jwt: JwtConfig, { credentials, context, now }: Signing): Promise<string> {
  const value = await openSecret(jwt.key, credentials, context);
  const issuedAt = Math.floor(now / 1_000);
  const token = new SignJWT({ ...jwt.claims })
    .setProtectedHeader({ alg: jwt.algorithm, typ: "JWT", ...(jwt.key_id === undefined ? {} : { kid: jwt.key_id }) })
    .setAudience(jwt.audience)
    .setIssuedAt(issuedAt)
    .setExpirationTime(issuedAt + jwt.expires_in_s)
    .setJti(randomHex(16));
  if (jwt.issuer !== undefined) token.setIssuer(jwt.issuer);
  if (jwt.subject !== undefined) token.setSubject(jwt.subject);
  try {
    return await token.sign(readKey(jwt.algorithm, value));
  } catch (cause) {
    const { credential: name } = jwt.key;
    throw withDelivery(
      new GatewayError(
        "credential_invalid",
        `Credential '${name}' is no key that signs with ${jwt.algorithm}; set it again with PUT /v1/credentials/${encodeURIComponent(name)}.`,
        { param: name, cause },
      ),
      "not_sent",
    );
  }
}

/** Line breaks of a PEM that came through the credentials' route are written as `\\n`. */
function readKey(algorithm: JwtConfig["algorithm"], value: string): KeyObject {
  return algorithm.startsWith("HS")
    ? createSecretKey(Buffer.from(value, "utf8"))
    : createPrivateKey(value.replaceAll("\\n", "\n"));
}
