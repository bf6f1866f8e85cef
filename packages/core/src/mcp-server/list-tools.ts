/** `tools/list`: what the caller may run at this address, in pages, in a fixed order, under names that lead back. */
import { isJsonObject, type JsonObject, type JsonValue } from "../json.ts";
import { mirroredArguments } from "../mcp/mirrored-headers.ts";
import { toMcpTool } from "../tools/describe.ts";
import type { AdmittedExchange } from "./exchange.ts";
import { invalidParams } from "./fault.ts";
import { resultTool, resultToolName } from "./get-call-result.ts";
import { outputSchemaFor } from "./output-schema.ts";
import { exposedTools } from "./toolset.ts";

/** Characters of a page, and one tool more: clients that do not ask for a second page are to see what there mostly is. */
const pageLength = 1_048_576;
const mostTools = 1_000;
/** Milliseconds that a client may go by what it was told. */
const freshMs = 60_000;

/** @throws RpcFault for a cursor that was not given by us */
export function listPage(exchange: AdmittedExchange, params: JsonObject): JsonObject {
  const all = describeTools(exchange);
  const after = readCursor(params["cursor"]);
  const rest = after === undefined ? all : all.filter(({ name }) => name > after);
  const page = firstOf(rest);
  const last = rest.length > page.length ? page.at(-1)?.name : undefined;
  return {
    tools: page.map(({ tool }) => tool),
    ...(last === undefined ? {} : { nextCursor: toCursor(last) }),
    ...(exchange.peer.era === "stateless" ? { ttlMs: freshMs, cacheScope: "private" } : {}),
  };
}

function firstOf(tools: readonly Described[]): readonly Described[] {
  let length = 0;
  let count = 0;
  for (const { tool } of tools) {
    if (length > pageLength || count === mostTools) break;
    length += JSON.stringify(tool).length;
    count += 1;
  }
  return tools.slice(0, count);
}

interface Described {
  readonly name: string;
  readonly tool: JsonObject;
}

export function describeTools({ deps, context, peer, tools: toolset }: AdmittedExchange): readonly Described[] {
  const exposed = exposedTools(deps.adapters, context, toolset);
  const described = [...exposed].map(([name, tool]): Described => {
    const { inputSchema, outputSchema: _own, ...rest } = toMcpTool(tool);
    const outputSchema = outputSchemaFor(tool, peer);
    const schemas = {
      inputSchema: withUsableHeaders(inputSchema),
      ...(outputSchema === undefined ? {} : { outputSchema }),
    };
    return { name, tool: { ...rest, name, ...schemas } };
  });
  // A tool of the tenant's own that has this name is the one that is meant.
  const own = exposed.has(resultToolName) ? [] : [{ name: resultToolName, tool: resultTool }];
  return [...described, ...own].sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** A client leaves a tool out whose schema wants headers that cannot be; the tool works without them. */
function withUsableHeaders(schema: JsonObject): JsonObject {
  return typeof mirroredArguments(schema) === "string" ? withoutHeaders(schema) : schema;
}

function withoutHeaders(schema: JsonObject): JsonObject {
  const clean = (value: JsonValue): JsonValue => {
    if (Array.isArray(value)) return value.map(clean);
    return isJsonObject(value) ? withoutHeaders(value) : value;
  };
  return Object.fromEntries(
    Object.entries(schema).flatMap(([key, value]) =>
      // A property may have that name, and is then no text.
      key === "x-mcp-header" && !isJsonObject(value) ? [] : [[key, clean(value)]],
    ),
  );
}

const cursorMark = "after:";

function toCursor(name: string): string {
  return Buffer.from(`${cursorMark}${name}`).toString("base64url");
}

function readCursor(cursor: JsonValue | undefined): string | undefined {
  if (cursor === undefined || cursor === null) return undefined;
  const text = typeof cursor === "string" ? Buffer.from(cursor, "base64url").toString("utf8") : "";
  if (!text.startsWith(cursorMark)) throw invalidParams("'cursor' is none of ours; list from the start again.");
  return text.slice(cursorMark.length);
}
