/** One line per scheme that this gateway can reach; lists and dispatch follow from it. */
import { createCredentialResolver } from "../../blind/credential-resolver.ts";
import { ReplyCache } from "../../blind/reply-cache.ts";
import type { AdapterDeps } from "../../deps.ts";
import { HeldConnections } from "../../services/held-connections.ts";
import { createServiceAdapter } from "../../services/runtime.ts";
import type { SchemeDeps, ServiceScheme } from "../../services/scheme.ts";
import type { Adapters } from "../catalog.ts";
import type { ToolScheme } from "../uri.ts";
import { apiScheme } from "./api.ts";
import { mailScheme } from "./mail.ts";
import { mcpScheme } from "./mcp.ts";
import { mqScheme } from "./mq.ts";
import { createNativeAdapter } from "./native.ts";
import { createNodeAdapter } from "./node.ts";
import { ossScheme } from "./oss.ts";
import { createPluginAdapter } from "./plugin.ts";
import { smsScheme } from "./sms.ts";
import { svcScheme } from "./svc.ts";

/** Schemes whose back ends are tool services. */
export const serviceSchemes = {
  api: apiScheme,
  mail: mailScheme,
  sms: smsScheme,
  mcp: mcpScheme,
  oss: ossScheme,
  mq: mqScheme,
  svc: svcScheme,
} as const satisfies { readonly [S in ToolScheme]?: ServiceScheme };

export interface OpenAdapters {
  readonly adapters: Adapters;
  /** Ends what adapters hold. */
  close(): Promise<void>;
}

export function createAdapters(deps: AdapterDeps): OpenAdapters {
  const connections = new HeldConnections(deps.log);
  const schemeDeps: SchemeDeps = {
    ...deps,
    credentials: createCredentialResolver(deps),
    replies: new ReplyCache(),
    connections,
  };
  const services = Object.entries(serviceSchemes).map(([name, scheme]) => [
    name,
    createServiceAdapter(scheme, schemeDeps),
  ]);
  return {
    adapters: {
      plugin: createPluginAdapter(schemeDeps),
      native: createNativeAdapter(deps),
      ...(Object.fromEntries(services) as Adapters),
      // Last: a name that anything else of the tenant has is not a node's.
      node: createNodeAdapter(deps),
    },
    close: () => connections.close(),
  };
}
