/** One operation as the definition of a tool. */
import { authSlots } from "../../blind/auth-mapping.ts";
import { namesTo, withoutPropertyAt } from "../../blind/body-pointer.ts";
import { stylesOf, type ParameterStyle } from "../../blind/definition.ts";
import { isHeaderName, isTransportHeader } from "../../blind/header-rules.ts";
import { isJsonObject, type JsonObject } from "../../json.ts";
import type { Candidate } from "../candidate.ts";
import { configToJson } from "../credentials.ts";
import { importLimits } from "../limits.ts";
import { toArgumentName, toToolName } from "../names.ts";
import type { Notes } from "../notes.ts";
import { cutText, describeRoute, tidyStart } from "../text.ts";
import { nameArguments, placeArguments, toParameters, type Argument } from "./arguments.ts";
import type { ImportWork } from "../work.ts";
import { chooseBody, readBodyArguments, type ChosenBody } from "./body.ts";
import type { ApiDocument } from "./document.ts";
import { withDigitsAsText } from "./long-integers.ts";
import type { ApiOperation, ApiParameter } from "./operation.ts";
import { SchemaConverter, SchemaTooLarge, type SchemaSize } from "./schema.ts";
import { mayBe } from "./schema-types.ts";
import { placeKey, type AuthProposal } from "./security.ts";

/** No model should be told of keys, so what may be left out is. */
export type KeyUse = "left out" | "asked for";

export interface DefinitionOptions {
  readonly document: ApiDocument;
  /** Address that the path is appended to. */
  readonly base: string;
  readonly auth: AuthProposal;
  readonly prefix: string;
  /** Of a parameter that is for a key, and that no credential fills. `isOpen`: nothing else lets the caller in. */
  readonly keyUse: (parameter: ApiParameter, isOpen: boolean) => KeyUse | undefined;
  readonly work: ImportWork;
}

/** Why an operation does not become a tool. */
export class Unsupported extends Error {}

const methods: ReadonlySet<string> = new Set(["GET", "POST", "PUT", "DELETE", "PATCH"]);

/** @throws Unsupported */
export function toCandidate(operation: ApiOperation, options: DefinitionOptions): Candidate {
  const { method, path, key, notes } = operation;
  if (!methods.has(method)) throw new Unsupported(`its method ${method} is none that tools have`);
  for (const problem of options.auth.problems) notes.add(problem);
  const body = chooseBody(operation, options);
  if (body === undefined && operation.bodyRequired)
    throw new Unsupported("its body has no media type that can be sent");
  const route = readRoute(operation);
  const auth = withPlaces(options.auth, { route, body });
  const tool = fitted((size) => buildTool(operation, { ...options, auth, body, route, size }), notes);
  if (operation.deprecated) notes.add("The operation is deprecated.");
  return {
    key,
    label: `${method} ${path}`,
    wish: options.prefix + toWish(operation),
    definition: {
      schema_version: "v1",
      ...(operation.summary === undefined
        ? {}
        : { title: tidyStart(operation.summary, 256).text.replaceAll("\n", " ") }),
      description: describe(operation),
      ...tool,
      ...(auth.config === undefined ? {} : { auth_config: configToJson(auth.config) }),
    },
    auth: {
      schemes: auth.schemes,
      alternatives: auth.alternatives,
      credentials: auth.credentials,
      ...(auth.isGuess === true ? { isGuess: true } : {}),
    },
    warnings: notes.texts,
  };
}

/** Of a mapping for the whole document what this operation has a place for: a placeholder, a body of fields. */
function withPlaces(auth: AuthProposal, { route, body }: Pick<ToolOptions, "route" | "body">): AuthProposal {
  const { config, credentials } = auth;
  if (config === undefined) return auth;
  const mapping = config.mapping.filter(({ location, target }) => {
    if (location === "path") return target !== undefined && route.placeholders.has(target);
    return location !== "body" || body !== undefined;
  });
  if (mapping.length === config.mapping.length) return auth;
  const names = new Set(mapping.map(({ source }) => source));
  return {
    ...auth,
    config: mapping.length === 0 ? undefined : { ...config, mapping },
    credentials: credentials.filter(({ name }) => names.has(name)),
  };
}

function toWish({ operationId, method, path }: ApiOperation): string {
  return operationId === undefined ? `${method.toLowerCase()}_${toToolName(path)}` : toToolName(operationId);
}

function describe({ method, path, summary, description, deprecated, notes }: ApiOperation): string {
  const most = importLimits.toolDescription;
  const texts = [deprecated ? "Deprecated." : "", summary ?? "", description === summary ? "" : (description ?? "")];
  const parts = texts.map((text) => tidyStart(text, most));
  const text = parts.flatMap((part) => (part.text === "" ? [] : [part.text])).join("\n\n");
  if (text.length > most || parts.some(({ isCut }) => isCut))
    notes.add(`The description is cut to ${most} characters.`);
  return cutText(text === "" ? describeRoute(method, path) : text, most);
}

/** The tool with as much of its schemas as fits. @throws Unsupported */
function fitted(build: (size: SchemaSize) => JsonObject, notes: Notes): JsonObject {
  for (const size of importLimits.schemaTries) {
    try {
      const tool = build(size);
      if (Buffer.byteLength(JSON.stringify(tool), "utf8") <= importLimits.schemaBytes) return tool;
    } catch (error) {
      // A stack that does not suffice is one more sign of depth.
      if (!(error instanceof SchemaTooLarge) && !(error instanceof RangeError)) throw error;
    }
    notes.add(
      "The schema is too large to be taken whole; its deeper levels and the ends of its descriptions are left out.",
    );
  }
  throw new Unsupported(`its schema is larger than ${importLimits.schemaBytes} bytes even where it is cut`);
}

interface Route {
  /** With placeholders that bear the names of arguments. */
  readonly path: string;
  /** What the document calls each placeholder, by argument. */
  readonly placeholders: ReadonlyMap<string, string>;
  /** Names in the query that is part of the path. */
  readonly queryNames: ReadonlySet<string>;
}

function readRoute({ path, notes }: ApiOperation): Route {
  const [route = "", fragment] = path.split("#", 2);
  if (fragment !== undefined) notes.add(`What follows '#' in the path is not sent.`);
  const placeholders = new Map<string, string>();
  const written = route.replaceAll(/\{([^{}]*)\}/g, (_whole, name: string) => {
    const argument = toArgumentName(name.replace(/^\+|[+*]$/g, ""));
    if ((placeholders.get(argument) ?? name) !== name)
      throw new Unsupported("two placeholders of its path would be one argument");
    placeholders.set(argument, name);
    return `{${argument}}`;
  });
  const query = written.indexOf("?");
  return {
    path: written.startsWith("/") ? written : `/${written}`,
    placeholders,
    queryNames: new Set(query < 0 ? [] : new URLSearchParams(written.slice(query + 1)).keys()),
  };
}

/** A header in which back ends take a key that makes a write safe to repeat; the gateway has one for each call. */
const idempotencyHeader = /^(?:x-)?idempotency-key$/i;

interface ToolOptions extends DefinitionOptions {
  readonly body: ChosenBody | undefined;
  readonly route: Route;
  readonly size: SchemaSize;
}

/** `parameters` and `execution`. */
function buildTool(operation: ApiOperation, options: ToolOptions): JsonObject {
  const { document, base, body, route, size, work } = options;
  const { notes, method } = operation;
  const converter = new SchemaConverter({ document, notes, size, work });
  const fromParameters = readParameterArguments(operation, converter, options);
  const fromBody =
    body === undefined
      ? { arguments: [], additional: false }
      : readBodyArguments(body, { document, converter, operation });
  const ofCaller = withoutSecrets(fromBody.arguments, { ...options.auth, isJson: body?.format === "json" });
  const named = nameArguments([...fromParameters, ...ofCaller]);
  const idempotency = method === "GET" ? undefined : operation.parameters.find(isIdempotencyKey);
  const xmlRoot = "xmlRoot" in fromBody ? fromBody.xmlRoot : undefined;
  return {
    parameters: toParameters(named, fromBody.additional),
    execution: {
      method,
      base_url: base + route.path,
      ...(body === undefined ? {} : { content_type: body.contentType }),
      ...placeArguments(
        named,
        fromBody.arguments.some(({ isBody }) => isBody !== true),
      ),
      ...(xmlRoot === undefined ? {} : { xml_root: xmlRoot }),
      ...(idempotency === undefined ? {} : { idempotency_header: idempotency.name }),
    } as JsonObject,
  };
}

/** Fields of a body that no credential fills. */
function withoutSecrets(
  list: readonly Argument[],
  { config, isJson }: Pick<AuthProposal, "config"> & { readonly isJson: boolean },
): readonly Argument[] {
  const slots = config === undefined ? [] : authSlots(config).filter(({ location }) => location === "body");
  const places = slots.map(({ name }) => (isJson ? namesTo(name) : [name]));
  return list.flatMap((argument) => {
    const inner = places.filter(([top]) => top === argument.wireName).map(([, ...rest]) => rest);
    const schema = inner.reduce<JsonObject | undefined>(
      (left, names) => (left === undefined || names.length === 0 ? undefined : withoutPropertyAt(left, names)),
      argument.schema,
    );
    return schema === undefined ? [] : [{ ...argument, schema }];
  });
}

/** Places that credentials fill. */
function slotKeys({ config }: AuthProposal): ReadonlySet<string> {
  const slots = config === undefined ? [] : authSlots(config);
  return new Set(slots.map(({ location, name }) => placeKey(location, name)));
}

function readParameterArguments(
  operation: ApiOperation,
  converter: SchemaConverter,
  { auth, route, keyUse, work }: ToolOptions,
): readonly Argument[] {
  const { notes } = operation;
  work.look(operation.parameters.length + route.placeholders.size);
  const slots = slotKeys(auth);
  const isOpen = auth.config === undefined || auth.isGuess === true;
  const isAuth = ({ in: place, name }: ApiParameter): boolean =>
    slots.has(place === "cookie" ? placeKey("header", "Cookie") : placeKey(place, name));
  const placeholders = new Set(route.placeholders.values());
  const list: Argument[] = [];
  const inPath = new Map(
    operation.parameters.filter((parameter) => parameter.in === "path").map((parameter) => [parameter.name, parameter]),
  );
  for (const [argument, name] of route.placeholders) {
    if (slots.has(placeKey("path", argument))) continue;
    const parameter = inPath.get(name) ?? inPath.get(argument);
    if (parameter === undefined) notes.add(`The placeholder '{${name}}' of the path is not described; it takes text.`);
    list.push(
      parameter === undefined
        ? { place: "path", wireName: argument, schema: { type: "string" }, required: true }
        : toArgument(parameter, converter, notes),
    );
  }
  for (const parameter of operation.parameters) {
    if (parameter.in === "path") {
      if (!placeholders.has(parameter.name) && !route.placeholders.has(parameter.name))
        notes.add(`Parameter '${parameter.name}' has no placeholder in the path; it is left out.`);
      continue;
    }
    if (parameter.in === "cookie" && isAuth(parameter)) {
      notes.add(`Parameter '${parameter.name}' is a cookie, and the credential is all of them; it is left out.`);
      continue;
    }
    if (isAuth(parameter) || (operation.method !== "GET" && isIdempotencyKey(parameter))) continue;
    const use = keyUse(parameter, isOpen);
    const problem = use === "left out" ? whyLeftOut(parameter, auth) : problemOf(parameter, route);
    if (problem !== undefined) {
      notes.add(`Parameter '${parameter.name}' ${problem}; it is left out.`);
      continue;
    }
    if (use !== undefined)
      notes.add(`Parameter '${parameter.name}' is for a key, and models are asked for it; 'auth_config' can send it.`);
    list.push(toArgument(parameter, converter, notes));
  }
  return list;
}

function whyLeftOut({ name }: ApiParameter, { config }: AuthProposal): string {
  if (config !== undefined) return "is for a key, which 'auth_config' sends";
  const credentials = JSON.stringify({ credentials: { [name]: "NAME" } });
  return `is for a key that need not be sent, and none is: import with "auth": ${credentials} to send the credential 'NAME' in it`;
}

function isIdempotencyKey({ in: place, name }: ApiParameter): boolean {
  return place === "header" && idempotencyHeader.test(name);
}

/** OpenAPI says that these two, like `Authorization`, are described elsewhere. */
const describedElsewhere: ReadonlySet<string> = new Set(["accept", "content-type"]);

function problemOf({ name, in: place }: ApiParameter, route: Route): string | undefined {
  if (place === "query" && route.queryNames.has(name)) return "is set by the path already";
  if (place !== "header") return undefined;
  if (!isHeaderName(name)) return "cannot be the name of a header";
  if (name.toLowerCase() === "authorization") return "is set by 'auth_config' ('auth.config' of the import gives one)";
  if (describedElsewhere.has(name.toLowerCase()) || isTransportHeader(name))
    return "is a header that only the gateway sets";
  return undefined;
}

function toArgument(parameter: ApiParameter, converter: SchemaConverter, notes: Notes): Argument {
  const { name, in: place, required, description, deprecated, schema } = parameter;
  const described =
    description !== undefined && isJsonObject(schema.value)
      ? { ...schema, value: { ...schema.value, description } }
      : schema;
  const read = converter.convert(described, required);
  const style = styleFor(parameter, read, notes);
  const converted = style?.style === "json" ? read : withDigitsAsText(read, textLevels(place, style));
  return {
    place,
    wireName: name,
    schema: deprecated ? { ...converted, deprecated: true } : converted,
    required,
    style,
  };
}

/** How far in what a parameter holds is written as text, not as JSON. */
function textLevels(place: ApiParameter["in"], style: ParameterStyle | undefined): number {
  return place === "path" || style?.nested === true ? Number.POSITIVE_INFINITY : 1;
}

/** Only where it makes a difference: most parameters are single values. */
function styleFor(
  { name, in: place, style, explode }: ApiParameter,
  schema: JsonObject,
  notes: Notes,
): ParameterStyle | undefined {
  const isList = mayBe(schema, "array");
  const isObject = mayBe(schema, "object");
  if (style === "json") {
    if (place === "query" || place === "cookie") return isList || isObject ? { style } : undefined;
    if (place === "path" && (isList || isObject))
      notes.add(`Parameter '${name}' is written as text of a path, not as JSON.`);
    return undefined;
  }
  if (!stylesOf(place).includes(style)) {
    notes.add(`Parameter '${name}' has the style '${style}', which its place does not know; the usual one is taken.`);
    return undefined;
  }
  if (style === "label" || style === "matrix") return { style, explode };
  if (!isList && !isObject) return undefined;
  if (style === "deepObject") return { style, nested: true };
  if (place === "path") return explode && isObject ? { style, explode } : undefined;
  if (place === "header") return { style, explode };
  return style === "form" && explode && !isObject ? undefined : { style, explode };
}
