/**
 * One line per scheme that this gateway can reach; lists and dispatch follow from it. Schemes of tool services
 * are read when there is a tenant with such a service: all of them together would be a third of a function's
 * start.
 */
import { createCredentialResolver } from "../../blind/credential-resolver.ts";
import { ReplyCache } from "../../blind/reply-cache.ts";
import type { AdapterDeps } from "../../deps.ts";
import type { CoreDeps } from "../../core-deps.ts";
import { HeldConnections } from "../../services/held-connections.ts";
import { createServiceAdapter } from "../../services/runtime.ts";
import type { SchemeDeps, ServiceScheme } from "../../services/scheme.ts";
import type { TenantConfig } from "../../tenant-config.ts";
import type { Adapters } from "../catalog.ts";
import type { ToolScheme } from "../uri.ts";
import { createGroupAdapter } from "./group.ts";
import { LateAdapter } from "./late-adapter.ts";
import { createKnowledgeAdapter } from "./knowledge.ts";
import { createNativeAdapter } from "./native.ts";
import { createNodeAdapter } from "./node.ts";
import { createPluginAdapter } from "./plugin.ts";

/** Schemes whose back ends are tool services. */
export const serviceSchemes = {
  api: async () => (await import("./api.ts")).apiScheme,
  mail: async () => (await import("./mail.ts")).mailScheme,
  sms: async () => (await import("./sms.ts")).smsScheme,
  mcp: async () => (await import("./mcp.ts")).mcpScheme,
  oss: async () => (await import("./oss.ts")).ossScheme,
  mq: async () => (await import("./mq.ts")).mqScheme,
  svc: async () => (await import("./svc.ts")).svcScheme,
} as const satisfies { readonly [S in ToolScheme]?: () => Promise<ServiceScheme> };

export interface OpenAdapters {
  /** With all of them; those that call tools and models themselves are given it, too. */
  readonly core: CoreDeps;
  /** Before a tenant's configuration is used: the schemes of its services and plugins. */
  loadFor(config: Pick<TenantConfig, "services" | "plugins" | "agents" | "flows">): Promise<void>;
  /** For who answers about services of every scheme, and has the time. */
  loadAll(): Promise<void>;
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
  const services = new Map<string, LateAdapter>(
    Object.entries(serviceSchemes).map(([name, read]) => [
      name,
      new LateAdapter(name, async () => createServiceAdapter(await read(), schemeDeps)),
    ]),
  );
  const vcp = new LateAdapter("vcp", async () => (await import("./vcp.ts")).createVcpAdapter(deps));
  const agent = new LateAdapter("agent", async () => (await import("./agent.ts")).createAgentAdapter(() => core));
  const flow = new LateAdapter("flow", async () => (await import("./flow.ts")).createFlowAdapter(() => core));
  const adapters: Adapters = {
    plugin: createPluginAdapter(schemeDeps),
    native: createNativeAdapter(() => core),
    knowledge: createKnowledgeAdapter(() => core),
    group: createGroupAdapter(() => core),
    ...(Object.fromEntries(services) as Adapters),
    vcp,
    agent,
    flow,
    // Last: a name that anything else of the tenant has is not a node's.
    node: createNodeAdapter(deps),
  };
  const core: CoreDeps = { ...deps, adapters };
  return {
    core,
    async loadFor(config) {
      const wanted = new Set<string>(config.services.map(({ scheme }) => scheme));
      const isVcp = config.plugins.some(({ type }) => type === "VCP");
      if (isVcp) deps.tenantPlugins?.warm?.();
      await Promise.all([
        loadEach([...services].filter(([scheme]) => wanted.has(scheme))),
        isVcp ? vcp.load() : undefined,
        config.agents.length > 0 ? agent.load() : undefined,
        config.flows.length > 0 ? flow.load() : undefined,
      ]);
    },
    async loadAll() {
      await Promise.all([loadEach([...services]), vcp.load(), agent.load(), flow.load()]);
    },
    close: () => connections.close(),
  };
}

async function loadEach(adapters: readonly (readonly [string, LateAdapter])[]): Promise<void> {
  await Promise.all(adapters.map(([, adapter]) => adapter.load()));
}
