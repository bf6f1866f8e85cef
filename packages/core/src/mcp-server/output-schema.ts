/**
 * Schemas of results (MCP-3). Whoever lists one promises it: clients refuse a result whose structured part does
 * not fit, and one without it that is no error. So what has none that fits is told as an error, with all there is
 * to read, and the structured part of an error, which is ours, stands in its text.
 */
import { parseJson, type JsonObject, type JsonValue } from "../json.ts";
import { checkValue } from "../tools/arguments.ts";
import type { Tool } from "../tools/tool.ts";
import type { AdmittedExchange, AskedCall } from "./exchange.ts";
import type { Peer } from "./peer.ts";
import { exposedTools } from "./toolset.ts";

const firstWithSchemas = "2025-06-18";

/** As it is listed to this client; in the era of sessions results with a schema are objects. */
export function outputSchemaFor(
  { outputSchema }: Pick<Tool, "outputSchema">,
  { era, revision }: Pick<Peer, "era" | "revision">,
): JsonObject | undefined {
  if (outputSchema === undefined || revision < firstWithSchemas) return undefined;
  return era === "session" && outputSchema["type"] !== "object" ? undefined : outputSchema;
}

/** Of the tool that the client calls by this name. */
export function askedSchema(exchange: AdmittedExchange, { name }: AskedCall): JsonObject | undefined {
  const tool = exposedTools(exchange.deps.adapters, exchange.context, exchange.tools).get(name);
  return tool === undefined ? undefined : outputSchemaFor(tool, exchange.peer);
}

/** Of the tool that was called. */
export function calledSchema(exchange: AdmittedExchange, uri: string): JsonObject | undefined {
  const tools = exposedTools(exchange.deps.adapters, exchange.context, exchange.tools);
  const tool = [...tools.values()].find((one) => one.uri === uri);
  return tool === undefined ? undefined : outputSchemaFor(tool, exchange.peer);
}

/** The result of a call that was carried out. */
export function asDescribed(result: JsonObject, schema: JsonObject | undefined): JsonObject {
  if (schema === undefined) return result;
  const { structuredContent, content } = result;
  const problem = problemOf(schema, structuredContent);
  if (problem === undefined) return result;
  const parts = Array.isArray(content) ? content : [];
  const text = `The tool was carried out, but its result is not as its output schema describes it: ${problem}. It follows.`;
  return { content: [{ type: "text", text }, ...parts], isError: true };
}

/** What is no result of the tool, because it failed, has not ended, or waits. */
export function asRefusal(result: JsonObject, schema: JsonObject | undefined): JsonObject {
  const { structuredContent, ...rest } = result;
  if (schema === undefined || structuredContent === undefined) return result;
  return { ...rest, content: [{ type: "text", text: JSON.stringify(structuredContent) }], isError: true };
}

function problemOf(schema: JsonObject, structured: JsonValue | undefined): string | undefined {
  if (structured === undefined) return "it has no structured part";
  // Numbers that keep their digits are checked as what they are to readers.
  const errors = checkValue(schema, parseJson(JSON.stringify(structured)) ?? null);
  if (errors.length === 0) return undefined;
  return errors.map(({ pointer, message }) => `${pointer === "" ? "the result" : pointer}: ${message}`).join("; ");
}
