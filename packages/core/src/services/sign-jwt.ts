/** Signs the tokens by which services know each other (services/jwt.ts); loaded with the first of them. */
import { createPrivateKey, createSecretKey, type KeyObject } from "node:crypto";
import { SignJWT } from "jose";
import type { CredentialContext, CredentialResolver } from "../blind/credential-resolver.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { randomHex } from "../random-hex.ts";
import { withDelivery } from "../errors/delivery.ts";
import type { JwtConfig } from "./jwt.ts";
import { openSecret } from "./open-secret.ts";

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

/** Line breaks of a PEM that was put into one line are written as `\\n`. */
function readKey(algorithm: JwtConfig["algorithm"], value: string): KeyObject {
  return algorithm.startsWith("HS")
    ? createSecretKey(Buffer.from(value, "utf8"))
    : createPrivateKey(value.replaceAll("\\n", "\n"));
}
