/** Where a back end that speaks OpenAI's format is asked, and with which proof. */
import { GatewayError } from "../../errors/gateway-error.ts";
import type { ProviderRecord } from "./provider.ts";

const chatEndpoints = new WeakMap<ProviderRecord, string>();

export function chatEndpoint(provider: ProviderRecord): string {
  let url = chatEndpoints.get(provider);
  if (url === undefined) chatEndpoints.set(provider, (url = endpoint(provider, "/chat/completions")));
  return url;
}

export function endpoint({ baseUrl, name }: ProviderRecord, path: string): string {
  if (!URL.canParse(baseUrl)) {
    throw new GatewayError("provider_failed", `Provider '${name}' has a base_url that is not a URL: '${baseUrl}'.`);
  }
  // A query in the address (`?api-version=…`) stays one.
  const url = new URL(baseUrl);
  const base = url.pathname.replace(/\/+$/, "").replace(/\/chat\/completions$/, "");
  url.pathname = base + path;
  return url.href;
}

export const sensitiveHeaders = ["authorization", "api-key"];

/** Deployments at Azure (`…/deployments/x?api-version=…`) look for keys in a header of their own, for tokens in the usual one. */
export function proofOf(apiKey: string, provider: ProviderRecord): [name: string, value: string][] {
  const usual: [string, string] = ["authorization", bearer(apiKey, provider)];
  const isToken = /^ey[\w-]+\.[\w-]+\.[\w-]+$/.test(apiKey);
  return isToken || !/\/deployments\/[^/?#]/.test(provider.baseUrl) ? [usual] : [usual, ["api-key", apiKey]];
}

function bearer(apiKey: string, provider: ProviderRecord): string {
  if (/^[\x21-\x7e]+$/.test(apiKey)) return `Bearer ${apiKey}`;
  throw new GatewayError(
    "credential_invalid",
    `The credential '${provider.credential ?? ""}' of provider '${provider.name}' is empty or holds characters that no HTTP header may carry; store it again without blanks and line ends.`,
    { param: provider.credential ?? "credential" },
  );
}

/**
 * Servers that ask for no key are given a word ("anything", "not-needed"), which stands in answers for other reasons;
 * as the header that carries it, it is none.
 */
export function isRealKey(apiKey: string): boolean {
  return apiKey.length >= 16 && /\d/.test(apiKey) && /[A-Za-z]/.test(apiKey);
}
