/**
 * Settings that name what there is not. They are taken, since a base or a provider may be made after them, and told
 * of with the settings: what they lead to is silent (a chat without its knowledge) or comes late (a chat's refusal).
 */
import { agentModelOf } from "../agents/agent.ts";
import { resolveRoute } from "../chat/providers/route.ts";
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { readEveryPage } from "../every-page.ts";
import type { TenantConfig } from "../tenant-config.ts";
import { findTool, loadScheme } from "../tools/catalog.ts";

const modelSettings = ["default_model", "deep_search_model", "media_translation_model"] as const;

/** One sentence a name, for whoever manages the tenant; asks the database only about names that there are. */
export async function settingWarnings(deps: CoreDeps, context: CallContext): Promise<readonly string[]> {
  const { settings } = context.config;
  const models = modelSettings.flatMap((setting) => {
    const model = settings[setting];
    if (model === undefined || isServed(deps, context.config, model)) return [];
    return [warn(setting, model, "which no provider serves; see GET /v1/models")];
  });
  const [sources, bases, issuers] = await Promise.all([
    Promise.all(settings.deep_search_sources.map((source) => sourceWarning(deps, context, source))),
    Promise.all(settings.chat_knowledge_bases.map((base) => baseWarning(deps, context, base))),
    issuerWarnings(deps, context),
  ]);
  return [...models, ...sources.flat(), ...bases.flat(), ...issuers];
}

function warn(setting: string, name: string, why: string): string {
  return `'${setting}' names '${name}', ${why}.`;
}

function isServed(deps: CoreDeps, config: TenantConfig, model: string): boolean {
  if (config.agents.some((agent) => agent.enabled && agentModelOf(agent) === model)) return true;
  return holds(() => resolveRoute(config, model, deps.defaultProvider));
}

async function sourceWarning(
  { adapters }: CoreDeps,
  context: CallContext,
  source: TenantConfig["settings"]["deep_search_sources"][number],
): Promise<readonly string[]> {
  const name = typeof source === "string" ? source : source.tool;
  await loadScheme(adapters, name);
  const isThere = holds(() => findTool(adapters, context, name));
  return isThere ? [] : [warn("deep_search_sources", name, "and there is no such tool; see GET /v1/tools")];
}

async function baseWarning({ repos }: CoreDeps, { tenant }: CallContext, base: string): Promise<readonly string[]> {
  const isThere = (await repos.knowledge.getBase(tenant, base)) !== undefined;
  return isThere
    ? []
    : [warn("chat_knowledge_bases", base, "and there is no such knowledge base, so chats are answered without it")];
}

async function issuerWarnings({ repos }: CoreDeps, { tenant, config }: CallContext): Promise<readonly string[]> {
  const { mcp_authorization_servers: servers } = config.settings;
  if (servers.length === 0) return [];
  const trusted = await readEveryPage((page) => repos.issuers.list(tenant, page));
  return servers
    .filter((server) => !trusted.some(({ issuer }) => issuer === server))
    .map((server) =>
      warn("mcp_authorization_servers", server, "whose tokens are refused; make it trusted with POST /v1/issuers"),
    );
}

function holds(look: () => unknown): boolean {
  try {
    look();
    return true;
  } catch (thrown) {
    if (thrown instanceof GatewayError) return false;
    throw thrown;
  }
}
