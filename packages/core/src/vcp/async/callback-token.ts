/**
 * How a callback proves itself (design "Callbacks"): by a token in the address that the plugin is given, which
 * names its call; or by a signature as Standard Webhooks has it, with a secret of the plugin. The token is kept
 * as a hash alone, and stands in no log.
 */
import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import type { CallContext } from "../../context.ts";
import type { AdapterDeps } from "../../deps.ts";
import { signMessage, type SignedMessage } from "../../webhooks/secret.ts";

export const callbackPath = "/plugin-callback";

interface CallbackToken {
  readonly token: string;
  /** SHA-256, hexadecimal. */
  readonly hash: string;
}

/** The tenant is part of it, since its database has to be found first. */
function newCallbackToken(tenant: string): CallbackToken {
  const token = `${tenant}.${randomBytes(32).toString("base64url")}`;
  return { token, hash: hashOf(token) };
}

/** Undefined for what is no token of ours. */
export function readCallbackToken(token: string): { readonly tenant: string; readonly hash: string } | undefined {
  const [, tenant] = /^([A-Za-z0-9_-]{1,64})\.[A-Za-z0-9_-]{43}$/.exec(token) ?? [];
  return tenant === undefined ? undefined : { tenant, hash: hashOf(token) };
}

function hashOf(token: string): string {
  return createHash("sha256").update(token).digest("hex");
}

/** Where plugins add `/{pluginName}/{taskId}`. */
function callbackBaseUrl(publicUrl: string, token: string): string {
  return `${publicUrl}${callbackPath}/t/${token}`;
}

/** The same for every call of a plugin: somebody else than its process may call back for it. */
export async function callbackSecret(
  { sealer }: Pick<AdapterDeps, "sealer">,
  { tenant, wrappedKey }: { readonly tenant: string; readonly wrappedKey: string },
  plugin: string,
): Promise<string> {
  const key = await sealer.sign(tenant, wrappedKey, `plugin-callback.v1.${plugin}`);
  return `whsec_${key.toString("base64")}`;
}

export interface CallbackSignature {
  /** `webhook-id`. */
  readonly id: string;
  /** `webhook-timestamp`: Unix seconds. */
  readonly timestamp: string;
  /** `webhook-signature`: one or more, with spaces between them. */
  readonly signature: string;
}

/** Seconds that a signature may be old, or early. */
const toleranceS = 300;

export function isSignedBy(
  secret: string,
  { id, timestamp, signature }: CallbackSignature,
  { body, now }: { readonly body: string; readonly now: number },
): boolean {
  const seconds = /^\d{1,12}$/.test(timestamp) ? Number(timestamp) : Number.NaN;
  if (!(Math.abs(now / 1_000 - seconds) <= toleranceS)) return false;
  const message: SignedMessage = { id, timestamp: seconds, body };
  const expected = Buffer.from(signMessage(message, [secret]));
  return signature.split(" ").some((each) => {
    const given = Buffer.from(each);
    return given.byteLength === expected.byteLength && timingSafeEqual(given, expected);
  });
}

export interface CallbackVariables {
  /** For the process. */
  readonly environment: Readonly<Record<string, string>>;
  readonly hash: string;
}

/** What the process is told, and kept from being told on. */
export async function callbackVariables(
  deps: Pick<AdapterDeps, "sealer" | "publicUrl">,
  { tenant, config, redactor }: Pick<CallContext, "tenant" | "config" | "redactor">,
  plugin: string,
): Promise<CallbackVariables> {
  const { token, hash } = newCallbackToken(tenant);
  const secret = await callbackSecret(deps, { tenant, wrappedKey: config.wrappedKey }, plugin);
  redactor.add(token);
  redactor.add(secret);
  return {
    hash,
    environment: {
      CALLBACK_BASE_URL: callbackBaseUrl(deps.publicUrl, token),
      PLUGIN_NAME_FOR_CALLBACK: plugin,
      CALLBACK_TENANT: tenant,
      CALLBACK_SECRET: secret,
    },
  };
}
