/**
 * Which tools the model is told of, and who runs a call of each (CHAT-4, CHAT-5, BLIND-9). What is
 * offered is exactly what the caller may run.
 */
import { isBoundByName } from "../callers/caller.ts";
import type { CallContext } from "../context.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../json.ts";
import { listTools, type Adapters } from "../tools/catalog.ts";
import { aliasOf } from "../tools/alias.ts";
import { compileTool } from "../tools/compiled.ts";
import type { DispatchItem } from "../tools/prepare.ts";
import type { SchemaFamily } from "../tools/schema-projection.ts";
import { callToolName, foundCall, foundSearch, searchOffer, searchToolName, unwrapCall } from "../tools/tool-search.ts";
import type { Tool } from "../tools/tool.ts";
import type { ChatRequest, ToolProtocol } from "./schema.ts";

export interface Offer {
  /** All that the caller may run, by the name that the model uses. */
  readonly gatewayTools: ReadonlyMap<string, Tool>;
  /** Those of them that the model is told of; the others it can find where `isSearched`. */
  readonly listed: readonly Tool[];
  /** There are too many tools to tell of all: the model searches. */
  readonly isSearched: boolean;
  /** For the model back end; undefined where there is nothing to offer. */
  readonly tools: readonly JsonObject[] | undefined;
  /** The same for back ends that read schemas in another way. */
  readonly toolsFor: (family: SchemaFamily) => readonly JsonObject[] | undefined;
  /** A turn may hold calls of both sides. */
  readonly mayMix: boolean;
  /** The gateway runs what the model asks for. */
  readonly runsTools: boolean;
}

/** What a chat in this protocol is offered. */
export function offerIn(
  protocol: ToolProtocol,
  adapters: Adapters,
  { context, request }: { readonly context: CallContext; readonly request: ChatRequest },
): Offer {
  return protocol === "vcp" ? offerForText(request) : makeOffer(adapters, context, request);
}

/** For a model that asks in its text: it is told of the client's own functions only. */
function offerForText(request: ChatRequest): Offer {
  const tools = request.tools.length === 0 ? undefined : request.tools;
  checkToolChoice(
    request,
    request.clientToolNames,
    " in 'tools'; others are not chosen where the model asks in its text",
  );
  const isForbidden = request.toolChoice === "none" || allowedBy(request.toolChoice) !== undefined;
  const runsTools = !request.manual && request.choices === 1 && !isForbidden;
  return {
    gatewayTools: new Map(),
    listed: [],
    isSearched: false,
    tools,
    toolsFor: () => tools,
    mayMix: runsTools && tools !== undefined,
    runsTools,
  };
}

/** For models that are told of no tools. */
export const noOffer: Offer = {
  gatewayTools: new Map(),
  listed: [],
  isSearched: false,
  tools: undefined,
  toolsFor: () => undefined,
  mayMix: false,
  runsTools: false,
};

/** Of requests that bring nothing of their own to it, by the caller's tools. */
const plainOffers = new WeakMap<readonly Tool[], Map<string, Offer>>();

export function makeOffer(adapters: Adapters, context: CallContext, request: ChatRequest): Offer {
  if (request.tools.length > 0 || request.toolChoice !== undefined || context.runtimeConfig !== undefined) {
    return newOffer(adapters, context, request);
  }
  const tools = listTools(adapters, context);
  let offers = plainOffers.get(tools);
  if (offers === undefined) plainOffers.set(tools, (offers = new Map<string, Offer>()));
  const kind = `${request.sessionId !== undefined} ${request.manual} ${request.choices > 1}`;
  let offer = offers.get(kind);
  if (offer === undefined) offers.set(kind, (offer = newOffer(adapters, context, request)));
  return offer;
}

function newOffer(adapters: Adapters, context: CallContext, request: ChatRequest): Offer {
  const gatewayTools = gatewayToolsFor(adapters, context, request);
  const clientTools = request.tools.filter((tool) => !gatewayTools.has(aliasOf(nameOf(tool) ?? "")));
  const isSearched = mustSearch({ tools: gatewayTools, clients: clientTools.length }, context, request);
  const listed = isSearched ? listedBesideSearch(gatewayTools, request) : [...gatewayTools.values()];
  const told = isSearched ? [...listed, ...searchOffer] : listed;
  const toolsFor = (family: SchemaFamily): readonly JsonObject[] | undefined => {
    const tools = [...clientTools, ...told.map((tool) => compileTool(tool).wireFor(family))];
    return tools.length === 0 ? undefined : tools;
  };
  checkToolChoice(
    request,
    new Set([
      ...clientTools.flatMap((tool) => nameOf(tool) ?? []),
      ...gatewayTools.keys(),
      ...told.map(({ name }) => name),
    ]),
  );
  return {
    gatewayTools,
    listed,
    isSearched,
    tools: toolsFor("openai"),
    toolsFor,
    mayMix: clientTools.length > 0 && gatewayTools.size > 0,
    runsTools: gatewayTools.size > 0,
  };
}

/** The same with tools of the conversation's own, which no caller has. */
export function withTools(offer: Offer, own: readonly Tool[], hasClientTools: boolean): Offer {
  if (own.length === 0) return offer;
  const toolsFor = (family: SchemaFamily): readonly JsonObject[] => [
    ...(offer.toolsFor(family) ?? []),
    ...own.map((tool) => compileTool(tool).wireFor(family)),
  ];
  return { ...offer, tools: toolsFor("openai"), toolsFor, mayMix: hasClientTools, runsTools: true };
}

/** A choice that names tools of ours, by the names that the model knows them by. */
export function choiceFor(offer: Offer, choice: JsonValue): JsonValue {
  if (!isJsonObject(choice)) return choice;
  const allowed = allowedIn(choice);
  if (allowed === undefined) return knownAs(offer, choice);
  const named = namedIn(allowed);
  const tools = named.map((tool) => knownAs(offer, tool));
  // What is as it came can be sent in the request's own bytes.
  return tools.every((tool, at) => tool === named[at]) ? choice : { ...choice, allowed_tools: { ...allowed, tools } };
}

function knownAs({ gatewayTools }: Offer, named: JsonObject): JsonObject {
  const name = nameOf(named);
  if (name === undefined) return named;
  const alias = aliasOf(name);
  return alias !== name && gatewayTools.has(alias) ? { type: "function", function: { name: alias } } : named;
}

/** What holds of a choice beyond the first turn: were a tool forced there, too, the model could never answer. */
export function choiceAfter(choice: JsonValue | undefined): JsonValue | undefined {
  const allowed = allowedIn(choice);
  if (!isJsonObject(choice) || allowed === undefined) return undefined;
  return { ...choice, allowed_tools: { ...allowed, mode: "auto" } };
}

/** Names of the only tools that the model may call; undefined: the choice allows all. */
export function allowedBy(choice: JsonValue | undefined): readonly string[] | undefined {
  const allowed = allowedIn(choice);
  return allowed && namedIn(allowed).flatMap((tool) => nameOf(tool) ?? []);
}

function allowedIn(choice: JsonValue | undefined): JsonObject | undefined {
  const allowed = isJsonObject(choice) ? choice["allowed_tools"] : undefined;
  return isJsonObject(allowed) ? allowed : undefined;
}

function namedIn({ tools }: JsonObject): JsonObject[] {
  return Array.isArray(tools) ? tools.filter(isJsonObject) : [];
}

/** Is a call of this name run by us? */
export function isOurs(offer: Offer, name: string): boolean {
  return offer.gatewayTools.has(name) || (offer.isSearched && searchOffer.some((tool) => tool.name === name));
}

/** What a model's call means: a search, the call inside a `call_tool`, or a tool by its own name or alias. */
export function dispatchItemOf(
  offer: Offer,
  { name, arguments: given }: { readonly name: string; readonly arguments: string },
): DispatchItem {
  if (offer.isSearched && name === searchToolName) {
    return { target: name, arguments: given, found: foundSearch(offer.gatewayTools) };
  }
  if (offer.isSearched && name === callToolName) {
    const inner = unwrapCall(given);
    return inner === undefined
      ? { target: name, arguments: given, found: foundCall() }
      : itemByName(offer, inner.name, inner.arguments);
  }
  return itemByName(offer, name, given);
}

function itemByName(offer: Offer, name: string, given: DispatchItem["arguments"]): DispatchItem {
  const tool = offer.gatewayTools.get(name);
  // The address where the model's name is an alias, which nothing but the offer knows.
  const target = tool === undefined || tool.name === name ? name : tool.uri;
  return { target, arguments: given, isOffered: tool !== undefined };
}

/** Tools in all for which GPT models, and others, refuse the whole request. */
const mostOfBackEnds = 128;
/** Those that search, and the reader of results; where they do not fit either, searching helps no request. */
const mostBesideSearch = searchOffer.length + 1;

/** Where a tool has the name of ours, or the client runs all calls itself or says which there may be, the model is told of all. */
function mustSearch(
  { tools, clients }: { readonly tools: ReadonlyMap<string, Tool>; readonly clients: number },
  { config }: CallContext,
  request: ChatRequest,
): boolean {
  const { tools_offered_max: mostTools, tool_tokens_max: mostTokens } = config.settings;
  if (request.manual || allowedBy(request.toolChoice) !== undefined) return false;
  if (searchOffer.some(({ name }) => tools.has(name) || request.clientToolNames.has(name))) return false;
  const most = Math.max(mostTools, mostOfBackEnds);
  if (tools.size > mostTools || (tools.size + clients > most && clients + mostBesideSearch <= most)) return true;
  let tokens = 0;
  for (const tool of tools.values()) tokens += compileTool(tool).tokens;
  return tokens > mostTokens;
}

function listedBesideSearch(tools: ReadonlyMap<string, Tool>, request: ChatRequest): Tool[] {
  const choice = request.toolChoice;
  const named = isJsonObject(choice) ? nameOf(choice) : undefined;
  const chosen = named === undefined ? undefined : aliasOf(named);
  return [...tools].filter(([name]) => name === resultReader || name === chosen).map(([, tool]) => tool);
}

function gatewayToolsFor(adapters: Adapters, context: CallContext, request: ChatRequest): ReadonlyMap<string, Tool> {
  // Several answers to one question cannot each go on with results of their own.
  if (request.choices > 1 || request.toolChoice === "none") return new Map();
  const allowed = allowedBy(request.toolChoice);
  const allowedAliases = allowed && new Set(allowed.map(aliasOf));
  const usable = listTools(adapters, context).filter((tool) => {
    if (allowedAliases?.has(compileTool(tool).alias) === false) return false;
    if (isClients(request, tool) && request.sessionId === undefined) return false;
    // Workspace tools need a workspace; a request that names no session does not ask for one.
    if (tool.kind !== "NATIVE" || tool.needsNoSession === true || request.sessionId !== undefined) return true;
    return isBoundByName(context.caller, tool.name);
  });
  const offered = new Map(usable.map((tool) => [compileTool(tool).alias, tool]));
  const needsReader = usable.length > 0 && !offered.has(resultReader) && allowedAliases?.has(resultReader) !== false;
  const reader = needsReader ? findResultReader(adapters, context, request) : undefined;
  if (reader !== undefined) offered.set(reader.name, reader);
  return offered;
}

/** The client lists it, by its own name or the one that models know it by. */
function isClients({ clientToolNames }: ChatRequest, tool: Tool): boolean {
  return clientToolNames.has(tool.name) || clientToolNames.has(compileTool(tool).alias);
}

/** Whoever gets results may read on where one was cut. */
const resultReader = "read_result";

function findResultReader(adapters: Adapters, context: CallContext, request: ChatRequest): Tool | undefined {
  if (request.clientToolNames.has(resultReader)) return undefined;
  return listTools(adapters, context).find((tool) => tool.name === resultReader);
}

function nameOf(tool: JsonObject): string | undefined {
  const inner = tool["function"] ?? tool["custom"];
  return isJsonObject(inner) && typeof inner["name"] === "string" ? inner["name"] : undefined;
}

/** @param among where `known` ones are, for people, if nowhere else */
function checkToolChoice({ toolChoice: choice }: ChatRequest, known: ReadonlySet<string>, among?: string): void {
  if (choice === undefined) return;
  if (choice === "required" && known.size === 0) {
    throw new GatewayError(
      "invalid_request",
      `tool_choice: 'required' needs at least one tool${among ?? ", in 'tools' or enabled for this key"}`,
      { param: "tool_choice" },
    );
  }
  const named = isJsonObject(choice) ? nameOf(choice) : undefined;
  const unknown = [...(named === undefined ? [] : [named]), ...(allowedBy(choice) ?? [])].find(
    (name) => !known.has(name),
  );
  if (unknown === undefined) return;
  throw new GatewayError("tool_not_found", `Tool '${unknown}' not found${among ?? ""}`, {
    param: "tool_choice",
    toolName: unknown,
  });
}
