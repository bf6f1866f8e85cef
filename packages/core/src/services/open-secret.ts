/** The value of a secret that a configuration refers to, at the moment of use. */
import type { CredentialContext, CredentialResolver } from "../blind/credential-resolver.ts";
import { isHeaderValue } from "../blind/header-rules.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { withDelivery } from "../errors/delivery.ts";
import { isBlank } from "../secrets/credential.ts";
import type { SecretReference } from "./config-fields.ts";

/**
 * Not known to the redactor yet: whoever opens it says what of it must not show.
 * @throws GatewayError `credential_missing`, `credential_unreadable` naming the credential; `not_sent`
 */
export async function openSecret(
  { credential: name }: SecretReference,
  credentials: CredentialResolver,
  context: CredentialContext,
): Promise<string> {
  const value = (await credentials.resolve(context, [name])).get(name);
  if (value !== undefined && !isBlank(value)) return value;
  throw withDelivery(
    new GatewayError(
      "credential_missing",
      `Credential '${name}' is not set; add it with PUT /v1/credentials/${encodeURIComponent(name)}.`,
      { param: name },
    ),
    "not_sent",
  );
}

/**
 * A secret that becomes a header, or a part of one, as it is.
 * @throws GatewayError as `openSecret`; `credential_invalid` for what a header cannot carry
 */
export async function openHeaderSecret(
  reference: SecretReference,
  credentials: CredentialResolver,
  context: CredentialContext,
): Promise<string> {
  return requireHeaderValue(reference, await openSecret(reference, credentials, context));
}

/** @throws GatewayError `credential_invalid`; `not_sent` */
export function requireHeaderValue({ credential: name }: SecretReference, value: string): string {
  if (isHeaderValue(value)) return value;
  throw withDelivery(
    new GatewayError(
      "credential_invalid",
      `Credential '${name}' holds characters that a header cannot carry; set it again with PUT /v1/credentials/${encodeURIComponent(name)}.`,
      { param: name },
    ),
    "not_sent",
  );
}
