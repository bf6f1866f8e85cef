/**
 * Tools as an MCP server describes them (MCP-2), which is somebody else's text that models will read: sizes
 * are bounded, what cannot be seen is taken out, and what cannot be used is left out, with the reason.
 */
import { GatewayError } from "../errors/gateway-error.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../json.ts";
import type { ToolHints } from "../services/service.ts";
import { compileArguments } from "../tools/arguments.ts";
import { mirroredArguments } from "./mirrored-headers.ts";

export interface ToolDefinition {
  readonly name: string;
  readonly title: string | undefined;
  readonly description: string;
  readonly inputSchema: JsonObject;
  readonly outputSchema: JsonObject | undefined;
  readonly hints: ToolHints;
}

export interface ReadTools {
  /** By name, in order. */
  readonly tools: readonly ToolDefinition[];
  /** What was left out, and why. */
  readonly warnings: readonly string[];
}

const longestName = 128;
const longestTitle = 200;
const longestDescription = 8_192;
/** Characters of one schema, and of all that a service brings into its tenant's configuration. */
const longestSchema = 65_536;
const longestOfAll = 2_097_152;
const mostWarnings = 50;

export function readToolDefinitions(listed: readonly JsonValue[]): ReadTools {
  const tools = new Map<string, ToolDefinition>();
  const warnings: string[] = [];
  let size = 0;
  const leaveOut = (name: string, reason: string): void => {
    if (warnings.length < mostWarnings) warnings.push(`'${name}' is left out: ${reason}.`);
  };
  for (const entry of listed) {
    const name = isJsonObject(entry) && typeof entry["name"] === "string" ? entry["name"] : "";
    const read = isJsonObject(entry) ? readDefinition(name, entry) : "it is no object";
    const shown = shownPart(name, longestName);
    if (typeof read === "string") leaveOut(shown, read);
    else if (tools.has(name)) leaveOut(shown, "the server has another of that name");
    else {
      size += JSON.stringify(read).length;
      if (size > longestOfAll) leaveOut(shown, `all definitions together have more than ${longestOfAll} characters`);
      else tools.set(name, read);
    }
  }
  const byName = [...tools.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
  return { tools: byName, warnings };
}

/** The definition, or what is wrong with it. */
function readDefinition(name: string, entry: JsonObject): ToolDefinition | string {
  const { title, description, inputSchema, outputSchema, annotations } = entry;
  if (name === "" || name.length > longestName) return `a name has 1 to ${longestName} characters`;
  if (visible(name) !== name || /\s/u.test(name)) return "its name holds spaces or characters that cannot be seen";
  const schema = inputSchema === undefined ? { type: "object" } : inputSchema;
  const problem = schemaProblem(schema) ?? (outputSchema === undefined ? undefined : schemaProblem(outputSchema));
  if (!isJsonObject(schema) || problem !== undefined) return `its schema ${problem ?? "is no object"}`;
  const mirrored = mirroredArguments(schema);
  if (typeof mirrored === "string") return mirrored;
  const hints = isJsonObject(annotations) ? annotations : {};
  const shownTitle = typeof title === "string" ? title : hints["title"];
  return {
    name,
    title: typeof shownTitle === "string" ? shownPart(shownTitle, longestTitle) : undefined,
    description: typeof description === "string" ? shownPart(description, longestDescription) : "",
    inputSchema: visibleIn(schema),
    outputSchema: isJsonObject(outputSchema) ? visibleIn(outputSchema) : undefined,
    hints: readHints(hints),
  };
}

function schemaProblem(schema: JsonValue): string | undefined {
  if (!isJsonObject(schema)) return "is no object";
  const size = JSON.stringify(schema).length;
  if (size > longestSchema) return `has ${size} characters; ${longestSchema} are taken`;
  try {
    compileArguments(schema);
    return undefined;
  } catch (error) {
    if (error instanceof GatewayError) return `cannot be used (${error.message.slice(0, 300)})`;
    throw error;
  }
}

function readHints({ readOnlyHint, destructiveHint, idempotentHint }: JsonObject): ToolHints {
  return {
    ...(typeof readOnlyHint === "boolean" ? { read_only: readOnlyHint } : {}),
    ...(typeof destructiveHint === "boolean" ? { destructive: destructiveHint } : {}),
    ...(typeof idempotentHint === "boolean" ? { idempotent: idempotentHint } : {}),
  };
}

/**
 * What a reader of the description does not see, a model would: control characters, marks that turn the
 * direction of writing, characters without width, the block of tags.
 */
const unseen =
  // oxlint-disable-next-line no-control-regex
  /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;

function visible(text: string): string {
  return text.replaceAll(unseen, "");
}

/** Texts of a schema that are for reading; names, constants and patterns stay what they are. */
function visibleIn(schema: JsonObject): JsonObject {
  const clean = (value: JsonValue): JsonValue => {
    if (Array.isArray(value)) return value.map(clean);
    if (!isJsonObject(value)) return value;
    return Object.fromEntries(
      Object.entries(value).map(([key, part]) => [
        key,
        typeof part === "string" && (key === "description" || key === "title") ? visible(part) : clean(part),
      ]),
    );
  };
  const cleaned = clean(schema);
  return isJsonObject(cleaned) ? cleaned : {};
}

/** Looks no further than twice what is shown, however long the text is and whatever it hides. */
function shownPart(text: string, most: number): string {
  const seen = visible(text.slice(0, 2 * most));
  return seen.length > most || text.length > 2 * most ? `${seen.slice(0, most - 1)}…` : seen;
}
