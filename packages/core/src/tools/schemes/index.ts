/** One line per scheme that this gateway can reach; lists and dispatch follow from it. */
import { createCredentialResolver } from "../../blind/credential-resolver.ts";
import { ReplyCache } from "../../blind/reply-cache.ts";
import type { AdapterDeps } from "../../deps.ts";
import type { Adapters } from "../catalog.ts";
import { createNativeAdapter } from "./native.ts";
import { createPluginAdapter } from "./plugin.ts";

export function createAdapters(deps: AdapterDeps): Adapters {
  return {
    plugin: createPluginAdapter({
      egress: deps.egress,
      credentials: createCredentialResolver(deps),
      tokens: deps.tokens,
      replies: new ReplyCache(),
    }),
    native: createNativeAdapter(deps),
  } satisfies Adapters;
}
