/**
 * From a definition as it was sent to a row of `sys_ai_plugin` and back (BLIND-4, BLIND-10). Whatever
 * could go wrong at every call is refused here once, naming the field.
 */
import { createHash } from "node:crypto";
import type * as z from "zod";
import { GatewayError } from "../errors/gateway-error.ts";
import { checkAll, listedProblems, schemaProblems, type ToldProblem } from "../errors/schema-problems.ts";
import { canonicalJson, isJsonObject, type JsonObject, type JsonValue } from "../json.ts";
import type { Egress } from "../ports/egress.ts";
import type { NewPlugin } from "../ports/plugins.ts";
import { compileArguments } from "../tools/arguments.ts";
import { authSlots, mappingProblems } from "./auth-mapping.ts";
import { hasPropertyAt, namesTo, pointerProblem } from "./body-pointer.ts";
import { isElementName } from "./body-writers.ts";
import {
  pluginDefinitionSchema,
  stylesOf,
  type AuthMapping,
  type Execution,
  type PluginDefinition,
  type AuthConfig,
} from "./definition.ts";
import { isHeaderName, isHeaderValue, isTransportHeader } from "./header-rules.ts";
import type { PluginRecord } from "./plugin.ts";
import { compilePlan, placementOf, wireNameOf, type Plan } from "./request.ts";
import { hasSecretInQuery, isSecretValue, looksLikeSecret, notAName } from "../secrets/secret-shape.ts";
import { runtimeConfigSchema, type RuntimeConfig } from "./runtime-config.ts";

export interface RegisterOptions {
  /** Refuses addresses that could never be called. */
  readonly egress: Pick<Egress, "checkUrl">;
  readonly enabled?: boolean;
  /** The definition is to be a row, which others see: it must tell no secrets but those that the row before told already. */
  readonly row?: { readonly replaces: PluginRecord | undefined };
}

/** Bytes of a definition's parameters; larger ones would not fit into a model's context either. */
const largestSchema = 131_072;

/** @throws GatewayError `invalid_definition` whose `param` is the dotted path of the field */
export function registerPlugin(input: unknown, options: RegisterOptions): NewPlugin {
  const parsed = pluginDefinitionSchema.safeParse(input);
  if (!parsed.success) throw toInvalidDefinition(parsed.error);
  const { row } = options;
  checkDefinition(parsed.data, options, row === undefined ? [] : [() => refuseSecrets(parsed.data, row.replaces)]);
  return toNewPlugin(parsed.data, options.enabled ?? true);
}

/**
 * A `runtime_config` sent with a request (BLIND-7), checked like stored plugins.
 * @throws GatewayError `invalid_definition`, `egress_denied`, whose `param` is the field's place in the request:
 * `runtime_config.plugins[0].execution.base_url`
 */
export function parseRuntimeConfig(input: unknown, options: RegisterOptions): RuntimeConfig {
  const parsed = runtimeConfigSchema.safeParse(input);
  if (!parsed.success) throw toInvalidDefinition(parsed.error, "runtime_config");
  const names = new Set<string>();
  parsed.data.plugins.forEach((definition, index) => {
    try {
      checkDefinition(definition, options);
      requireNoConnection(definition);
      if (names.has(definition.name))
        throw invalid("name", `'${definition.name}' is the name of an earlier plugin already`);
      names.add(definition.name);
    } catch (error) {
      throw error instanceof GatewayError ? under(`runtime_config.plugins[${index}]`, error, withIndexes) : error;
    }
  });
  return parsed.data;
}

/** What users have connected belongs to a stored tool; an inline one is somebody else's with every request. */
function requireNoConnection({ auth_config: config }: PluginDefinition): void {
  if (config?.grant === "authorization_code") {
    throw invalid(
      "auth_config.grant",
      "is for stored plugins only; store this one, or send an access token with type bearer",
    );
  }
}

const inlineRecords = new WeakMap<PluginDefinition, PluginRecord>();

/** The row that an inline plugin would have; made once for each definition object. */
export function recordFromDefinition(definition: PluginDefinition): PluginRecord {
  const known = inlineRecords.get(definition);
  if (known !== undefined) return known;
  const record = { ...toNewPlugin(definition, true), pluginId: 0, createdAt: 0, updatedAt: 0 };
  inlineRecords.set(definition, record);
  return record;
}

/**
 * The definition behind a row, for reading it back; registering it again gives the same row.
 * @throws GatewayError `invalid_definition` for rows that are no HTTP plugins
 */
export function definitionOf(record: PluginRecord): PluginDefinition {
  const config = record.executionConfig;
  if (!("execution" in config)) throw invalid("type", `is ${record.type}; only HTTP plugins have a definition`);
  return {
    schema_version: config.schema_version,
    name: record.name,
    description: record.description,
    ...(record.title === null ? {} : { title: record.title }),
    ...(record.iconUrl === null ? {} : { icon_url: record.iconUrl }),
    parameters: record.parameterSchema,
    execution: config.execution,
    ...(config.auth_config === undefined ? {} : { auth_config: config.auth_config }),
    required_credentials: [...record.requiredCredentials],
    ...(config.source === undefined ? {} : { source: config.source }),
    sensitive: record.sensitive,
    roles: [...record.roles],
  };
}

function toNewPlugin(definition: PluginDefinition, enabled: boolean): NewPlugin {
  const { schema_version, execution, auth_config, source } = definition;
  const sources = auth_config?.mapping.map(({ source }) => source) ?? [];
  const plugin = {
    name: definition.name,
    title: definition.title ?? null,
    description: definition.description,
    iconUrl: definition.icon_url ?? null,
    type: "HTTP",
    parameterSchema: definition.parameters,
    executionConfig: {
      schema_version,
      execution,
      ...(auth_config === undefined ? {} : { auth_config }),
      ...(source === undefined ? {} : { source }),
    },
    requiredCredentials: [...new Set([...(definition.required_credentials ?? []), ...sources])],
    sensitive: definition.sensitive ?? false,
    roles: definition.roles ?? [],
  } as const;
  const hash = createHash("sha256").update(canonicalJson(plugin), "utf8").digest("hex");
  return { ...plugin, enabled, hash };
}

// Checks that span fields

/** @throws GatewayError `invalid_definition`, `egress_denied`, naming the first field and listing all that are wrong */
function checkDefinition(
  definition: PluginDefinition,
  options: RegisterOptions,
  more: readonly (() => void)[] = [],
): void {
  const { execution, parameters } = definition;
  checkAll([
    () => checkIcon(definition.icon_url),
    () => checkParameters(parameters),
    () => checkAddress(execution, options),
  ]);
  const plan = compilePlan(execution, parameters);
  const properties = propertiesOf(parameters);
  checkAll([
    () => checkPlaceholders(definition, plan, properties),
    () => checkOverrides(execution, plan, properties),
    () => checkNames(execution, plan, properties),
    () => checkHeaders(execution),
    () => checkBody(execution, plan, properties),
    ...more,
    () => checkAuth(definition, plan, properties),
  ]);
}

function checkIcon(url: string | undefined): void {
  if (url === undefined) return;
  const parsed = URL.parse(url);
  if (parsed === null || !/^https?:$/.test(parsed.protocol) || parsed.username !== "" || parsed.password !== "") {
    throw invalid("icon_url", "must be an http or https URL without user name and password");
  }
}

function checkParameters(parameters: JsonObject): void {
  if (parameters["type"] !== "object") throw invalid("parameters.type", `must be "object"`);
  if (Buffer.byteLength(JSON.stringify(parameters), "utf8") > largestSchema) {
    throw invalid("parameters", `has more than ${largestSchema} bytes`);
  }
  const { properties, required } = parameters;
  if (properties !== undefined && !isJsonObject(properties))
    throw invalid("parameters.properties", "must be an object");
  if (required !== undefined && !(Array.isArray(required) && required.every((name) => typeof name === "string"))) {
    throw invalid("parameters.required", "must be a list of names");
  }
  try {
    compileArguments(parameters);
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error;
    throw new GatewayError("invalid_definition", error.message, {
      ...error.details,
      param: error.details.param ?? "parameters",
    });
  }
}

type Properties = ReadonlyMap<string, JsonValue>;

function propertiesOf(parameters: JsonObject): Properties {
  const properties = parameters["properties"];
  return new Map(isJsonObject(properties) ? Object.entries(properties) : []);
}

function checkPlaceholders(
  { parameters, auth_config: config }: PluginDefinition,
  plan: Plan,
  properties: Properties,
): void {
  const required = parameters["required"];
  const slots = config === undefined ? [] : authSlots(config);
  for (const name of plan.template.placeholders) {
    const schema = properties.get(name);
    if (schema === undefined) {
      if (slots.some((slot) => slot.location === "path" && slot.name === name)) continue;
      throw invalid(
        "execution.base_url",
        `has the placeholder '{${name}}', which nothing fills; add it to parameters.properties, or for a credential to auth_config.mapping with location 'path'`,
      );
    }
    const hasDefault = isJsonObject(schema) && schema["default"] !== undefined && schema["default"] !== null;
    if (!hasDefault && !(Array.isArray(required) && required.includes(name))) {
      throw invalid("parameters.required", `must name '${name}', or '${name}' needs a default: it is part of base_url`);
    }
  }
  for (const name of plan.template.queryNames) {
    const argument = [...properties.keys()].find(
      (other) => placementOf(plan, other) === "query" && wireNameOf(plan, other) === name,
    );
    if (argument !== undefined) {
      throw invalid(
        `parameters.properties.${argument}`,
        "has the name of a query parameter that base_url sets already",
      );
    }
  }
}

function checkOverrides(execution: Execution, plan: Plan, properties: Properties): void {
  const { placeholders } = plan.template;
  const headers = new Set(Object.keys(execution.headers ?? {}).map((name) => name.toLowerCase()));
  for (const [name, placement] of Object.entries(execution.param_overrides ?? {})) {
    const field = `execution.param_overrides.${name}`;
    if (!properties.has(name)) throw invalid(field, "names a parameter that is not in parameters.properties");
    const isInPath = placeholders.includes(name);
    if (placement === "path" && !isInPath)
      throw invalid(field, `is "path", but base_url has no placeholder '{${name}}'`);
    if (placement !== "path" && isInPath)
      throw invalid(field, `must be "path": base_url has the placeholder '{${name}}'`);
    if (placement !== "header") continue;
    const header = wireNameOf(plan, name);
    if (!isHeaderName(header)) throw invalid(field, "cannot be a header: its name is not a header name");
    if (isTransportHeader(header) || header.toLowerCase() === "authorization") {
      throw invalid(field, "cannot be a header of this name, which only the gateway sets");
    }
    if (headers.has(header.toLowerCase()))
      throw invalid(field, "has the name of a header that execution.headers sets already");
    headers.add(header.toLowerCase());
  }
  const cookie = [...properties.keys()].find((name) => placementOf(plan, name) === "cookie");
  if (cookie !== undefined && headers.has("cookie")) {
    throw invalid(`execution.param_overrides.${cookie}`, "cannot be a cookie beside a header 'Cookie'");
  }
}

function checkNames(execution: Execution, plan: Plan, properties: Properties): void {
  for (const name of Object.keys(execution.param_names ?? {})) {
    const field = `execution.param_names.${name}`;
    if (!properties.has(name)) throw invalid(field, "names a parameter that is not in parameters.properties");
    const place = placementOf(plan, name);
    const other = [...properties.keys()].find(
      (each) => each !== name && placementOf(plan, each) === place && wireNameOf(plan, each) === wireNameOf(plan, name),
    );
    if (other !== undefined && place !== "path")
      throw invalid(field, `is what '${other}' is called in the ${place}, too`);
  }
  for (const [name, { style }] of Object.entries(execution.param_styles ?? {})) {
    const field = `execution.param_styles.${name}`;
    if (!properties.has(name)) throw invalid(field, "names a parameter that is not in parameters.properties");
    const place = placementOf(plan, name);
    if (place === "body" && plan.format !== "form")
      throw invalid(field, "is for parameters in query, path, header or cookie, and for bodies that are forms");
    const styles = stylesOf(place);
    if (!styles.includes(style)) throw invalid(field, `must be one of ${styles.join(", ")} in the ${place}`);
  }
  for (const name of Object.keys(execution.part_types ?? {})) {
    const field = `execution.part_types.${name}`;
    if (!properties.has(name)) throw invalid(field, "names a parameter that is not in parameters.properties");
    if (plan.format !== "multipart" || placementOf(plan, name) !== "body")
      throw invalid(field, "is for parameters in a multipart body only");
  }
}

function checkHeaders(execution: Execution): void {
  const seen = new Set<string>();
  for (const [name, value] of Object.entries(execution.headers ?? {})) {
    const field = `execution.headers.${name}`;
    if (!isHeaderName(name)) throw invalid(field, "is not a header name");
    if (seen.has(name.toLowerCase())) throw invalid(field, "is given twice");
    seen.add(name.toLowerCase());
    if (name.toLowerCase() === "authorization") throw invalid(field, "is a credential; use auth_config");
    if (name.toLowerCase() === "content-type") throw invalid(field, "follows from execution.content_type");
    if (isTransportHeader(name)) throw invalid(field, "is a header that only the gateway sets");
    if (!isHeaderValue(value)) throw invalid(field, "may hold visible ASCII characters, spaces and tabs only");
  }
  const key = execution.idempotency_header;
  if (key === undefined) return;
  const field = "execution.idempotency_header";
  if (isTransportHeader(key) || key.toLowerCase() === "authorization")
    throw invalid(field, "is a header that only the gateway sets");
  const isOverride = Object.entries(execution.param_overrides ?? {}).some(
    ([name, placement]) =>
      placement === "header" && (execution.param_names?.[name] ?? name).toLowerCase() === key.toLowerCase(),
  );
  if (seen.has(key.toLowerCase()) || isOverride)
    throw invalid(field, "is the name of another header of this definition");
}

function checkBody(execution: Execution, plan: Plan, properties: Properties): void {
  const inBody = [...properties.keys()].filter((name) => placementOf(plan, name) === "body");
  if (plan.bodyParam !== undefined) {
    checkBodyParam(plan.bodyParam, plan, inBody);
  } else if (plan.format === "raw") {
    throw invalid(
      "execution.content_type",
      `is ${execution.content_type}, whose body is one argument; name it in execution.body_param`,
    );
  } else if (plan.format === "text" && inBody.length > 1) {
    throw invalid(
      "execution.content_type",
      `is text/plain, which has room for one parameter, not for ${inBody.join(", ")}`,
    );
  }
  if (execution.xml_root !== undefined && plan.format !== "xml") {
    throw invalid("execution.xml_root", "is for content types of XML only");
  }
}

function checkBodyParam(name: string, plan: Plan, inBody: readonly string[]): void {
  const field = "execution.body_param";
  if (!inBody.includes(name)) throw invalid(field, "names a parameter that is not in parameters.properties");
  if (plan.template.placeholders.includes(name)) throw invalid(field, "names a parameter that is part of base_url");
  const other = inBody.find((each) => each !== name);
  if (other !== undefined) throw invalid(field, `is the whole body, but '${other}' is placed in the body, too`);
}

/**
 * Secrets in the place of their names, and plain ones among headers and in the address: a stored definition is shown to
 * whoever may use the tool, and what a back end repeats of it is no credential that would be redacted.
 */
function refuseSecrets(definition: PluginDefinition, replaces: PluginRecord | undefined): void {
  const { auth_config: config, required_credentials: required = [], execution } = definition;
  const named = [
    ...(config?.mapping ?? []).map(({ source }, index) => [`auth_config.mapping.${index}.source`, source] as const),
    ...required.map((name, index) => [`required_credentials.${index}`, name] as const),
  ];
  const known = replaces?.requiredCredentials ?? [];
  const [field] = named.find(([, name]) => looksLikeSecret(name) && !known.includes(name)) ?? [];
  if (field !== undefined) throw invalid(field, notAName);
  const before = replaces === undefined ? undefined : definitionOf(replaces).execution;
  const headers = Object.entries(execution.headers ?? {});
  const [header] =
    headers.find(([name, value]) => isSecretValue(name, value) && before?.headers?.[name] !== value) ?? [];
  if (header !== undefined) throw invalid(`execution.headers.${header}`, `is a secret; ${storeIt}`);
  if (before?.base_url !== execution.base_url && hasSecretInQuery(execution.base_url)) {
    throw invalid("execution.base_url", `must not hold a secret in its query; ${storeIt}`);
  }
}

const storeIt = "store it with PUT /v1/credentials/{name} and name it in auth_config";

function checkAuth({ auth_config: config, execution }: PluginDefinition, plan: Plan, properties: Properties): void {
  if (config === undefined) return;
  const [problem] = mappingProblems(config);
  if (problem !== undefined) throw invalid(`auth_config.${problem.path}`, problem.message);
  const others = [...Object.keys(execution.headers ?? {}), execution.idempotency_header ?? ""].map((name) =>
    name.toLowerCase(),
  );
  authSlots(config).forEach(({ location, name }) => {
    const isHere = (entry: AuthMapping): boolean => entry.target === name && entry.location === location;
    const key = config.mapping.findIndex((entry) => entry.type !== undefined && isHere(entry));
    const index = key < 0 ? config.mapping.findIndex(isHere) : key;
    const field = index < 0 ? "auth_config.mapping" : `auth_config.mapping.${index}.target`;
    // A placeholder bears the argument's name.
    const isSame = (other: string): boolean =>
      location === "header"
        ? wireNameOf(plan, other).toLowerCase() === name.toLowerCase()
        : (location === "path" ? other : wireNameOf(plan, other)) === name;
    const argument = [...properties.keys()].find(
      (other) =>
        (placementOf(plan, other) === location && isSame(other)) ||
        (location === "header" && name.toLowerCase() === "cookie" && placementOf(plan, other) === "cookie"),
    );
    if (argument !== undefined) throw invalid(field, `is '${name}', where the argument '${argument}' is sent, too`);
    if (location === "header" && others.includes(name.toLowerCase())) {
      throw invalid(field, `is '${name}', a header that 'execution' sets, too`);
    }
    if (location === "query" && plan.template.queryNames.has(name)) {
      throw invalid(field, `is '${name}', a query parameter that base_url sets, too`);
    }
    if (location === "path" && !plan.template.placeholders.includes(name)) {
      throw invalid(field, `is '${name}', but base_url has no placeholder '{${name}}'`);
    }
    if (location === "body") checkSecretField(field, name, { plan, properties });
  });
  checkApart(config, plan);
}

/** Which bodies have room for a field beside the arguments. */
function checkSecretField(
  field: string,
  name: string,
  { plan, properties }: { readonly plan: Plan; readonly properties: Properties },
): void {
  const { format, bodyParam, body } = plan;
  if (bodyParam !== undefined) throw invalid(field, `is '${name}' in the body, which is the argument '${bodyParam}'`);
  if (format === "text" || format === "raw")
    throw invalid(field, `is '${name}' in the body, and a body of type ${body.contentType} has no fields`);
  if (format === "xml" && !isElementName(name)) throw invalid(field, "cannot be the name of an XML element");
  if (format !== "json" && name.startsWith("/"))
    throw invalid(
      field,
      `is the pointer '${name}', and a body of type ${body.contentType} has fields at its top alone`,
    );
  if (format !== "json") return;
  const problem = pointerProblem(name);
  if (problem !== undefined) throw invalid(field, problem);
  const [top, ...rest] = namesTo(name);
  const argument = [...properties].find(
    ([other, schema]) =>
      placementOf(plan, other) === "body" && wireNameOf(plan, other) === top && hasPropertyAt(schema, rest),
  );
  if (argument !== undefined)
    throw invalid(
      field,
      `is '${name}', which the argument '${argument[0]}' has, too; leave it out of that argument's schema`,
    );
}

/** A value cannot be both a credential and what holds another one. */
function checkApart(config: AuthConfig, { format }: Plan): void {
  const places = authSlots(config).filter(({ location }) => format === "json" && location === "body");
  for (const { name } of places) {
    const names = namesTo(name);
    const outer = places.find((other) => {
      const own = namesTo(other.name);
      return other.name !== name && own.length <= names.length && own.every((each, index) => each === names[index]);
    });
    if (outer === undefined) continue;
    const index = config.mapping.findIndex((entry) => entry.target === name && entry.location === "body");
    throw invalid(`auth_config.mapping.${index}.target`, `is '${name}', which lies in '${outer.name}'`);
  }
}

function checkAddress(execution: Execution, { egress }: RegisterOptions): void {
  const { template } = compilePlan(execution, {});
  try {
    egress.checkUrl(`${template.origin}/`);
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error;
    throw new GatewayError(error.code, error.message, { ...error.details, param: "execution.base_url" });
  }
}

// Errors

function invalid(field: string, problem: string): GatewayError {
  return new GatewayError("invalid_definition", `'${field}' ${problem}.`, { param: field });
}

/** What is wrong with a definition that stands at `path`. @param spell a place, as the request writes it */
export function under(path: string, error: GatewayError, spell: (place: string) => string = String): GatewayError {
  const { param: below, extra } = error.details;
  const fieldOf = (param: string | undefined): string => (param === undefined ? path : spell(`${path}.${param}`));
  const { problems } = extra ?? {};
  const listed = Array.isArray(problems) ? (problems as unknown as ToldProblem[]) : [];
  const told = listed.map(({ param, message }) => ({ param: fieldOf(param), message }));
  return new GatewayError(error.code, `In '${path}': ${error.message}`, {
    ...error.details,
    param: fieldOf(below),
    ...listedProblems(told),
  });
}

/** `plugins.0.name` as it is written in a request: `plugins[0].name`. */
function withIndexes(path: string): string {
  return path.replaceAll(/\.(\d+)(?=\.|$)/g, "[$1]");
}

/** @param root the field of a request that holds what was parsed; absent: the definition is no field, but the body itself */
function toInvalidDefinition(error: z.ZodError, root?: string): GatewayError {
  const told = schemaProblems(error).map(({ path, says }) => ({
    param: root === undefined ? path.join(".") : withIndexes([root, ...path].join(".")),
    message: says,
  }));
  const [{ param, message } = { param: root ?? "", message: "is not valid" }] = told;
  const what = param === "" ? "The definition" : `'${param}'`;
  return new GatewayError("invalid_definition", `${what} ${message}.`, {
    ...(param === "" ? {} : { param }),
    ...listedProblems(told),
  });
}
