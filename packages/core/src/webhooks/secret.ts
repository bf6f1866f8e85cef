/** Secrets of webhooks, `whsec_` and base64, and signatures with them (Standard Webhooks, scheme `v1`). */
import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import type { Sealer } from "../secrets/sealer.ts";

const prefix = "whsec_";

export interface SecretOwner {
  readonly tenant: string;
  readonly wrappedKey: string;
  readonly webhookId: string;
}

/** A new secret: to be shown once, and as it is stored. */
export async function newWebhookSecret(
  sealer: Sealer,
  owner: SecretOwner,
): Promise<{ readonly secret: string; readonly sealed: string }> {
  const secret = prefix + randomBytes(32).toString("base64");
  return { secret, sealed: await sealer.seal(owner.tenant, owner.wrappedKey, aadOf(owner), secret) };
}

/** @throws GatewayError `credential_unreadable` */
export function openWebhookSecret(sealer: Sealer, owner: SecretOwner, sealed: string): Promise<string> {
  return sealer.open(owner.tenant, owner.wrappedKey, aadOf(owner), sealed);
}

export interface SignedMessage {
  readonly id: string;
  /** Unix seconds. */
  readonly timestamp: number;
  readonly body: string;
}

/** The value of `webhook-signature`: one signature for each secret. */
export function signMessage({ id, timestamp, body }: SignedMessage, secrets: readonly string[]): string {
  return secrets
    .map((secret) => {
      const key = Buffer.from(secret.slice(prefix.length), "base64");
      return `v1,${createHmac("sha256", key).update(`${id}.${timestamp}.${body}`).digest("base64")}`;
    })
    .join(" ");
}

/** @param signatures the header's value: several, divided by blanks, while a sender changes its secret */
export function verifyMessage(message: SignedMessage, signatures: string, secret: string): boolean {
  const expected = Buffer.from(signMessage(message, [secret]));
  return signatures.split(" ").some((signature) => {
    const given = Buffer.from(signature);
    return given.length === expected.length && timingSafeEqual(given, expected);
  });
}

function aadOf({ webhookId }: SecretOwner): readonly string[] {
  return ["webhook", webhookId];
}
