/** What a request asks for and its caller may use, before any of it is on record. */
import {
  createCredentialResolver,
  describeMissing,
  findCredential,
  missingCredentials,
} from "../blind/credential-resolver.ts";
import { parseRuntimeConfig } from "../blind/register.ts";
import type { Amount } from "../budgets/budget.ts";
import { reserveChat } from "../budgets/reservation.ts";
import { isAgentModel } from "../agents/agent.ts";
import type { AgentRun } from "../agents/agent-run.ts";
import type { Caller } from "../callers/caller.ts";
import type { Call } from "../calls/call.ts";
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { newId } from "../ids.ts";
import { forImageModel, isImageChat, parseExchange } from "../models/special.ts";
import { requireConnection } from "../oauth/connect.ts";
import { Redactor } from "../secrets/redactor.ts";
import type { TenantConfig } from "../tenant-config.ts";
import { noOffer, offerIn, type Offer } from "./offer.ts";
import { resolveRoute, type Route } from "./providers/route.ts";
import { parseChatRequest, type ChatRequest, type ToolProtocol } from "./schema.ts";
import type { ChatInput } from "./opened-chat.ts";

export interface PreparedRequest {
  readonly request: ChatRequest;
  readonly agent: AgentRun | undefined;
  readonly protocol: ToolProtocol;
  readonly isRelayed: boolean;
  readonly context: CallContext;
  readonly offer: Offer;
  readonly routes: readonly Route[];
  readonly reserved: Amount | undefined;
  readonly credential: (name: string) => Promise<string>;
}

interface Known {
  readonly caller: Caller;
  readonly config: TenantConfig;
  /** The attempt at the same request that this one goes on with. */
  readonly earlier: Call | undefined;
}

/** @throws GatewayError whatever is wrong with the request, or with what its tools need */
export async function prepareRequest(
  deps: CoreDeps,
  input: ChatInput,
  { caller, config, earlier }: Known,
): Promise<PreparedRequest> {
  const asked = input.exchange === undefined ? parseChatRequest(input.body) : parseExchange(input.body, input.exchange);
  const isPicture = input.exchange === undefined && isImageChat(config.settings, asked);
  const isRelayed = isPicture || input.exchange !== undefined;
  const brought =
    asked.runtimeConfig === undefined
      ? input.inner?.runtimeConfig
      : parseRuntimeConfig(asked.runtimeConfig, { egress: deps.egress });
  const known: CallContext = {
    tenant: input.tenant,
    caller,
    config,
    requestId: input.requestId,
    traceId: input.traceId,
    span: input.span,
    redactor: new Redactor(),
    ...(brought === undefined ? {} : { runtimeConfig: brought }),
  };
  const agentModel = isRelayed ? undefined : agentModelOf(config, asked);
  const agent = agentModel === undefined ? undefined : await agentOf(deps, known, { model: agentModel, asked, input });
  const { context } = agent ?? { context: known };
  const request = agent?.request ?? (isPicture ? forImageModel(asked) : asked);
  const protocol = agent?.protocol ?? protocolOf(input, request, config);
  const offer = isRelayed ? noOffer : (agent?.offer ?? offerIn(protocol, deps.adapters, { context, request }));
  // Files that an attempt before has written are in its session, and what comes late of its calls is told there.
  const session = request.sessionId ?? (offer.runsTools ? (earlier?.sessionId ?? newId("session")) : undefined);
  const placed: CallContext = session === undefined ? context : { ...context, sessionId: session };
  if (session !== undefined) agent?.workIn(session);
  if (offer.listed.length > 0) await checkCredentials(deps, placed, offer);
  const routes = resolveRoute(config, request.model, deps.defaultProvider);
  return {
    request,
    agent,
    protocol,
    isRelayed,
    context: placed,
    offer,
    routes,
    reserved: reserveChat({ config, caller }, { request, tools: offer.tools, routes }, deps.clock),
    credential: async (name) => {
      const value = (await createCredentialResolver(deps).resolve(placed, [name])).get(name);
      if (value === undefined) {
        throw new GatewayError(
          "credential_missing",
          `The model back end needs the credential '${name}', which is not stored; add it with PUT /v1/credentials/${name}.`,
          { param: name },
        );
      }
      placed.redactor.add(value);
      return value;
    },
  };
}

function agentModelOf({ settings }: TenantConfig, asked: ChatRequest): string | undefined {
  const model = asked.model ?? settings.default_model;
  return isAgentModel(model) ? model : undefined;
}

/** What it takes to be an agent is read for the chats that ask for one. */
async function agentOf(
  deps: CoreDeps,
  context: CallContext,
  asked: { readonly model: string; readonly asked: ChatRequest; readonly input: ChatInput },
): Promise<AgentRun | undefined> {
  const { openAgentRun } = await import("../agents/agent-run.ts");
  return openAgentRun(deps, context, asked);
}

function protocolOf({ vcp }: ChatInput, { toolProtocol }: ChatRequest, { settings }: TenantConfig): ToolProtocol {
  return vcp !== undefined ? "vcp" : (toolProtocol ?? settings.tool_protocol);
}

/** Presence and readability of what the offered tools need, before the model is asked (BLIND-5). */
async function checkCredentials(deps: CoreDeps, context: CallContext, offer: Offer): Promise<void> {
  const names = new Set(offer.listed.flatMap((tool) => tool.requiredCredentials));
  if (names.size === 0) return;
  for (const tool of offer.listed) {
    const missing = missingCredentials(context, tool.requiredCredentials)[0];
    if (missing === undefined) continue;
    throw new GatewayError(
      "credential_missing",
      `Tool '${tool.name}' needs the credential '${missing}', which ${describeMissing(context, missing)}, or disable the tool.`,
      { param: missing, toolName: tool.name },
    );
  }
  await checkReadable(deps, context, names);
  for (const tool of offer.listed) await requireConnection(deps, context, tool);
}

/** What could be opened stays readable for as long as the snapshot does. */
const readable = new WeakMap<TenantConfig, Set<string>>();

async function checkReadable(deps: CoreDeps, context: CallContext, names: ReadonlySet<string>): Promise<void> {
  const known = readable.get(context.config) ?? new Set<string>();
  readable.set(context.config, known);
  const identity = (name: string): string => `${context.caller.userId ?? ""} ${name}`;
  // Values of the request's own are there and readable, and say nothing of those that are stored.
  const unknown = [...names].filter(
    (name) => !known.has(identity(name)) && findCredential(context, name)?.level !== "inline",
  );
  if (unknown.length === 0) return;
  await createCredentialResolver(deps).resolve(context, unknown);
  for (const name of unknown) known.add(identity(name));
}
