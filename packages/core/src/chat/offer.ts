/**
 * Which tools the model is told of, and who runs a call of each (CHAT-4, CHAT-5, BLIND-9). What is
 * offered is exactly what the caller may run.
 */
import { isBoundByName } from "../callers/caller.ts";
import type { CallContext } from "../context.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../json.ts";
import { listTools, type Adapters } from "../tools/catalog.ts";
import { aliasOf, compileTool } from "../tools/compiled.ts";
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
  checkToolChoice(request, request.clientToolNames);
  const runsTools = !request.manual && request.choices === 1 && request.toolChoice !== "none";
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
  const clientTools = request.tools.filter((tool) => !gatewayTools.has(nameOf(tool) ?? ""));
  const isSearched = mustSearch(gatewayTools, context, request);
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

/** A choice that names one of our tools, by the name that the model knows it by. */
export function choiceFor(offer: Offer, request: ChatRequest, choice: JsonValue): JsonValue {
  const name = isJsonObject(choice) ? nameOf(choice) : undefined;
  if (name === undefined || request.clientToolNames.has(name)) return choice;
  const alias = aliasOf(name);
  return alias !== name && offer.gatewayTools.has(alias) ? { type: "function", function: { name: alias } } : choice;
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

/** Where a tool has the name of ours, or the client runs all calls itself, the model is told of all. */
function mustSearch(tools: ReadonlyMap<string, Tool>, { config }: CallContext, request: ChatRequest): boolean {
  const { tools_offered_max: mostTools, tool_tokens_max: mostTokens } = config.settings;
  if (request.manual) return false;
  if (searchOffer.some(({ name }) => tools.has(name) || request.clientToolNames.has(name))) return false;
  if (tools.size > mostTools) return true;
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
  const usable = listTools(adapters, context).filter((tool) => {
    if (request.clientToolNames.has(compileTool(tool).alias) && request.sessionId === undefined) return false;
    // Workspace tools need a workspace; a request that names no session does not ask for one.
    if (tool.kind !== "NATIVE" || tool.needsNoSession === true || request.sessionId !== undefined) return true;
    return isBoundByName(context.caller, tool.name);
  });
  const offered = new Map(usable.map((tool) => [compileTool(tool).alias, tool]));
  const reader =
    usable.length === 0 || offered.has(resultReader) ? undefined : findResultReader(adapters, context, request);
  if (reader !== undefined) offered.set(reader.name, reader);
  return offered;
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

function checkToolChoice(request: ChatRequest, known: ReadonlySet<string>): void {
  const choice = request.toolChoice;
  if (choice === undefined) return;
  if (choice === "required" && known.size === 0) {
    throw new GatewayError(
      "invalid_request",
      "tool_choice: 'required' needs at least one tool, in 'tools' or enabled for this key",
      { param: "tool_choice" },
    );
  }
  const name = isJsonObject(choice) ? nameOf(choice) : undefined;
  if (name !== undefined && !known.has(name)) {
    throw new GatewayError("tool_not_found", `Tool '${name}' not found`, { param: "tool_choice", toolName: name });
  }
}
