/**
 * Tools as an MCP server describes them (MCP-2), which is somebody else's text that models will read: sizes
 * are bounded, what cannot be seen is taken out, and what cannot be used is left out, with the reason.
 */
import { GatewayError } from "../errors/gateway-error.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../json.ts";
import type { ToolHints } from "../services/service.ts";
import { Pace } from "../pace.ts";
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

/** @param hide takes the secrets of whoever asks out of what is for reading: a server may repeat what it was sent */
export async function readToolDefinitions(
  listed: readonly JsonValue[],
  hide: (text: string) => string,
): Promise<ReadTools> {
  const list = new ToolList(hide);
  const warnings: string[] = [];
  const pace = new Pace();
  for (const entry of listed) {
    await pace.turn();
    const name = isJsonObject(entry) && typeof entry["name"] === "string" ? entry["name"] : "";
    const problem = isJsonObject(entry) ? list.add(name, entry) : "it is no object";
    if (problem !== undefined && warnings.length < mostWarnings) {
      warnings.push(hide(`'${shownPart(name, longestName)}' is left out: ${problem}.`));
    }
  }
  return { tools: list.byName, warnings };
}

class ToolList {
  readonly #hide: (text: string) => string;
  readonly #tools = new Map<string, ToolDefinition>();
  /** Of all that was read, whether it can be used or not: compiling a schema takes its time either way. */
  #size = 0;

  constructor(hide: (text: string) => string) {
    this.#hide = hide;
  }

  get byName(): readonly ToolDefinition[] {
    return [...this.#tools.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  /** @returns why it is left out */
  add(name: string, entry: JsonObject): string | undefined {
    const tooLong = `all definitions together have more than ${longestOfAll} characters`;
    if (this.#size > longestOfAll) return tooLong;
    const read = readDefinition(name, entry, this.#hide);
    if (typeof read === "string") {
      this.#size += sizeOfSchemas(entry);
      return read;
    }
    this.#size += JSON.stringify(read).length;
    if (this.#tools.has(name)) return "the server has another of that name";
    if (this.#size > longestOfAll) return tooLong;
    this.#tools.set(name, read);
    return undefined;
  }
}

/** Those too long to be looked into cost nothing. */
function sizeOfSchemas({ inputSchema, outputSchema }: JsonObject): number {
  const sizes = [inputSchema, outputSchema].map((schema) => JSON.stringify(schema ?? null).length);
  return sizes.reduce((sum, size) => sum + (size > longestSchema ? 0 : size), 0);
}

/** The definition, or what is wrong with it. */
function readDefinition(name: string, entry: JsonObject, hide: (text: string) => string): ToolDefinition | string {
  const { title, description, inputSchema, outputSchema, annotations } = entry;
  if (name === "" || name.length > longestName) return `a name has 1 to ${longestName} characters`;
  if (visible(name) !== name || /\s/u.test(name)) return "its name holds spaces or characters that cannot be seen";
  if (!name.isWellFormed()) return "its name holds half of a surrogate pair";
  const schema = inputSchema === undefined ? { type: "object" } : inputSchema;
  const problem = schemaProblem(schema) ?? (outputSchema === undefined ? undefined : schemaProblem(outputSchema));
  if (!isJsonObject(schema) || problem !== undefined) return `its schema ${problem ?? "is no object"}`;
  const mirrored = mirroredArguments(schema);
  if (typeof mirrored === "string") return mirrored;
  const hints = isJsonObject(annotations) ? annotations : {};
  const shownTitle = typeof title === "string" ? title : hints["title"];
  return {
    name,
    title: typeof shownTitle === "string" ? shownPart(shownTitle, longestTitle, hide) : undefined,
    description: typeof description === "string" ? shownPart(description, longestDescription, hide) : "",
    inputSchema: visibleIn(schema, hide),
    outputSchema: isJsonObject(outputSchema) ? visibleIn(outputSchema, hide) : undefined,
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

/**
 * Texts of a schema that are for reading; names, constants and patterns stay what they are. A default or examples that
 * hold a secret go: the server knows its own.
 */
function visibleIn(schema: JsonObject, hide: (text: string) => string): JsonObject {
  const clean = (value: JsonValue, isByName = false): JsonValue => {
    if (Array.isArray(value)) return value.map((part) => clean(part));
    if (!isJsonObject(value)) return value;
    return Object.fromEntries(
      Object.entries(value).flatMap(([key, part]): [string, JsonValue][] => {
        if (!isByName && givenValues.has(key) && holdsSecret(part, hide)) return [];
        if (typeof part !== "string") return [[key, clean(part, !isByName && schemasByName.has(key))]];
        return [[key, key === "description" || key === "title" ? hide(visible(part)) : part]];
      }),
    );
  };
  const cleaned = clean(schema);
  return isJsonObject(cleaned) ? cleaned : {};
}

const givenValues: ReadonlySet<string> = new Set(["default", "examples", "example"]);
const schemasByName: ReadonlySet<string> = new Set(["properties", "$defs", "definitions"]);

function holdsSecret(value: JsonValue, hide: (text: string) => string): boolean {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return hide(text) !== text;
}

/** Looks no further than twice what is shown, however long the text is and whatever it hides. */
function shownPart(text: string, most: number, hide: (text: string) => string = String): string {
  const seen = hide(visible(text.slice(0, 2 * most)));
  return seen.length > most || text.length > 2 * most ? `${seen.slice(0, most - 1)}…` : seen;
}
