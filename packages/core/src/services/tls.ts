/**
 * TLS of a service: authorities to trust besides the system's, and a certificate of the caller's own
 * (mTLS). The key is a secret like any other; line breaks of one that came through the credentials' route
 * are written as `\n`.
 */
import { X509Certificate } from "node:crypto";
import * as z from "zod";
import type { CredentialResolver } from "../blind/credential-resolver.ts";
import type { CallContext } from "../context.ts";
import type { EgressTls } from "../ports/egress.ts";
import { secretField, type SecretReference } from "./config-fields.ts";
import { openSecret } from "./open-secret.ts";

const certificates = (description: string): z.ZodString =>
  z
    .string()
    .max(65_536)
    .refine(isCertificates, "must be certificates in PEM form (-----BEGIN CERTIFICATE-----)")
    .meta({ description });

function isCertificates(text: string): boolean {
  const blocks = text.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
  try {
    for (const block of blocks) new X509Certificate(block);
  } catch {
    return false;
  }
  return blocks.length > 0;
}

export const tlsField = z
  .strictObject({
    ca: certificates("Authorities to trust besides the system's, in PEM form.").optional(),
    cert: certificates("The caller's own certificate, in PEM form.").optional(),
    key: secretField("Its private key, in PEM form.").optional(),
    server_name: z
      .string()
      .regex(/^[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$/, "must be a host name")
      .optional()
      .meta({ description: "Name that the other side's certificate must be for, where that is not its address." }),
  })
  .refine(({ cert, key }) => (cert === undefined) === (key === undefined), {
    error: "needs 'cert' and 'key' together",
    path: ["cert"],
  })
  .meta({ description: "TLS beyond what the system trusts." });

/** Made once for each configuration and key. */
const opened = new WeakMap<object, { readonly key: string | undefined; readonly tls: EgressTls }>();

/** @throws GatewayError `credential_missing`, `credential_unreadable` naming the key's credential; `not_sent` */
export async function openTls(
  tls: z.output<typeof tlsField> | undefined,
  credentials: CredentialResolver,
  context: CallContext,
): Promise<EgressTls | undefined> {
  if (tls === undefined) return undefined;
  const key = tls.key === undefined ? undefined : await openPem(tls.key, credentials, context);
  const known = opened.get(tls);
  if (known?.key === key && known !== undefined) return known.tls;
  const made: EgressTls = {
    ...(tls.ca === undefined ? {} : { ca: [tls.ca] }),
    ...(tls.cert === undefined ? {} : { cert: tls.cert }),
    ...(key === undefined ? {} : { key }),
    ...(tls.server_name === undefined ? {} : { serverName: tls.server_name }),
  };
  opened.set(tls, { key, tls: made });
  return made;
}

/** A key in PEM form: line breaks of one that was put into one line are written as `\n`. */
export async function openPem(
  reference: SecretReference,
  credentials: CredentialResolver,
  context: CallContext,
): Promise<string> {
  const value = await openSecret(reference, credentials, context);
  context.redactor.add(value);
  const pem = value.replaceAll("\\n", "\n");
  context.redactor.add(pem);
  return pem;
}
