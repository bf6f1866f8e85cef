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
  vcp: "optional",
} as const;

export type ToolScheme = keyof typeof schemeShapes;

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
}

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

const optionParsers = {
  timeout: (text: string) => ({ timeoutMs: wholeNumber("timeout", text, 1, "milliseconds") }),
  "max-attempts": (text: string) => ({ maxAttempts: wholeNumber("max-attempts", text, 1, "sends in all") }),
  delay: (text: string) => ({ delayMs: wholeNumber("delay", text, 0, "milliseconds") }),
  method: (text: string) => ({ method: httpMethod(text) }),
  async: (text: string) => ({ async: flag(text) }),
  version: (text: string) => ({ version: versionText(text) }),
} as const satisfies Record<string, (text: string) => ToolUriOptions>;

function wholeNumber(option: string, text: string, least: number, unit: string): number {
  const value = /^\d{1,12}$/.test(text) ? Number(text) : Number.NaN;
  if (!(value >= least)) {
    throw bad(
      `Option '${option}' must be a whole number of ${unit}, at least ${least}; got '${shorten(text)}'.`,
      option,
    );
  }
  return value;
}

function httpMethod(text: string): string {
  const method = text.toUpperCase();
  if (!["GET", "POST", "PUT", "DELETE", "PATCH"].includes(method)) {
    throw bad(`Option 'method' must be GET, POST, PUT, DELETE or PATCH; got '${shorten(text)}'.`, "method");
  }
  return method;
}

function flag(text: string): boolean {
  if (text !== "true" && text !== "false")
    throw bad(`Option 'async' must be true or false; got '${shorten(text)}'.`, "async");
  return text === "true";
}

function versionText(text: string): string {
  if (!/^[A-Za-z0-9._-]{1,64}$/.test(text)) {
    throw bad(`Option 'version' may hold letters, digits, '.', '_' and '-'; got '${shorten(text)}'.`, "version");
  }
  return text;
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
 * @throws GatewayError `invalid_uri` naming the option or part at fault; `tool_not_found` for an unknown scheme
 * @example parseToolUri("api://crm/customer_list?timeout=5000")
 */
export function parseToolUri(text: string): ToolUri {
  if (text.length > 2_048) throw bad("A tool URI may have 2,048 characters at most.");
  // Not `new URL`: platforms disagree about hosts of unknown schemes (case, non-ASCII, empty).
  const match = /^([A-Za-z][A-Za-z0-9+.-]*):\/\/([^/?#]*)(\/[^?#]*)?(\?[^#]*)?(#.*)?$/su.exec(text);
  if (match === null) throw bad(`'${shorten(text)}' is not a tool URI; expected scheme://service-id/tool-id?options.`);
  const [, schemeText = "", serviceText = "", pathText = "", queryText = "", fragment] = match;
  if (fragment !== undefined) throw bad("A tool URI has no '#' part; write '%23' for a literal one.");
  const scheme = schemeText.toLowerCase();
  if (!Object.hasOwn(schemeShapes, scheme)) {
    throw new GatewayError(
      "tool_not_found",
      `Unknown tool type '${scheme}'; known: ${Object.keys(schemeShapes).join(", ")}.`,
      {
        param: "uri",
      },
    );
  }
  const known = scheme as ToolScheme;
  const service = decode(serviceText, "service id");
  if (service === "") throw bad("The service id is missing between '//' and the next '/'.");
  const tool = decode(pathText.replace(/^\//, ""), "tool id");
  const shape = schemeShapes[known];
  if (shape === "required" && tool === "")
    throw bad(`'${known}://' needs a tool id after the service id: ${known}://${shorten(service)}/tool-id.`);
  if (shape === "refused" && pathText !== "")
    throw bad(`'${known}://' takes no tool id; write ${known}://${shorten(service)}.`);
  return { scheme: known, service, tool, options: parseOptions(queryText.slice(1)) };
}

function parseOptions(query: string): ToolUriOptions {
  if (query === "") return {};
  const seen = new Set<string>();
  const options: { -readonly [K in keyof ToolUriOptions]: ToolUriOptions[K] } = {};
  for (const pair of query.split("&")) {
    const at = pair.indexOf("=");
    const name = decode(at < 0 ? pair : pair.slice(0, at), "option name", "options");
    const value = decode(at < 0 ? "" : pair.slice(at + 1), `value of option '${shorten(name)}'`, name);
    if (!Object.hasOwn(optionParsers, name)) {
      throw bad(`Unknown option '${shorten(name)}'; known: ${Object.keys(optionParsers).join(", ")}.`, name);
    }
    if (seen.has(name)) throw bad(`Option '${name}' is given twice.`, name);
    seen.add(name);
    Object.assign(options, optionParsers[name as keyof typeof optionParsers](value));
  }
  return options;
}

/** The address without options, percent-encoded: equal tools give equal text. */
export function formatToolUri(scheme: ToolScheme, service: string, tool = ""): string {
  const base = `${scheme}://${encodeURIComponent(service)}`;
  return tool === "" ? base : `${base}/${tool.split("/").map(encodeURIComponent).join("/")}`;
}
