/** The value behind a secret's reference, at the moment of use: first to the redactor, then to its place. */
import type { CredentialResolver } from "../blind/credential-resolver.ts";
import type { CallContext } from "../context.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { withDelivery } from "../tools/adapter.ts";
import type { SecretReference } from "./config-fields.ts";

/** @throws GatewayError `credential_missing`, `credential_unreadable` naming the credential; `not_sent` */
export async function openSecret(
  { credential: name }: SecretReference,
  credentials: CredentialResolver,
  context: CallContext,
): Promise<string> {
  const value = (await credentials.resolve(context, [name])).get(name);
  if (value === undefined || value === "") {
    throw withDelivery(
      new GatewayError(
        "credential_missing",
        `Credential '${name}' is not set; add it with PUT /v1/credentials/${encodeURIComponent(name)}.`,
        { param: name },
      ),
      "not_sent",
    );
  }
  context.redactor.add(value);
  return value;
}

/** A key in PEM form: line breaks of one that came through the credentials' route are written as `\n`. */
export async function openPem(
  reference: SecretReference,
  credentials: CredentialResolver,
  context: CallContext,
): Promise<string> {
  const pem = (await openSecret(reference, credentials, context)).replaceAll("\\n", "\n");
  context.redactor.add(pem);
  return pem;
}
