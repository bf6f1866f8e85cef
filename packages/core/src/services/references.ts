/**
 * Who would miss a tool service, or an agent (CFG-4). Each kind of referrer is one entry of `referrers`: whoever stores
 * tool URIs (flows, agents, schedules) adds one, and deletion and the route about references follow.
 */
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { everyPage } from "../every-page.ts";
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
  /** What stands there; empty where that is not known. */
  readonly value: string;
  /** Why it is not known: whoever holds something that cannot be read may refer to anything, so it counts. */
  readonly unreadable?: string;
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
  const found: Reference[] = [];
  for await (const { data, unreadable = [] } of everyPage((page) => repos.apiKeys.list(tenant, page))) {
    for (const { id, name, tools, revokedAt } of data) {
      if (revokedAt !== null) continue;
      const named = (tools ?? []).filter((pattern) => namesService(pattern, address));
      found.push(...named.map((value) => ({ kind: "api_key", id, name, field: "tools", value })));
    }
    found.push(...unreadable.map(({ id, message }) => unknownUse({ kind: "api_key", id, message })));
  }
  return found;
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
  const lost = config.unreadable.filter(
    ({ kind, id }) => kind === "setting" && ["mcp_toolsets", "settings"].includes(id),
  );
  return Promise.resolve([...named, ...lost.map(unknownUse)]);
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
  const lost = config.unreadable.filter(({ kind }) => kind === "tool_price");
  return Promise.resolve([
    ...named.map(({ pattern }) => ({ kind: "tool_price", id: pattern, name: null, field: "pattern", value: pattern })),
    ...lost.map(unknownUse),
  ]);
}

/** What takes messages from it, or makes calls of them. */
async function subscriptions(
  { repos }: Pick<CoreDeps, "repos">,
  { tenant }: CallContext,
  address: ServiceAddress,
): Promise<readonly Reference[]> {
  const all = await repos.subscriptions.all(tenant);
  const named = (all?.subscriptions ?? []).flatMap(({ id, name, serviceId, topic, target }) => {
    const uris = { uri: formatToolUri("mq", serviceId, topic), "target.uri": target.uri };
    return Object.entries(uris)
      .filter(([, value]) => namesService(value, address))
      .map(([field, value]) => ({ kind: "subscription", id, name, field, value }));
  });
  return [...named, ...(all?.unreadable ?? []).map((each) => unknownUse({ kind: "subscription", ...each }))];
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
  const { data, unreadable } = await repos.flows.references(tenant);
  for (const { id, name, version, refs } of data) {
    for (const { field, value } of refs) {
      const key = `${id} ${field} ${value}`;
      if (found.has(key) || !namesService(value, address)) continue;
      found.set(key, { kind: "flow", id, name, field: `${placeIn(version)}.${field}`, value });
    }
  }
  const lost = unreadable.map(({ id, name, version, message }) =>
    unknownUse({ kind: "flow", id, name, field: placeIn(version), message }),
  );
  return [...found.values(), ...lost];
}

const placeIn = (version: number | null): string => (version === null ? "draft" : `versions.${version}`);

/** Agents that may call it; of another agent also those that call it, or hand over to it. */
function agents(
  _deps: Pick<CoreDeps, "repos">,
  { config }: CallContext,
  address: ServiceAddress,
): Promise<readonly Reference[]> {
  const found = config.agents.flatMap(({ id, name, tools, agents: callees, handoffs }) => {
    const named = Object.entries({ tools, agents: callees.map(agentUri), handoffs: handoffs.map(agentUri) });
    return named.flatMap(([field, values]) =>
      values
        .filter((value) => namesService(value, address))
        .map((value) => ({ kind: "agent", id, name, field, value })),
    );
  });
  return Promise.resolve([...found, ...config.unreadable.filter(({ kind }) => kind === "agent").map(unknownUse)]);
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

interface UnknownUse {
  readonly kind: string;
  readonly id: string;
  readonly name?: string | null;
  readonly field?: string;
  readonly message: string;
}

function unknownUse({ kind, id, name = null, field = "", message }: UnknownUse): Reference {
  return { kind, id, name, field, value: "", unreadable: message };
}

/** The error of who would delete what others use, or may use. */
export function referencedError(what: string, references: readonly Reference[]): GatewayError {
  const known = references.filter(({ unreadable }) => unreadable === undefined);
  const unknown = references.filter(({ unreadable }) => unreadable !== undefined);
  const said = [
    ...(known.length === 0 ? [] : [`is used by ${nameSome(known)}`]),
    ...(unknown.length === 0 ? [] : [`may be used by ${nameSome(unknown)}`]),
  ];
  return new GatewayError(
    "service_referenced",
    `'${what}' ${said.join(", and ")}; change those first, or repeat the request with ?force=true.`,
    { param: "force", extra: { references: references.map((reference) => ({ ...reference })) } },
  );
}

const mostNamed = 5;

function nameSome(references: readonly Reference[]): string {
  const named = references.slice(0, mostNamed).map(({ kind, id, name, unreadable }) => {
    const why = unreadable === undefined ? "" : ` (${unreadable.replace(/\.$/, "")})`;
    return `${kind} '${name ?? id}'${why}`;
  });
  const more = references.length > mostNamed ? ` and ${references.length - mostNamed} more` : "";
  return named.join(", ") + more;
}
