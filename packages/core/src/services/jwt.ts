/**
 * Tokens by which services know each other (SVC-2): a JWT signed for each call, for one audience and for a
 * short time, so that one that leaks is soon worth nothing. The key is a credential of the tenant.
 */
import * as z from "zod";
import { isHeaderName, isTransportHeader } from "../blind/header-rules.ts";
import { secretField } from "./config-fields.ts";

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
