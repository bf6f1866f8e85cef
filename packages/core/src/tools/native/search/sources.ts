/** Tools that can be searched by: which they are, and which of their arguments takes the query. */
import type { CallContext } from "../../../context.ts";
import type { CoreDeps } from "../../../core-deps.ts";
import { GatewayError, toGatewayError } from "../../../errors/gateway-error.ts";
import { isJsonObject, type JsonObject } from "../../../json.ts";
import { mayUseTool } from "../../../callers/caller.ts";
import { findTool } from "../../catalog.ts";
import type { Tool } from "../../tool.ts";
import { invalidInput } from "../native-tool.ts";

export interface SearchSource {
  readonly tool: Tool;
  /** As it was asked for: a URI may have options. */
  readonly target: string;
  /** The arguments of a search for this. */
  readonly argumentsFor: (query: string) => JsonObject;
}

interface Named {
  readonly target: string;
  readonly query?: string | undefined;
  readonly arguments?: JsonObject | undefined;
  /** By the tenant, who has answered for it. */
  readonly isConfigured: boolean;
}

const itself = "native://deep_search";
const usual = ["query", "q", "question", "keywords", "keyword", "search_query", "search", "text", "input", "prompt"];

/** @throws GatewayError `invalid_arguments` where there is none, naming the setting; or where one cannot be used */
export function sourcesFor(
  deps: Pick<CoreDeps, "adapters">,
  context: CallContext,
  asked: readonly string[] | undefined,
): readonly SearchSource[] {
  const configured = configuredSources(context);
  const named: readonly Named[] =
    asked === undefined
      ? withKnowledge(configured, context)
      : asked.map((target) => configured.find((one) => one.target === target) ?? { target, isConfigured: false });
  if (named.length === 0) throw noSources();
  if (asked !== undefined) return named.map((one) => toSource(deps, context, one));
  // What is configured and cannot be used by this caller is left out, as in a list of tools.
  const usable = named.flatMap((one) => {
    try {
      return [toSource(deps, context, one)];
    } catch (thrown) {
      if (thrown instanceof GatewayError && ["tool_not_found", "service_disabled"].includes(thrown.code)) return [];
      throw thrown;
    }
  });
  if (usable.length === 0) throw noSources();
  return usable;
}

function configuredSources({ config }: CallContext): readonly Named[] {
  return config.settings.deep_search_sources.map((one) =>
    typeof one === "string"
      ? { target: one, isConfigured: true }
      : { target: one.tool, query: one.query, arguments: one.arguments, isConfigured: true },
  );
}

/** The tenant's own knowledge is searched, too, where models may search it at all. */
function withKnowledge(configured: readonly Named[], { config }: CallContext): readonly Named[] {
  const knowledge = "knowledge_search";
  const has = configured.some(({ target }) => target === knowledge || target === `native://${knowledge}`);
  if (has || !config.settings.native_tools.includes(knowledge)) return configured;
  return [...configured, { target: knowledge, isConfigured: true }];
}

function noSources(): GatewayError {
  return invalidInput(
    "sources",
    "There is nothing to search by: name tools in 'sources', or in the tenant's setting 'deep_search_sources'.",
  );
}

function toSource(deps: Pick<CoreDeps, "adapters">, context: CallContext, named: Named): SearchSource {
  const { target } = named;
  let tool: Tool;
  try {
    tool = findTool(deps.adapters, context, target).tool;
  } catch (thrown) {
    const error = toGatewayError(thrown);
    throw new GatewayError(error.code, error.message, { ...error.details, param: "sources" });
  }
  if (!mayUseTool(context.caller, tool)) {
    throw new GatewayError("tool_not_found", `Tool '${target.slice(0, 200)}' not found`, { param: "sources" });
  }
  if (tool.uri === itself) throw invalidInput("sources", "'deep_search' cannot search by itself.");
  // What a page says must not be able to choose a tool that changes something.
  if (tool.effect === "write" && (tool.outward === true || !named.isConfigured)) {
    throw invalidInput(
      "sources",
      `'${tool.name}' counts as a tool that changes something; it can be searched by only where it is listed in the setting 'deep_search_sources'${tool.outward === true ? ", and not at all where it writes to others" : ""}.`,
    );
  }
  const field = named.query ?? queryArgument(tool);
  const fixed = named.arguments ?? {};
  return { tool, target, argumentsFor: (query) => ({ ...fixed, [field]: query }) };
}

/** @throws GatewayError `invalid_arguments` where that cannot be told */
function queryArgument(tool: Tool): string {
  const { properties, required } = tool.parameters;
  const texts = Object.entries(isJsonObject(properties) ? properties : {}).flatMap(([name, schema]) =>
    isJsonObject(schema) && takesText(schema) ? [name] : [],
  );
  const needed = texts.filter((name) => Array.isArray(required) && required.includes(name));
  const found = usual.find((name) => texts.includes(name)) ?? (needed.length === 1 ? needed[0] : undefined);
  const only = found ?? (texts.length === 1 ? texts[0] : undefined);
  if (only !== undefined) return only;
  throw invalidInput(
    "sources",
    `It cannot be told which argument of '${tool.name}' takes the query; say it in the setting 'deep_search_sources' as {"tool", "query"}.`,
  );
}

function takesText({ type, enum: values }: JsonObject): boolean {
  return values === undefined && (type === "string" || (Array.isArray(type) && type.includes("string")));
}
