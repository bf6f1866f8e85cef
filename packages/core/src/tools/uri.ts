/**
 * Tool URIs: `scheme://service-id/tool-id?options` (tool-management specification, "统一 URI 规范").
 * Pure: says what was asked for, not whether it exists; the dispatcher decides that.
 */
import { GatewayError } from "../errors/gateway-error.ts";

/** Schemes of the specification and ours; `path` tells whether a tool-id follows the service-id. */
const schemeShapes = {
  api: "required",
  mcp: "required",
  svc: "required",
  oss: "required",
  mq: "required",
  mail: "required",
  sms: "required",
  flow: "refused",
  agent: "refused",
  plugin: "refused",
  native: "refused",
  group: "refused",
  vcp: "optional",
  node: "optional",
  knowledge: "optional",
} as const;

/** For documents: how each begins. */
export const toolUriForm = "^[A-Za-z][A-Za-z0-9+.-]*://";

export type ToolScheme = keyof typeof schemeShapes;

export function isToolScheme(text: string): text is ToolScheme {
  return Object.hasOwn(schemeShapes, text);
}

/** Is this the address of a tool of that scheme? For texts that were parsed before. */
export function isScheme(uri: string, scheme: ToolScheme): boolean {
  return uri.startsWith(`${scheme}://`);
}

export interface ToolUriOptions {
  /** Milliseconds for one attempt. */
  readonly timeoutMs?: number;
  /** Sends in all, the first included. */
  readonly maxAttempts?: number;
  readonly method?: string;
  readonly async?: boolean;
  readonly version?: string;
  /** Milliseconds before a message may be consumed (mq). */
  readonly delayMs?: number;
  /** Options of a scheme's own, by their names. */
  readonly own?: Readonly<Record<string, string | number | boolean>>;
}

/** What an option may be; schemes declare theirs with it (`ServiceScheme.options`). */
export type UriOption =
  | {
      readonly type: "integer";
      readonly description: string;
      readonly min: number;
      readonly max?: number;
      readonly unit: string;
    }
  | { readonly type: "boolean"; readonly description: string }
  /** One of `values`, upper case or lower case. */
  | { readonly type: "choice"; readonly description: string; readonly values: readonly string[] }
  /** `holds` says in words what `pattern` takes. */
  | { readonly type: "text"; readonly description: string; readonly pattern: RegExp; readonly holds: string };

export type UriOptions = Readonly<Record<string, UriOption>>;

/** Options of the specification; what a scheme does not declare it does not take. */
export const uriOptions = {
  timeout: { type: "integer", min: 1, unit: "milliseconds", description: "Milliseconds for one attempt." },
  "max-attempts": {
    type: "integer",
    min: 1,
    unit: "sends in all",
    description: "Sends in all, the first included; repeated only where that is safe.",
  },
  delay: {
    type: "integer",
    min: 0,
    unit: "milliseconds",
    description: "Milliseconds before a message may be consumed.",
  },
  method: {
    type: "choice",
    values: ["GET", "POST", "PUT", "DELETE", "PATCH"],
    description: "HTTP method, one that the tool allows.",
  },
  async: { type: "boolean", description: "Answer with the call's id at once." },
  version: {
    type: "text",
    pattern: /^[1-9]\d{0,8}$/,
    holds: "the number of a version, from 1 on",
    description: "Version of what is called; absent: the newest published one.",
  },
} as const satisfies UriOptions;

/** Options that every kind of tool can take, because the dispatcher itself carries them out. */
export const dispatcherOptions = {
  timeout: uriOptions.timeout,
  "max-attempts": uriOptions["max-attempts"],
  async: uriOptions.async,
} as const satisfies UriOptions;

const fields: Readonly<Record<string, Exclude<keyof ToolUriOptions, "own">>> = {
  timeout: "timeoutMs",
  "max-attempts": "maxAttempts",
  delay: "delayMs",
  method: "method",
  async: "async",
  version: "version",
};
const fieldsByName = Object.entries(fields);

export interface ToolUri {
  readonly scheme: ToolScheme;
  readonly service: string;
  /** Empty where the scheme has none. */
  readonly tool: string;
  readonly options: ToolUriOptions;
}

function bad(message: string, param = "uri"): GatewayError {
  return new GatewayError("invalid_uri", message, { param });
}

/** @throws GatewayError `invalid_uri` naming the option */
function readOption(name: string, option: UriOption, text: string): string | number | boolean {
  switch (option.type) {
    case "integer":
      return wholeNumber(name, option, text);
    case "boolean":
      if (text !== "true" && text !== "false")
        throw bad(`Option '${name}' must be true or false; got '${shorten(text)}'.`, name);
      return text === "true";
    case "choice": {
      const value = option.values.find((each) => each.toLowerCase() === text.toLowerCase());
      if (value === undefined)
        throw bad(`Option '${name}' must be ${option.values.join(", ")}; got '${shorten(text)}'.`, name);
      return value;
    }
    case "text":
      if (!option.pattern.test(text))
        throw bad(`Option '${name}' may hold ${option.holds}; got '${shorten(text)}'.`, name);
      return text;
    default:
      return option satisfies never;
  }
}

function wholeNumber(name: string, option: UriOption & { readonly type: "integer" }, text: string): number {
  const value = /^\d{1,12}$/.test(text) ? Number(text) : Number.NaN;
  const { min, max = Number.POSITIVE_INFINITY, unit } = option;
  if (value >= min && value <= max) return value;
  const bounds = option.max === undefined ? `at least ${min}` : `from ${min} to ${option.max}`;
  throw bad(`Option '${name}' must be a whole number of ${unit}, ${bounds}; got '${shorten(text)}'.`, name);
}

function shorten(text: string): string {
  return text.length > 80 ? `${text.slice(0, 80)}…` : text;
}

function decode(part: string, what: string, param = "uri"): string {
  try {
    const text = decodeURIComponent(part);
    // oxlint-disable-next-line no-control-regex
    if (/[\u0000-\u001f\u007f]/.test(text)) throw bad(`The ${what} holds a control character.`, param);
    return text;
  } catch (error) {
    if (error instanceof GatewayError) throw error;
    throw bad(`The ${what} '${shorten(part)}' has a bad percent-encoding.`, param);
  }
}

/**
 * @param optionsOf what a scheme takes; absent, or undefined for a scheme: all options of the specification
 * @throws GatewayError `invalid_uri` naming the option or part at fault; `tool_not_found` for an unknown scheme
 * @example parseToolUri("api://crm/customer_list?timeout=5000")
 */
export function parseToolUri(text: string, optionsOf?: (scheme: ToolScheme) => UriOptions | undefined): ToolUri {
  if (text.length > 2_048) throw bad("A tool URI may have 2,048 characters at most.");
  // Not `new URL`: platforms disagree about hosts of unknown schemes (case, non-ASCII, empty).
  const match = /^([A-Za-z][A-Za-z0-9+.-]*):\/\/([^/?#]*)(\/[^?#]*)?(\?[^#]*)?(#.*)?$/su.exec(text);
  if (match === null) throw bad(`'${shorten(text)}' is not a tool URI; expected scheme://service-id/tool-id?options.`);
  const [, schemeText = "", serviceText = "", pathText = "", queryText = "", fragment] = match;
  if (fragment !== undefined) throw bad("A tool URI has no '#' part; write '%23' for a literal one.");
  const scheme = schemeText.toLowerCase();
  if (!isToolScheme(scheme)) {
    throw new GatewayError(
      "tool_not_found",
      `Unknown tool type '${scheme}'; known: ${Object.keys(schemeShapes).join(", ")}.`,
      {
        param: "uri",
      },
    );
  }
  if (/[:@]/.test(serviceText)) {
    throw bad("A tool URI has no user name, password or port; write '%3A' and '%40' for literal characters of an id.");
  }
  const service = decode(serviceText, "service id");
  if (service === "") throw bad("The service id is missing between '//' and the next '/'.");
  const tool = decode(pathText.replace(/^\//, ""), "tool id");
  const shape = schemeShapes[scheme];
  if (shape === "required" && tool === "")
    throw bad(`'${scheme}://' needs a tool id after the service id: ${scheme}://${shorten(service)}/tool-id.`);
  if (shape === "refused" && pathText !== "")
    throw bad(`'${scheme}://' takes no tool id; write ${scheme}://${shorten(service)}.`);
  return { scheme, service, tool, options: parseOptions(queryText.slice(1), optionsOf?.(scheme) ?? uriOptions) };
}

function parseOptions(query: string, known: UriOptions): ToolUriOptions {
  if (query === "") return {};
  const seen = new Set<string>();
  const options: Record<string, string | number | boolean> = {};
  const own: Record<string, string | number | boolean> = {};
  for (const pair of query.split("&")) {
    const at = pair.indexOf("=");
    const name = decode(at < 0 ? pair : pair.slice(0, at), "option name", "options");
    const value = decode(at < 0 ? "" : pair.slice(at + 1), `value of option '${shorten(name)}'`, name);
    const option = Object.hasOwn(known, name) ? known[name] : undefined;
    if (option === undefined) {
      throw bad(`Unknown option '${shorten(name)}'; known: ${Object.keys(known).join(", ")}.`, name);
    }
    if (seen.has(name)) throw bad(`Option '${name}' is given twice.`, name);
    seen.add(name);
    const field = Object.hasOwn(fields, name) ? fields[name] : undefined;
    if (field === undefined) own[name] = readOption(name, option, value);
    else options[field] = readOption(name, option, value);
  }
  return Object.keys(own).length === 0 ? options : { ...options, own };
}

/** Options as they stand after the '?'; empty where there are none. */
export function formatUriOptions(options: ToolUriOptions): string {
  const parts: string[] = [];
  for (const [name, field] of fieldsByName) {
    const value = options[field];
    if (value !== undefined) parts.push(`${name}=${encode(String(value))}`);
  }
  for (const [name, value] of Object.entries(options.own ?? {})) parts.push(`${encode(name)}=${encode(String(value))}`);
  return parts.join("&");
}

/** The address without options, percent-encoded: equal tools give equal text. */
export function formatToolUri(scheme: ToolScheme, service: string, tool = ""): string {
  const base = `${scheme}://${encode(service)}`;
  return tool === "" ? base : `${base}/${tool.split("/").map(encode).join("/")}`;
}

/** Where a text has only what addresses have, it is one as it stands. */
const encodedAlready = /^[a-z]+:\/\/(?:[A-Za-z0-9_.!~*'()/-]|%[0-9A-F]{2})*$/;

/**
 * An address without options, or a pattern of addresses, as `formatToolUri` would write it: people may write letters
 * of all scripts as they are.
 */
export function encodeAddress(text: string): string {
  if (encodedAlready.test(text)) return text;
  const at = text.indexOf("://") + "://".length;
  const parts = text.slice(at).split(/([/*])/);
  return (
    text.slice(0, at).toLowerCase() + parts.map((part) => (part === "/" || part === "*" ? part : recode(part))).join("")
  );
}

/** Part of an encoding, as a pattern may begin or end with, stays what it is. */
function recode(part: string): string {
  try {
    // A star that is written as a character stands for itself.
    return encode(decodeURIComponent(part)).replaceAll("*", "%2A");
  } catch {
    return part;
  }
}

/** Half of a surrogate pair has no encoding; whoever writes one must not keep other tools from being listed. */
function encode(text: string): string {
  return encodeURIComponent(text.toWellFormed());
}
