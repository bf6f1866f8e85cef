/**
 * What a plugin's commands say of their arguments, as a JSON Schema (VCP-3). Manifests describe arguments in
 * prose, in examples and seldom in a list, so that this schema only tells and never refuses: nothing is
 * required, every value may be text, and arguments that it does not know are passed on.
 */
import type { JsonObject, JsonValue } from "../../json.ts";
import type { CommandParameter, InvocationCommand, VcpManifest } from "./manifest.ts";

export interface DescribedTool {
  readonly description: string;
  readonly parameters: JsonObject;
  /** Values of argument `command`, each also by the identifier that the manifest gives it. */
  readonly commands: ReadonlyMap<string, string>;
}

/** Words of the grammar itself, which no plugin is given. */
const reserved = new Set(["tool_name", "archery", "ink", "river", "vref", "tool_password"]);
/** Properties that a model is told of. */
const mostParameters = 100;
const longestDescription = 600;
/** Characters of a tool's whole description. */
const longestToolText = 16_000;

export function describeTool({ displayName, description, commands }: VcpManifest): DescribedTool {
  const read = commands.map(readCommand);
  const values = new Map(read.flatMap(({ names, value }) => names.map((name) => [name, value] as const)));
  const literals = [...new Set(read.flatMap(({ values: all }) => all))];
  const properties = new Map<string, JsonObject>();
  if (literals.length > 0) properties.set("command", commandSchema(literals));
  for (const [name, parameter] of mergedParameters(read)) {
    if (name !== "command" && properties.size < mostParameters) properties.set(name, parameterSchema(parameter));
  }
  return {
    description: wordsOf({ displayName, description, commands }),
    parameters: { type: "object", properties: Object.fromEntries(properties) },
    commands: values,
  };
}

interface ReadCommand {
  /** What the command is called, for addresses. */
  readonly names: readonly string[];
  /** What `command` is then; empty: the plugin takes none. */
  readonly value: string;
  readonly values: readonly string[];
  readonly parameters: readonly CommandParameter[];
}

function readCommand(item: InvocationCommand): ReadCommand {
  const { command, commandIdentifier, parameters } = item;
  const description = withLineBreaks(item.description);
  const example = withLineBreaks(item.example ?? "");
  const inText = [...fieldsOf(description), ...fieldsOf(example)];
  const literals = inText.flatMap(({ name, value }) => (name === "command" ? commandsIn(value) : []));
  const values = [...new Set([...(isCommand(command) ? [command] : []), ...literals])];
  const only = new Set(literals).size === 1 ? literals[0] : literals.find((each) => each === commandIdentifier);
  const value = isCommand(command) ? command : (only ?? "");
  const named = new Map<string, CommandParameter>();
  const listed = listedParameters(description);
  for (const parameter of [...parameters, ...listed, ...inText.map(fieldParameter)]) {
    if (!reserved.has(parameter.name) && !named.has(parameter.name)) named.set(parameter.name, parameter);
  }
  const names = [command, commandIdentifier, ...(values.length === 1 ? values : [])];
  return {
    names: [...new Set(names.filter(isCommand))],
    value,
    values,
    parameters: [...named.values()],
  };
}

/** Some authors have escaped their line breaks twice. */
function withLineBreaks(text: string): string {
  return text.replaceAll("\\n", "\n");
}

function isCommand(text: string | undefined): text is string {
  return text !== undefined && /^[\p{L}\p{N}_.-]{1,64}$/u.test(text);
}

/** `generate / edit / compose` names three. */
function commandsIn(value: string): readonly string[] {
  // Blanks are cut off afterwards: a pattern that looked for them would begin anew at each one.
  const words = value.split(/[/|,、]|\bor\b|或/).map((word) => word.trim());
  return words.every((word) => isCommand(word) && /^[A-Za-z]/.test(word)) ? words : [];
}

interface Field {
  readonly name: string;
  readonly value: string;
}

/** Fields as `TOOL_REQUEST` blocks write them, wherever they stand in the prose. */
function fieldsOf(text: string): readonly Field[] {
  return [
    ...text.matchAll(
      /(?<![\p{L}\p{N}_])([A-Za-z_][A-Za-z0-9_]{0,63})\s{0,4}:\s{0,4}「始(?:exp)?」([^」]{0,2000})「末(?:exp)?」/gu,
    ),
  ].map(([, name = "", value = ""]) => ({ name, value: value.trim() }));
}

/** In a format description the value says what belongs there; in an example it is one. */
function fieldParameter({ name, value }: Field): CommandParameter {
  const isProse = /^[([（【]|必需|可选|required|optional/i.test(value);
  return {
    name,
    ...(isProse ? { description: value } : value === "" ? {} : { description: `For example: ${value}` }),
    required: false,
  };
}

const listItem =
  /^[ \t]{0,8}(?:[-*•]|\d{1,2}[.)、])[ \t]{0,4}(?:\*\*|`)?([A-Za-z_][A-Za-z0-9_]{0,63})(?:\*\*|`)?[ \t]{0,4}([(（][^)）\n]{0,200}[)）])?[ \t]{0,4}[:：][ \t]{0,4}(.{0,2000})$/gmu;

/** `- name (类型, 必需): what it is`. */
function listedParameters(description: string): readonly CommandParameter[] {
  return [...description.matchAll(listItem)].map(([, name = "", kind = "", words = ""]) => ({
    name,
    ...(kind === "" ? {} : { type: kind }),
    description: `${kind} ${words}`.trim(),
    required: false,
  }));
}

/** One schema for an argument of several commands; the first description that says something is told. */
function mergedParameters(commands: readonly ReadCommand[]): ReadonlyMap<string, CommandParameter> {
  const merged = new Map<string, CommandParameter>();
  for (const parameter of commands.flatMap(({ parameters }) => parameters)) {
    const known = merged.get(parameter.name);
    if (known === undefined || (known.description ?? "").startsWith("For example:")) {
      merged.set(parameter.name, { ...known, ...parameter });
    }
  }
  return merged;
}

function commandSchema(values: readonly string[]): JsonObject {
  return {
    description: `Which command: ${values.join(", ")}.`,
    anyOf: [{ type: "string", enum: [...values] }, { type: "string" }],
  };
}

function parameterSchema({ type = "", description, required }: CommandParameter): JsonObject {
  const words = `${required ? "(required) " : ""}${description ?? ""}`.trim();
  return {
    ...typesOf(`${type} ${description ?? ""}`.slice(0, 200)),
    ...(words === "" ? {} : { description: words.slice(0, longestDescription) }),
  };
}

/** The kind that is told first, and text beside it. Whatever is a number to a model may be text to a plugin. */
function typesOf(words: string): JsonObject {
  const [kind = "string"] = kinds.flatMap(([name, pattern]) => (pattern.test(words) ? [name] : []));
  if (kind === "array") return { type: ["array", "string"], items: {} };
  const others: JsonValue[] = ["string", "number", "boolean"].filter((each) => each !== kind);
  return { type: [kind, ...others] };
}

const kinds: readonly (readonly [name: string, pattern: RegExp])[] = [
  ["boolean", /^\W{0,4}(?:bool|布尔)/i],
  ["number", /^\W{0,4}(?:number|integer|int\b|float|数字|整数|数值)/i],
  ["array", /^\W{0,4}(?:array|list\b|数组)/i],
];

/** The prose of the commands; what their blocks say is told by the parameters. */
function wordsOf({
  displayName,
  description,
  commands,
}: Pick<VcpManifest, "displayName" | "description" | "commands">): string {
  const parts = commands.map(({ command, commandIdentifier, description: words }) => {
    const title = command ?? commandIdentifier;
    return `${title === undefined ? "" : `${title}: `}${withoutBlocks(words)}`;
  });
  const text = [description === "" ? displayName : description, ...parts].filter((part) => part !== "").join("\n\n");
  return text.length > longestToolText ? `${text.slice(0, longestToolText)}…` : text;
}

const blockStart = /<<<\[TOOL_REQUEST(?:_EXP)?\]>>>/g;
const blockEnd = /<<<\[END_TOOL_REQUEST(?:_EXP)?\]>>>/g;

/** In one walk: where a block has no end, none behind it has one, and nothing is looked for again. */
function withoutBlocks(text: string): string {
  let kept = "";
  let from = 0;
  for (;;) {
    blockStart.lastIndex = from;
    const start = blockStart.exec(text);
    blockEnd.lastIndex = blockStart.lastIndex;
    if (start === null || !blockEnd.test(text)) break;
    kept += text.slice(from, start.index);
    from = blockEnd.lastIndex;
  }
  return (kept + text.slice(from)).replaceAll(/\n{3,}/g, "\n\n").trim();
}
