/**
 * The outgoing request of a definition (BLIND-2): a plan is compiled once per plugin, a request is
 * built from it for each call. Whatever the arguments are, the request goes to the plan's origin and
 * route, and credentials and fixed parts of the definition beat arguments of the same name.
 */
import { GatewayError } from "../errors/gateway-error.ts";
import type { JsonObject, JsonValue } from "../json.ts";
import { compileArguments } from "../tools/arguments.ts";
import type { PlacedSecret } from "./auth-mapping.ts";
import { namesTo, withValueAt } from "./body-pointer.ts";
import { bodyWriters, writeWholeBody, type BodyArguments, type BodySpec, type WrittenBody } from "./body-writers.ts";
import { bodyFormatOf, type BodyFormat, type Execution, type ParameterStyle, type Placement } from "./definition.ts";
import { isHeaderValue } from "./header-rules.ts";
import { toPlainText, writeHeaderText, writePairs, writePathValue } from "./parameter-styles.ts";
import {
  encodePathSecret,
  expandUrlTemplate,
  parseUrlTemplate,
  percentEncode,
  type UrlTemplate,
} from "./url-template.ts";

export interface Plan {
  readonly method: Execution["method"];
  readonly template: UrlTemplate;
  /** Where single parameters go; all others go to `rest`. */
  readonly placements: ReadonlyMap<string, Placement>;
  readonly rest: Extract<Placement, "query" | "body">;
  /** What the back end calls parameters, where it is not the name of the argument. */
  readonly names: ReadonlyMap<string, string>;
  readonly styles: ReadonlyMap<string, ParameterStyle>;
  readonly format: BodyFormat;
  readonly body: BodySpec;
  /** The argument that is the whole body. */
  readonly bodyParam: string | undefined;
  /** Fixed headers, `accept` and `user-agent` included. */
  readonly headers: readonly (readonly [name: string, value: string])[];
}

export interface BuiltRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly body: string | Uint8Array | undefined;
  /** Names of headers that hold credentials, in lower case. */
  readonly secretHeaders: readonly string[];
  /** Whether a credential stands in the body. */
  readonly hasSecretBody: boolean;
}

/** Methods whose requests usually have no body. */
const bodiless: ReadonlySet<string> = new Set(["GET", "DELETE"]);

const defaultHeaders: readonly (readonly [name: string, value: string])[] = [
  ["accept", "application/json, text/*;q=0.9, */*;q=0.8"],
  ["user-agent", "toolyard"],
];

/** @throws GatewayError `invalid_definition` for a `base_url` that cannot be a template */
export function compilePlan(execution: Execution, parameters: JsonObject): Plan {
  const template = parseUrlTemplate(execution.base_url);
  const placements = new Map<string, Placement>(Object.entries(execution.param_overrides ?? {}));
  const names = new Map(Object.entries(execution.param_names ?? {}));
  const styles = new Map(Object.entries(execution.param_styles ?? {}));
  if (execution.body_param !== undefined) placements.set(execution.body_param, "body");
  // A placeholder has to be filled, wherever the other parameters go.
  for (const name of template.placeholders) placements.set(name, "path");
  const fixed = Object.entries(execution.headers ?? {});
  const rest = restOf(execution);
  const inBody = [...names].filter(([argument]) => (placements.get(argument) ?? rest) === "body");
  const given = new Set(fixed.map(([name]) => name.toLowerCase()));
  return {
    method: execution.method,
    template,
    placements,
    rest,
    names,
    styles,
    format: bodyFormatOf(execution.content_type) ?? "json",
    body: {
      contentType: execution.content_type,
      parameters,
      xmlRoot: execution.xml_root ?? "request",
      argumentOf: new Map(inBody.map(([argument, name]) => [name, argument])),
      styles,
      partTypes: new Map(Object.entries(execution.part_types ?? {})),
    },
    bodyParam: execution.body_param,
    headers: [...defaultHeaders.filter(([name]) => !given.has(name)), ...fixed],
  };
}

function restOf(execution: Execution): Plan["rest"] {
  if (execution.param_placement !== "path") return execution.param_placement;
  return bodiless.has(execution.method) ? "query" : "body";
}

/** Where a parameter of this name goes. */
export function placementOf(plan: Plan, name: string): Placement {
  return plan.placements.get(name) ?? plan.rest;
}

/** What the back end calls a parameter. */
export function wireNameOf(plan: Plan, argument: string): string {
  return plan.names.get(argument) ?? argument;
}

/**
 * @param args validated, with defaults applied
 * @param secrets what `auth-mapping.ts` made of the credentials
 * @throws GatewayError `invalid_arguments` naming the argument that cannot be sent where it belongs
 */
export function buildRequest(plan: Plan, args: JsonObject, secrets: readonly PlacedSecret[]): BuiltRequest {
  try {
    return assemble(plan, args, secrets);
  } catch (error) {
    // The stack or the longest string was not enough.
    if (!(error instanceof RangeError)) throw error;
    throw new GatewayError("invalid_arguments", "The arguments are nested too deeply or are too large to be sent.", {
      param: "arguments",
    });
  }
}

function assemble(plan: Plan, args: JsonObject, secrets: readonly PlacedSecret[]): BuiltRequest {
  const sorted = sortArguments(plan, args, secrets);
  const { path, query } = expandUrlTemplate(plan.template, sorted.path, (name, value) =>
    sorted.secretPath.includes(name)
      ? encodePathSecret(toPlainText(value))
      : writePathValue(wireNameOf(plan, name), value, plan.styles.get(name)),
  );
  const queryText = [query, ...sorted.query, ...secretQuery(secrets)].filter((part) => part !== "").join("&");
  const url = new URL(`${plan.template.origin}${path}${queryText === "" ? "" : `?${queryText}`}`);
  // The parser has the last word on what a path means; if it read another route, nothing is sent.
  if (url.origin !== plan.template.origin || url.pathname !== path) {
    throw new GatewayError("invalid_arguments", "The arguments would change the route of the request.", {
      param: plan.template.placeholders[0] ?? "arguments",
    });
  }
  const written = writeBody(plan, sorted.body);
  return {
    method: plan.method,
    url: url.href,
    headers: mergeHeaders([
      secretsAt("header", secrets),
      written === undefined ? [] : [["content-type", written.contentType]],
      plan.headers,
      sorted.headers,
    ]),
    body: written?.body,
    secretHeaders: secretsAt("header", secrets).map(([name]) => name.toLowerCase()),
    hasSecretBody: secretsAt("body", secrets).length > 0,
  };
}

type HeaderPairs = readonly (readonly [name: string, value: string])[];

/** The first group that brings a header has it: credentials, then the body's type, then the definition, then arguments. */
function mergeHeaders(groups: readonly HeaderPairs[]): HeaderPairs {
  const merged: (readonly [string, string])[] = [];
  const taken = new Set<string>();
  for (const group of groups) {
    for (const pair of group) {
      const lower = pair[0].toLowerCase();
      if (!taken.has(lower)) merged.push(pair);
      taken.add(lower);
    }
  }
  return merged;
}

interface SortedArguments {
  readonly path: { readonly [name: string]: JsonValue };
  /** Names in `path` that credentials fill. */
  readonly secretPath: readonly string[];
  readonly query: readonly string[];
  readonly headers: readonly (readonly [string, string])[];
  readonly body: readonly (readonly [string, JsonValue])[];
}

function sortArguments(plan: Plan, args: JsonObject, secrets: readonly PlacedSecret[]): SortedArguments {
  const path: [string, JsonValue][] = [];
  const query: string[] = [];
  const headers: [string, string][] = [];
  const body: [string, JsonValue][] = [];
  const cookies: string[] = [];
  const takenQuery = new Set(plan.template.queryNames);
  for (const { location, name } of secrets) if (location === "query") takenQuery.add(name);
  const [secretPath, secretBody] = [secretsAt("path", secrets), secretsAt("body", secrets)];
  const inBody = plan.format === "json" ? compileArguments(plan.body.parameters).withLongNumbers(args) : args;
  for (const [argument, value] of Object.entries(args)) {
    const placement = placementOf(plan, argument);
    const name = wireNameOf(plan, argument);
    const style = plan.styles.get(argument);
    if (placement === "path") path.push([argument, value]);
    else if (placement === "body") {
      body.push([plan.bodyParam === undefined ? name : argument, inBody[argument] ?? value]);
    } else if (placement === "header") headers.push(...writeHeader(argument, { name, value, style }));
    else if (placement === "cookie") cookies.push(...writePairs(name, value, style).map(toPair));
    else
      query.push(
        ...writePairs(name, value, style)
          .filter(([key]) => !takenQuery.has(key))
          .map(toPair),
      );
  }
  if (cookies.length > 0) headers.push(["cookie", cookies.join("; ")]);
  return {
    // `fromEntries` makes an own property of any name, `__proto__` included; of two of a name the last counts.
    path: Object.fromEntries([...path, ...secretPath]),
    secretPath: secretPath.map(([name]) => name),
    query,
    headers,
    body: withSecretFields(plan, body, secretBody),
  };
}

/** Whatever arguments there are, a field of a credential holds it. */
function withSecretFields(plan: Plan, args: BodyArguments, secrets: BodyArguments): BodyArguments {
  if (plan.format === "json" && secrets.length > 0) {
    const body: JsonObject = Object.fromEntries(args);
    return Object.entries(secrets.reduce((whole, [name, value]) => withValueAt(whole, namesTo(name), value), body));
  }
  return [...args.filter(([name]) => secrets.every(([own]) => own !== name)), ...secrets];
}

function secretsAt(
  place: PlacedSecret["location"],
  secrets: readonly PlacedSecret[],
): readonly (readonly [name: string, value: string])[] {
  return secrets.flatMap(({ location, name, value }) => (location === place ? [[name, value] as const] : []));
}

function secretQuery(secrets: readonly PlacedSecret[]): readonly string[] {
  return secretsAt("query", secrets).map(([name, value]) => toPair([name, percentEncode(value)]));
}

function toPair([name, encoded]: readonly [name: string, encoded: string]): string {
  return `${percentEncode(name)}=${encoded}`;
}

interface HeaderArgument {
  readonly name: string;
  readonly value: JsonValue;
  readonly style: ParameterStyle | undefined;
}

/** Null is no value. */
function writeHeader(argument: string, { name, value, style }: HeaderArgument): readonly [string, string][] {
  if (value === null) return [];
  const text = writeHeaderText(value, style);
  if (isHeaderValue(text)) return [[name, text]];
  throw new GatewayError(
    "invalid_arguments",
    `Argument '${argument}' is sent as a header, which may hold visible ASCII characters, spaces and tabs only.`,
    { param: argument },
  );
}

function writeBody(plan: Plan, args: BodyArguments): WrittenBody | undefined {
  if (plan.bodyParam !== undefined) return writeOneArgument(plan, plan.bodyParam, args);
  if (args.length === 0 && (plan.rest !== "body" || bodiless.has(plan.method))) return undefined;
  return bodyWriters[plan.format](args, plan.body);
}

function writeOneArgument(plan: Plan, name: string, args: BodyArguments): WrittenBody | undefined {
  const other = args.find(([argument]) => argument !== name);
  if (other !== undefined) {
    throw new GatewayError(
      "invalid_arguments",
      `Argument '${other[0]}' cannot be sent: the body of this request is the argument '${name}'.`,
      { param: other[0] },
    );
  }
  const [given] = args;
  return given === undefined ? undefined : writeWholeBody(plan.format, given, plan.body);
}
