/**
 * Who would miss a tool service, or an agent (CFG-4). Each kind of referrer is one entry of `referrers`: whoever stores
 * tool URIs (flows, agents, schedules) adds one, and deletion and the route about references follow.
 */
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { readEveryPage } from "../every-page.ts";
import { encodeAddress, formatToolUri, parseToolUri } from "../tools/uri.ts";
import type { ToolService } from "./service.ts";
import { serviceToolName } from "./tool-name.ts";

export type Reference = {
  /** `api_key`, `call`, `tool_price`, … */
  readonly kind: string;
  readonly id: string;
  readonly name: string | null;
  /** Where in it: `tools`, `state`. */
  readonly field: string;
  /** What stands there. */
  readonly value: string;
};

/** What a referrer looks for. */
export interface ServiceAddress {
  /** `api://crm`; URIs of its tools go on with `/`. */
  readonly uri: string;
  /** How names of its tools begin, with which patterns may name them. */
  readonly namePrefix: string;
  readonly toolNames: ReadonlySet<string>;
}

export type Referrer = (
  deps: Pick<CoreDeps, "repos">,
  context: CallContext,
  address: ServiceAddress,
) => Promise<readonly Reference[]>;

/** One line for each kind of referrer. */
const referrers: readonly Referrer[] = [
  apiKeys,
  toolsets,
  callsUnderWay,
  toolPrices,
  subscriptions,
  flows,
  agents,
  schedules,
  groupChats,
];

export async function findReferences(
  deps: Pick<CoreDeps, "repos" | "adapters">,
  context: CallContext,
  record: ToolService,
): Promise<readonly Reference[]> {
  const tools = deps.adapters[record.scheme]?.services?.toolsOf(record) ?? [];
  return findReferencesTo(deps, context, {
    uri: formatToolUri(record.scheme, record.serviceId),
    namePrefix: `${serviceToolName(record.scheme, record.serviceId, "")}__`,
    toolNames: new Set(tools.map(({ name }) => name)),
  });
}

export async function findReferencesTo(
  deps: Pick<CoreDeps, "repos">,
  context: CallContext,
  address: ServiceAddress,
): Promise<readonly Reference[]> {
  const found = await Promise.all(referrers.map((referrer) => referrer(deps, context, address)));
  return found.flat();
}

/** Does a pattern, or a URI, name this service or a tool of it, rather than whatever there is? */
function namesService(text: string, { uri, namePrefix, toolNames }: ServiceAddress): boolean {
  if (text.includes("://")) {
    const address = encodeAddress(text.split("?", 1)[0] ?? "");
    return address === uri || address.startsWith(`${uri}/`);
  }
  return toolNames.has(text) || text.startsWith(namePrefix);
}

async function apiKeys(
  { repos }: Pick<CoreDeps, "repos">,
  { tenant }: CallContext,
  address: ServiceAddress,
): Promise<readonly Reference[]> {
  const keys = await readEveryPage((page) => repos.apiKeys.list(tenant, page));
  return keys
    .filter(({ revokedAt }) => revokedAt === null)
    .flatMap(({ id, name, tools }) =>
      (tools ?? [])
        .filter((pattern) => namesService(pattern, address))
        .map((pattern) => ({ kind: "api_key", id, name, field: "tools", value: pattern })),
    );
}

/** Parts of the tools that MCP clients are given. */
function toolsets(
  _deps: Pick<CoreDeps, "repos">,
  { config }: CallContext,
  address: ServiceAddress,
): Promise<readonly Reference[]> {
  const named = Object.entries(config.settings.mcp_toolsets).flatMap(([name, { tools }]) =>
    tools
      .filter((pattern) => namesService(pattern, address))
      .map((value) => ({ kind: "mcp_toolset", id: name, name, field: "tools", value })),
  );
  return Promise.resolve(named);
}

/** Calls that wait for their turn, their end or a person. */
async function callsUnderWay(
  { repos }: Pick<CoreDeps, "repos">,
  { tenant }: CallContext,
  { uri }: ServiceAddress,
): Promise<readonly Reference[]> {
  const calls = await repos.services.callsUnderWay(tenant, uri);
  return calls.map(({ id, tool, state }) => ({ kind: "call", id, name: tool, field: "state", value: state }));
}

function toolPrices(
  _deps: Pick<CoreDeps, "repos">,
  { config }: CallContext,
  address: ServiceAddress,
): Promise<readonly Reference[]> {
  const named = config.prices.own.filter(({ kind, pattern }) => kind === "tool" && namesService(pattern, address));
  return Promise.resolve(
    named.map(({ pattern }) => ({ kind: "tool_price", id: pattern, name: null, field: "pattern", value: pattern })),
  );
}

/** What takes messages from it, or makes calls of them. */
async function subscriptions(
  { repos }: Pick<CoreDeps, "repos">,
  { tenant }: CallContext,
  address: ServiceAddress,
): Promise<readonly Reference[]> {
  const all = await repos.subscriptions.all(tenant);
  return (all?.subscriptions ?? []).flatMap(({ id, name, serviceId, topic, target }) => {
    const named = { uri: formatToolUri("mq", serviceId, topic), "target.uri": target.uri };
    return Object.entries(named)
      .filter(([, value]) => namesService(value, address))
      .map(([field, value]) => ({ kind: "subscription", id, name, field, value }));
  });
}

/** What calls it at a time. */
async function schedules(
  { repos }: Pick<CoreDeps, "repos">,
  { tenant }: CallContext,
  address: ServiceAddress,
): Promise<readonly Reference[]> {
  const targets = await repos.schedules.targets(tenant);
  return targets
    .filter(({ target }) => namesService(target, address))
    .map(({ id, name, target }) => ({ kind: "schedule", id, name, field: "task", value: target }));
}

/** Steps of flows: of each flow the newest version that has it, or its draft. */
async function flows(
  { repos }: Pick<CoreDeps, "repos">,
  { tenant }: CallContext,
  address: ServiceAddress,
): Promise<readonly Reference[]> {
  const found = new Map<string, Reference>();
  for (const { id, name, version, refs } of await repos.flows.references(tenant)) {
    const of = version === null ? "draft" : `versions.${version}`;
    for (const { field, value } of refs) {
      const key = `${id} ${field} ${value}`;
      if (found.has(key) || !namesService(value, address)) continue;
      found.set(key, { kind: "flow", id, name, field: `${of}.${field}`, value });
    }
  }
  return [...found.values()];
}

/** Agents that may call it; of another agent also those that call it, or hand over to it. */
function agents(
  _deps: Pick<CoreDeps, "repos">,
  { config }: CallContext,
  address: ServiceAddress,
): Promise<readonly Reference[]> {
  return Promise.resolve(
    config.agents.flatMap(({ id, name, tools, agents: callees, handoffs }) => {
      const named = Object.entries({ tools, agents: callees.map(agentUri), handoffs: handoffs.map(agentUri) });
      return named.flatMap(([field, values]) =>
        values
          .filter((value) => namesService(value, address))
          .map((value) => ({ kind: "agent", id, name, field, value })),
      );
    }),
  );
}

/** Rooms in which an agent speaks, or which it leads. */
async function groupChats(
  { repos }: Pick<CoreDeps, "repos">,
  { tenant }: CallContext,
  { uri }: ServiceAddress,
): Promise<readonly Reference[]> {
  if (!uri.startsWith(agentUri(""))) return [];
  const rooms = await repos.groupChats.namingAgent(tenant, parseToolUri(uri).service);
  return rooms.map(({ id, name, field }) => ({ kind: "group_chat", id, name, field, value: uri }));
}

const agentUri = (name: string): string => formatToolUri("agent", name);

/** The error of who would delete what others use. */
export function referencedError(what: string, references: readonly Reference[]): GatewayError {
  const named = references.slice(0, mostNamed).map(({ kind, id, name }) => `${kind} '${name ?? id}'`);
  const more = references.length > mostNamed ? ` and ${references.length - mostNamed} more` : "";
  return new GatewayError(
    "service_referenced",
    `'${what}' is used by ${named.join(", ")}${more}; change those first, or repeat the request with ?force=true.`,
    { param: "force", extra: { references: references.map((reference) => ({ ...reference })) } },
  );
}

const mostNamed = 5;
