/**
 * Finding tools where there are too many to tell a model of all: `search_tools` gives the best by the
 * words of their names, titles and descriptions, `call_tool` calls one. The order is a function of the
 * tools and the query alone (BM25 with weighted fields), so that equal conversations stay equal.
 */
import { GatewayError } from "../errors/gateway-error.ts";
import type { JsonObject } from "../json.ts";
import type { ToolReply } from "./tool-call.ts";
import { compileArguments, parseToolArguments } from "./arguments.ts";
import type { FoundTool } from "./catalog.ts";
import { compileTool } from "./compiled.ts";
import type { Tool } from "./tool.ts";
import { parseToolUri } from "./uri.ts";

export const searchToolName = "search_tools";
export const callToolName = "call_tool";

const mostFound = 10;

/** What a tool of the gateway's own is that only looks at the tenant's tools. */
export const lookingTool = {
  kind: "NATIVE",
  enabled: true,
  roles: [],
  effect: "read",
  repeat: "natural",
  sensitive: false,
  requiredCredentials: [],
  outputTrust: "own",
} as const satisfies Partial<Tool>;

const searchTools: Tool = {
  ...lookingTool,
  uri: `native://${searchToolName}`,
  name: searchToolName,
  service: `native://${searchToolName}`,
  description:
    "Finds tools by what they do. Answers with name, description and parameters of the best matches; call one with call_tool.",
  parameters: {
    type: "object",
    properties: {
      query: {
        type: "string",
        minLength: 1,
        maxLength: 1_000,
        description: "What the tool should do, in a few words.",
      },
      limit: { type: "integer", minimum: 1, maximum: mostFound, default: 5, description: "Matches to answer with." },
    },
    required: ["query"],
  },
  hash: "1",
};

const callTool: Tool = {
  ...lookingTool,
  uri: `native://${callToolName}`,
  name: callToolName,
  service: `native://${callToolName}`,
  description: "Calls a tool that search_tools has found.",
  parameters: {
    type: "object",
    properties: {
      name: { type: "string", minLength: 1, maxLength: 200, description: "Name of the tool." },
      arguments: { type: "object", default: {}, description: "Arguments as the tool's parameters describe them." },
    },
    required: ["name"],
  },
  hash: "1",
};

/** What is offered instead of the tools themselves. */
export const searchOffer: readonly Tool[] = [callTool, searchTools];

/** `search_tools` over these tools, for the dispatcher. */
export function foundSearch(tools: ReadonlyMap<string, Tool>): FoundTool {
  return {
    tool: searchTools,
    uri: parseToolUri(searchTools.uri),
    adapter: {
      resolve: () => undefined,
      list: () => [],
      invoke: (call) => Promise.resolve(searchReply([...tools.values()], call.arguments)),
    },
  };
}

/** `call_tool` with arguments that name no call: the dispatcher refuses them by its schema. */
export function foundCall(): FoundTool {
  return {
    tool: callTool,
    uri: parseToolUri(callTool.uri),
    adapter: {
      resolve: () => undefined,
      list: () => [],
      invoke: () =>
        Promise.reject(new GatewayError("invalid_arguments", `'${callToolName}' names no tool.`, { param: "name" })),
    },
  };
}

/** The call inside a `call_tool`; undefined where its arguments do not fit. */
export function unwrapCall(given: string): { readonly name: string; readonly arguments: JsonObject } | undefined {
  const parsed = parseToolArguments(given);
  const checked = parsed.ok ? compileArguments(callTool.parameters).validate(parsed.value) : parsed;
  if (!checked.ok) return undefined;
  const { name, arguments: inner } = checked.value;
  if (typeof name !== "string" || typeof inner !== "object" || inner === null || Array.isArray(inner)) return undefined;
  return { name, arguments: inner };
}

function searchReply(tools: readonly Tool[], { query, limit }: JsonObject): ToolReply {
  const found = rankTools(tools, typeof query === "string" ? query : "");
  const shown = found.slice(0, Math.min(typeof limit === "number" ? limit : mostFound, mostFound));
  const body = {
    tools: shown.map((tool) => ({
      name: compileTool(tool).alias,
      description: tool.description,
      parameters: tool.parameters,
    })),
    matches: found.length,
    of: tools.length,
    ...(found.length === 0 ? { note: "Nothing matches; try other words for what the tool should do." } : {}),
  };
  return { mediaType: "application/json", body: JSON.stringify(body) };
}

interface Indexed {
  readonly tool: Tool;
  /** Term → weighted count. */
  readonly terms: ReadonlyMap<string, number>;
  readonly length: number;
}

/** BM25's usual constants. */
const saturation = 1.2;
const lengthShare = 0.75;
const nameWeight = 3;
const titleWeight = 2;

/** Tools with at least one word of the query, the best first; equal ones by name. */
export function rankTools(tools: readonly Tool[], query: string): Tool[] {
  const wanted = [...new Set(termsOf(query))];
  const entries = tools.map(indexOf);
  const average = entries.reduce((sum, { length }) => sum + length, 0) / Math.max(1, entries.length);
  const weights = wanted.map((term) => {
    const having = entries.filter(({ terms }) => terms.has(term)).length;
    return Math.log(1 + (entries.length - having + 0.5) / (having + 0.5));
  });
  const scoreOf = ({ terms, length }: Indexed): number =>
    wanted.reduce((score, term, at) => {
      const count = terms.get(term) ?? 0;
      const norm = saturation * (1 - lengthShare + (lengthShare * length) / average);
      return count === 0 ? score : score + ((weights[at] ?? 0) * count * (saturation + 1)) / (count + norm);
    }, 0);
  return entries
    .map((entry) => ({ tool: entry.tool, score: scoreOf(entry) }))
    .filter(({ score }) => score > 0)
    .sort((a, b) => b.score - a.score || (a.tool.name < b.tool.name ? -1 : 1))
    .map(({ tool }) => tool);
}

const indexed = new WeakMap<Tool, Indexed>();

function indexOf(tool: Tool): Indexed {
  const known = indexed.get(tool);
  if (known !== undefined) return known;
  const terms = new Map<string, number>();
  const add = (text: string, weight: number): void => {
    for (const term of termsOf(text)) terms.set(term, (terms.get(term) ?? 0) + weight);
  };
  add(tool.name, nameWeight);
  add(tool.title ?? "", titleWeight);
  add(tool.description, 1);
  const made = { tool, terms, length: [...terms.values()].reduce((sum, count) => sum + count, 0) };
  indexed.set(tool, made);
  return made;
}

const words =
  /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}]+|[\p{L}\p{M}\p{N}]+?(?=[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}]|[^\p{L}\p{M}\p{N}]|$)/gu;
const unspaced = /^[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}]/u;

/** Words in lower case, without a plural's s; writing without spaces by pairs of characters. */
function termsOf(text: string): string[] {
  const apart = text
    .normalize("NFKC")
    .replaceAll(/(\p{Ll})(\p{Lu})/gu, "$1 $2")
    .toLowerCase();
  return (apart.match(words) ?? []).flatMap((word) => (unspaced.test(word) ? pairsOf(word) : [singular(word)]));
}

function pairsOf(run: string): string[] {
  const characters = Array.from(run);
  if (characters.length < 2) return characters;
  return characters.slice(1).map((character, at) => `${characters[at] ?? ""}${character}`);
}

function singular(word: string): string {
  if (word.length > 4 && word.endsWith("ies")) return `${word.slice(0, -3)}y`;
  return word.length > 3 && word.endsWith("s") && !word.endsWith("ss") ? word.slice(0, -1) : word;
}
