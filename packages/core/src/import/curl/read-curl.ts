/**
 * A curl command as a tool: called without arguments it sends what curl would have sent, and each value of
 * query, form and JSON body can be given otherwise. Nothing is run and no file is read; secrets become
 * credentials that stand in no definition.
 */
import { toPointer } from "../../blind/body-pointer.ts";
import { bodyFormatOf } from "../../blind/definition.ts";
import { isHeaderName, isHeaderValue, isTransportHeader } from "../../blind/header-rules.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import { isJsonObject, parseJson, type JsonObject, type JsonValue } from "../../json.ts";
import type { Candidate, ReadSource } from "../candidate.ts";
import { configToJson } from "../credentials.ts";
import { shortHash, toArgumentName, toToolName } from "../names.ts";
import { Notes } from "../notes.ts";
import { nameArguments, placeArguments, toParameters, type Argument } from "../openapi/arguments.ts";
import { describeRoute } from "../text.ts";
import { inferSchema, readPlain, withDefault } from "./infer.ts";
import { parseCurl, type CurlCommand, type DataPart } from "./options.ts";
import { mayBeSecret } from "../../secrets/secret-shape.ts";
import {
  CommandSecrets,
  holdsSecret,
  isHook,
  isLastingSecret,
  isRobot,
  isSecretText,
  isSecretVariable,
  isUnknown,
  looksSecret,
  mentionsSecret,
  secretInSegment,
} from "./secrets.ts";
import { hasVariable, replaceVariables } from "./words.ts";

export interface CurlOptions {
  readonly documentId?: string | undefined;
  readonly prefix: string;
  /** What the tool is to be called. */
  readonly name?: string | undefined;
}

export interface ReadCurl extends ReadSource {
  /** By the name of the credential; without a value where a shell variable stood in its place. */
  readonly secrets: ReadonlyMap<string, string | undefined>;
}

const longestId = 500;

const methods: ReadonlySet<string> = new Set(["GET", "POST", "PUT", "DELETE", "PATCH"]);

/** @throws GatewayError `invalid_request` with param `curl` */
export function readCurl(text: string, options: CurlOptions): ReadCurl {
  const notes = new Notes();
  const command = parseCurl(text, notes);
  const written = readAddress(command.url);
  const secrets = new CommandSecrets(written.origin);
  const method = methodOf(command);
  const headers = readHeaders(command, secrets, notes);
  if (command.user !== undefined) addUser(secrets, command.user);
  if (written.user !== undefined) addUser(secrets, written.user);
  const pairs = [...written.query, ...(command.isGet ? pairsOf(command.data, notes) : [])];
  const robot = robotIn(written, pairs);
  const query = fromPairs(pairs, "query", { secrets, notes, robot });
  // What path and body have depends on whether the command has a credential already.
  const address = withoutSecrets(written, secrets, notes);
  const body = command.isGet ? undefined : readBody(command, headers.contentType, { secrets, notes });
  if (body === undefined && headers.contentType !== undefined && method !== "GET" && method !== "DELETE")
    notes.add("The content type is left out: the command has no body.");
  const list = [
    ...address.placeholders.map((name): Argument => ({
      place: "path",
      wireName: name,
      schema: { type: "string" },
      required: true,
    })),
    ...query,
    ...(body?.arguments ?? []),
  ];
  const named = nameArguments(list);
  const key = `${method} ${address.origin}${address.path}${robot === undefined ? "" : ` ${robot}`}`;
  const shown = shownPath(address.path);
  const candidate: Candidate = {
    key,
    label: `${method} ${address.path}`,
    wish:
      options.name ??
      `${options.prefix}${method.toLowerCase()}_${toToolName(shown === "/" ? new URL(address.origin).hostname : shown)}`,
    definition: {
      schema_version: "v1",
      description: describeRoute(method, shown),
      parameters: toParameters(named, body?.additional ?? false),
      execution: {
        method,
        base_url: address.origin + address.path,
        ...(body === undefined ? {} : { content_type: body.contentType }),
        ...placeArguments(named, body !== undefined && body.arguments.every(({ isBody }) => isBody !== true)),
        ...(Object.keys(headers.fixed).length === 0 ? {} : { headers: headers.fixed }),
        ...(command.timeoutMs === undefined ? {} : { timeout_ms: command.timeoutMs }),
      } as JsonObject,
      ...(secrets.config === undefined ? {} : { auth_config: configToJson(secrets.config) }),
    },
    auth: secrets.auth,
    warnings: notes.texts,
    isNamed: options.name !== undefined,
  };
  return {
    document: {
      id: options.documentId ?? defaultId(key),
      title: null,
      version: null,
      baseUrl: address.origin + address.path,
      origin: address.origin,
      otherServers: [],
    },
    candidates: [candidate],
    skipped: [],
    present: new Set([key]),
    warnings: [],
    secrets: new Map([...secrets.values()].map(([name, { value }]) => [name, value])),
  };
}

/** Each command is a document of its own: of another one no tool is missing. */
function defaultId(key: string): string {
  const id = `curl ${key}`;
  return id.length <= longestId ? id : `${id.slice(0, longestId - 13)}_${shortHash(id, 12)}`;
}

function methodOf({ method, data, form, isGet, isUpload }: CurlCommand): string {
  const implied = isUpload ? "PUT" : (data.length > 0 || form.length > 0) && !isGet ? "POST" : "GET";
  const chosen = method ?? implied;
  if (!methods.has(chosen)) throw invalid(`has the method ${chosen.slice(0, 20)}, which no tool has`);
  return chosen;
}

type Pair = readonly [name: string, value: string];

interface Address {
  readonly origin: string;
  /** With `{name}` where a shell variable, a placeholder or `<name>` stood. */
  readonly path: string;
  readonly placeholders: readonly string[];
  readonly query: readonly Pair[];
  readonly user: string | undefined;
}

function readAddress(text: string): Address {
  const withScheme = /^[a-z][a-z0-9+.-]*:\/\//i.test(text) ? text : `http://${text}`;
  const [beforeHash = ""] = withScheme.split("#", 1);
  const mark = beforeHash.indexOf("?");
  const front = mark < 0 ? beforeHash : beforeHash.slice(0, mark);
  const placeholders = new Set<string>();
  const template = replaceVariables(front, (name) => `{${name}}`);
  const slash = template.indexOf("/", template.indexOf("//") + 2);
  const host = slash < 0 ? template : template.slice(0, slash);
  if (/[{}]/.test(host)) throw invalid("has a variable in the address of the server; write it out");
  const url = URL.parse(host);
  if (url === null || !/^https?:$/.test(url.protocol)) throw invalid("has a URL that is no http or https address");
  const given = (slash < 0 ? "/" : template.slice(slash)).replaceAll(/<([^<>/]+)>/g, "{$1}");
  const path = given.replaceAll(/\{([^{}]*)\}/g, (_whole, name: string) => {
    const argument = toArgumentName(name);
    placeholders.add(argument);
    return `{${argument}}`;
  });
  const user =
    url.username === "" && url.password === "" ? undefined : `${decode(url.username)}:${decode(url.password)}`;
  return {
    origin: url.origin,
    path,
    placeholders: [...placeholders],
    query: mark < 0 ? [] : readPairs(beforeHash.slice(mark + 1)),
    user,
  };
}

/** Secrets in the path become credentials: segments that are one, and variables that are called so. */
function withoutSecrets(address: Address, secrets: CommandSecrets, notes: Notes): Address {
  const isAuthorized = !secrets.isEmpty;
  const segments = address.path.split("/");
  const isHookHost = new URL(address.origin).hostname.split(".").some(isHook);
  const firstHook = isHookHost ? -1 : segments.findIndex(isHook);
  const path = segments.map((segment, index) => {
    if (/[{}]/.test(segment)) return segment;
    const text = decode(segment);
    const isOfHook = isHookHost || (firstHook >= 0 && firstHook < index);
    const secret = secretInSegment(text, { before: segments[index - 1] ?? "", isOfHook, isAuthorized });
    // One host has many webhooks, which differ in nothing else.
    const name = secret === undefined ? "" : `path_secret_${shortHash(secret, 8)}`;
    if (secret !== undefined && secrets.add("path", name, secret))
      return `${text.slice(0, text.length - secret.length)}{${name}}`;
    if (looksSecret(segment)) notes.add(secretInPath);
    return segment;
  });
  const named = address.placeholders.filter(
    (name) => isSecretVariable(name, { isAuthorized }) && secrets.add("path", name, ""),
  );
  return {
    ...address,
    path: path.join("/"),
    placeholders: address.placeholders.filter((name) => !named.includes(name)),
  };
}

const pathSecret = /\{path_secret_[0-9a-f]{8}\}$/;

/** For names and descriptions, which models are told: without what is or may be a secret. */
function shownPath(path: string): string {
  const words = path.split("/").map((segment) => segment.replace(pathSecret, ""));
  return `/${words.filter((word) => word !== "" && (!looksSecret(word) || /[{}]/.test(word))).join("/")}`;
}

const secretInPath =
  "A part of the path may be a secret; it stands in the definition, where everybody with the scope 'manage' can read it.";

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function readPairs(text: string): readonly Pair[] {
  return [...new URLSearchParams(text)];
}

function addUser(secrets: CommandSecrets, user: string): void {
  const colon = user.indexOf(":");
  secrets.addUser(colon < 0 ? user : user.slice(0, colon), colon < 0 ? "" : user.slice(colon + 1));
}

interface ReadHeaders {
  readonly fixed: { readonly [name: string]: string };
  readonly contentType: string | undefined;
}

function readHeaders(command: CurlCommand, secrets: CommandSecrets, notes: Notes): ReadHeaders {
  const fixed = new Map<string, readonly [string, string]>();
  let contentType: string | undefined;
  for (const [name, value] of command.headers) {
    const lower = name.toLowerCase();
    if (lower === "content-type") contentType = value;
    else if (mayBeSecret(name, value)) addSecretHeader(secrets, notes, [name, value]);
    else if (lower === "content-length" || lower === "connection" || lower === "accept-encoding") continue;
    else if (isTransportHeader(name) || !isHeaderName(name))
      notes.add(`Header '${name.slice(0, 60)}' is one that only the gateway sets; it is left out.`);
    else if (hasVariable(value) || !isHeaderValue(value))
      notes.add(`Header '${name}' has a value that is not known here; it is left out.`);
    else {
      const before = fixed.get(lower);
      // One header that is given twice is a list.
      const whole = before === undefined ? value : `${before[1]}${lower === "cookie" ? ";" : ","} ${value}`;
      fixed.set(lower, [name, whole]);
    }
  }
  if (command.isJson && !fixed.has("accept")) fixed.set("accept", ["Accept", "application/json"]);
  return {
    fixed: Object.fromEntries(fixed.values()),
    contentType: contentType ?? (command.isJson ? "application/json" : undefined),
  };
}

function addSecretHeader(secrets: CommandSecrets, notes: Notes, [name, value]: Pair): void {
  if (isTransportHeader(name) || !isHeaderName(name))
    notes.add(`Header '${name.slice(0, 60)}' is one that only the gateway sets; it is left out.`);
  else if (!secrets.addHeader(name, value))
    notes.add(`Header '${name.slice(0, 60)}' is one secret more than a tool has; it is left out.`);
}

/** One address is many robots' and webhooks', which differ in a secret of the query: digits that tell this one. */
function robotIn({ path }: Address, query: readonly Pair[]): string | undefined {
  const known = query.filter(([name, value]) => isLastingSecret(name, value, false) && !isUnknown(value));
  if (!path.split("/").some(isRobot) || known.length === 0) return undefined;
  return shortHash(JSON.stringify(known), 8);
}

interface PairContext {
  readonly secrets: CommandSecrets;
  readonly notes: Notes;
  readonly robot?: string | undefined;
}

/** Equal names are one list. */
function fromPairs(
  pairs: readonly Pair[],
  place: "query" | "body",
  { secrets, notes, robot }: PairContext,
): readonly Argument[] {
  const isAuthorized = place === "body" && !secrets.isEmpty;
  const byName = new Map<string, string[]>();
  for (const [name, value] of pairs) {
    const values = byName.get(name);
    if (values === undefined) byName.set(name, [value]);
    else values.push(value);
  }
  return [...byName].flatMap(([name, values]): Argument[] => {
    const [value = "", ...more] = values;
    const isLasting = values.some((each) => isLastingSecret(name, each, isAuthorized));
    const part = robot === undefined ? undefined : `${name.toLowerCase()}_${robot}`;
    if (isLasting && secrets.add(place, name, value, part)) return [];
    const isSecret = place === "body" ? isSecretText : mayBeSecret;
    if (values.some((each) => isSecret(name, each)))
      return [secretArgument({ name, place }, { type: "string" }, notes)];
    if (more.length > 0) return [toArgument(name, place, values)];
    return [toArgument(name, place, hasVariable(value) ? value : readPlain(value))];
  });
}

function toArgument(name: string, place: "query" | "body", value: JsonValue): Argument {
  const schema = withDefault(value);
  return { place, wireName: name, schema, required: schema["default"] === undefined };
}

interface Field {
  readonly name: string;
  readonly place: "query" | "body";
}

/** A credential is a field's whole text, so what holds one somewhere the caller has to bring; the value is kept nowhere. */
function secretArgument({ name, place }: Field, schema: JsonObject, notes: Notes): Argument {
  notes.add(
    `Field '${name.slice(0, 60)}' of the ${place} looks as if it holds a secret; its value is not kept, each call has to give it.`,
  );
  return { place, wireName: name, schema, required: true };
}

interface ReadBody {
  readonly contentType: string;
  readonly arguments: readonly Argument[];
  readonly additional?: JsonValue | undefined;
}

function readBody(command: CurlCommand, declared: string | undefined, context: PairContext): ReadBody | undefined {
  const { secrets, notes } = context;
  if (command.form.length > 0) return readMultipart(command, context);
  if (command.data.length === 0) return undefined;
  const text = textOf(command.data, command.isJson ? "" : "&");
  const contentType = contentTypeOf(declared, text, { isUpload: command.isUpload, notes });
  const format = bodyFormatOf(contentType);
  const isFile = command.data.some(({ kind }) => kind === "file");
  if (!isFile && format === "form" && isForm(text))
    return { contentType, arguments: fromPairs(readPairs(text), "body", context), additional: true };
  const value = format === "json" && !isFile ? parseJson(text) : undefined;
  if (isJsonObject(value) && Object.keys(value).length > 0) {
    const isAuthorized = !secrets.isEmpty;
    const list = Object.entries(value).flatMap(([name, member]) => {
      if (!holdsSecret({ [name]: member })) return [toArgument(name, "body", member)];
      const isLasting = typeof member === "string" && isLastingSecret(name, member, isAuthorized);
      if (isLasting && secrets.add("body", toTarget([name]), member, name.toLowerCase())) return [];
      const left = isJsonObject(member) ? withoutSecretsAt([name], member, { secrets, isAuthorized }) : member;
      if (isJsonObject(left) && Object.keys(left).length === 0) return [];
      if (!holdsSecret({ [name]: left })) return [toArgument(name, "body", left)];
      return [secretArgument({ name, place: "body" }, inferSchema(left), notes)];
    });
    return { contentType, arguments: list, additional: undefined };
  }
  return { contentType, arguments: [wholeArgument(value ?? text, { format, isFile, notes })], additional: false };
}

/**
 * Some fields with names such as programs give them. Whatever else curl sends as a form when nobody says what it is: a
 * message, a query, lines of measurements; it is one text, which other fields would not stand beside.
 */
function isForm(text: string): boolean {
  const names = text.split("&").map((pair) => pair.split("=", 1)[0] ?? "");
  return text === "" || (text.includes("=") && names.every((name) => /^[^\s,;<>{}"']*$/.test(name)));
}

/** As mappings name a field: a name that could be read as a pointer is one. */
function toTarget(names: readonly string[]): string {
  const [only = ""] = names;
  return names.length === 1 && !only.startsWith("/") ? only : toPointer(names);
}

/** What is left of an object whose lasting secrets are credentials. */
function withoutSecretsAt(
  names: readonly string[],
  value: JsonObject,
  context: { readonly secrets: CommandSecrets; readonly isAuthorized: boolean },
): JsonObject {
  const entries = Object.entries(value).flatMap(([name, member]): [string, JsonValue][] => {
    const path = [...names, name];
    if (isJsonObject(member)) {
      const left = withoutSecretsAt(path, member, context);
      return Object.keys(left).length === 0 && Object.keys(member).length > 0 ? [] : [[name, left]];
    }
    const isLasting = typeof member === "string" && isLastingSecret(name, member, context.isAuthorized);
    const part = path.join(".").toLowerCase();
    return isLasting && context.secrets.add("body", toTarget(path), member, part) ? [] : [[name, member]];
  });
  return Object.fromEntries(entries);
}

function textOf(data: readonly DataPart[], joiner: string): string {
  return data
    .flatMap((part) => {
      if (part.kind === "file") return [];
      return [part.kind === "text" ? part.text : new URLSearchParams([[part.name, part.value]]).toString()];
    })
    .join(joiner);
}

interface WholeBody {
  readonly format: ReturnType<typeof bodyFormatOf>;
  readonly isFile: boolean;
  readonly notes: Notes;
}

function wholeArgument(value: JsonValue, { format, isFile, notes }: WholeBody): Argument {
  const file: JsonObject = {
    type: "string",
    format: "binary",
    description: "Content of the file: base64 or a data URI.",
  };
  const unknown = format === "json" ? {} : format === "raw" ? file : { type: "string" };
  const isSecret = !isFile && (typeof value === "string" ? mentionsSecret(value) : holdsSecret(value));
  if (isSecret) notes.add("The body looks as if it holds a secret; it is not kept, each call has to give it.");
  const schema = isFile ? unknown : isSecret ? inferSchema(value) : withDefault(value);
  return { place: "body", wireName: "body", schema, required: schema["default"] === undefined, isBody: true };
}

function contentTypeOf(
  declared: string | undefined,
  text: string,
  { isUpload, notes }: { readonly isUpload: boolean; readonly notes: Notes },
): string {
  if (declared !== undefined) {
    const [essence = ""] = declared.split(";", 1);
    const known = bodyFormatOf(declared) === undefined ? essence.trim() : declared;
    if (bodyFormatOf(known) !== undefined && bodyFormatOf(known) !== "multipart") return known;
    notes.add("The content type is none that can be sent; the body is sent as application/octet-stream.");
    return "application/octet-stream";
  }
  if (isUpload) return "application/octet-stream";
  if (!/^\s*[{[]/.test(text) || parseJson(text) === undefined) return "application/x-www-form-urlencoded";
  notes.add("The body is JSON and no content type was given: it is sent as application/json.");
  return "application/json";
}

function readMultipart({ form }: CurlCommand, { secrets, notes }: PairContext): ReadBody {
  const isAuthorized = !secrets.isEmpty;
  const list = form.flatMap(({ name, value, isFile, mediaType }): readonly Argument[] => {
    if (value === undefined) {
      const file: JsonObject = {
        type: "string",
        format: "binary",
        ...(mediaType === undefined ? {} : { contentMediaType: mediaType }),
        description: "Content of the file: base64 or a data URI.",
      };
      return [{ place: "body", wireName: name, schema: isFile ? file : { type: "string" }, required: true }];
    }
    const isLasting = mediaType === undefined && isLastingSecret(name, value, isAuthorized);
    if (isLasting && secrets.add("body", name, value)) return [];
    const isSecret = isSecretText(name, value) || (mediaType !== undefined && mentionsSecret(value));
    if (isSecret)
      return [{ ...secretArgument({ name, place: "body" }, { type: "string" }, notes), partType: mediaType }];
    return [{ ...toArgument(name, "body", hasVariable(value) ? value : readPlain(value)), partType: mediaType }];
  });
  const byName = new Map(list.map((argument) => [argument.wireName, argument]));
  if (byName.size < list.length) notes.add("Of several fields of one name only the last one is read.");
  return { contentType: "multipart/form-data", arguments: [...byName.values()], additional: false };
}

function pairsOf(data: readonly DataPart[], notes: Notes): readonly Pair[] {
  if (data.some(({ kind }) => kind === "file")) notes.add("Files are not read; what the file held is left out.");
  return readPairs(textOf(data, "&"));
}

function invalid(problem: string): GatewayError {
  return new GatewayError("invalid_request", `'curl' ${problem}.`, { param: "curl" });
}
