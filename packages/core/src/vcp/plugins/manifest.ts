/**
 * `plugin-manifest.json` (VCP specification s. 3; VCP-1, VCP-24). Loose in what it takes, for there are many
 * authors and no schema that they all kept to; exact in what it refuses: a plugin that could never run.
 */
import { GatewayError } from "../../errors/gateway-error.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";
import {
  isPluginType,
  isProtocolName,
  pluginTypes,
  protocolNames,
  type PluginProtocol,
  type PluginType,
} from "./plugin-types.ts";

/** Only this name counts; a folder that has it with `.block` behind is a disabled plugin. */
export const manifestFileName = "plugin-manifest.json";
export const blockedFileName = `${manifestFileName}.block`;

export interface InvocationCommand {
  readonly command?: string;
  readonly commandIdentifier?: string;
  readonly description: string;
  readonly example?: string;
  /** Some manifests describe them beside the prose. */
  readonly parameters: readonly CommandParameter[];
}

export interface CommandParameter {
  readonly name: string;
  readonly type?: string;
  readonly description?: string;
  readonly required: boolean;
}

export interface SystemPlaceholder {
  /** With its braces. */
  readonly placeholder: string;
  readonly description?: string;
}

export interface ConfigKey {
  readonly key: string;
  /** What the value is converted to; everything else stays text. */
  readonly type: "integer" | "boolean" | "text";
  readonly required: boolean;
  readonly default?: string;
  readonly description?: string;
}

export interface WebSocketPush {
  readonly enabled: boolean;
  readonly usePluginResultAsMessage: boolean;
  readonly messageType?: string;
  /** Null: all. */
  readonly targetClientType: string | null;
}

export interface VcpManifest {
  /** Exactly what callers say; letters, digits, `_`, `-` and `.`. */
  readonly name: string;
  readonly displayName: string;
  readonly version?: string;
  readonly description: string;
  readonly author?: string;
  readonly pluginType: PluginType;
  readonly protocol: PluginProtocol;
  readonly entryPoint: { readonly command?: string; readonly script?: string };
  /** Of one run: the manifest's, or the default of its type. */
  readonly timeoutMs: number;
  readonly commands: readonly InvocationCommand[];
  readonly placeholders: readonly SystemPlaceholder[];
  readonly configSchema: readonly ConfigKey[];
  readonly refreshIntervalCron?: string;
  readonly webSocketPush: WebSocketPush;
  readonly requiresAdmin: boolean;
  readonly hasApiRoutes: boolean;
  readonly requiresContextBridge: boolean;
  /** As the author wrote it, whole. */
  readonly source: JsonObject;
}

/** Names become parts of URIs, of credential names and of the names of stored results. */
const namePattern = /^[\p{L}\p{N}_-][\p{L}\p{N}_.-]{0,63}$/u;

const parsedManifests = new WeakMap<JsonObject, VcpManifest>();

/** @throws GatewayError `invalid_definition` naming the field; made once for each object */
export function parseManifest(source: JsonValue): VcpManifest {
  if (!isJsonObject(source)) throw invalidManifest(manifestFileName, "must be a JSON object");
  const known = parsedManifests.get(source);
  if (known !== undefined) return known;
  const manifest = toManifest(source);
  parsedManifests.set(source, manifest);
  return manifest;
}

function toManifest(source: JsonObject): VcpManifest {
  const name = readName(source["name"]);
  const pluginType = readType(source["pluginType"]);
  const communication = objectOf(source["communication"], "communication");
  const capabilities = objectOf(source["capabilities"], "capabilities");
  const { entryPoint, ...where } = readEntryPoint(source["entryPoint"], pluginType, communication);
  const { version, author } = { version: textAt(source, "version"), author: textAt(source, "author") };
  const cron = readCron(source["refreshIntervalCron"]);
  return {
    name,
    displayName: textAt(source, "displayName") ?? name,
    ...(version === undefined ? {} : { version }),
    description: textAt(source, "description") ?? "",
    ...(author === undefined ? {} : { author }),
    pluginType,
    protocol: where.protocol,
    entryPoint,
    timeoutMs: readTimeout(communication["timeout"]) ?? pluginTypes[pluginType].timeoutMs,
    commands: listAt(capabilities, "invocationCommands").flatMap(readCommand),
    placeholders: listAt(capabilities, "systemPromptPlaceholders").flatMap(readPlaceholder),
    configSchema: readConfigSchema(source["configSchema"]),
    ...(cron === undefined ? {} : { refreshIntervalCron: cron }),
    webSocketPush: readPush(source["webSocketPush"]),
    requiresAdmin: source["requiresAdmin"] === true,
    hasApiRoutes: source["hasApiRoutes"] === true,
    requiresContextBridge: source["requiresContextBridge"] === true,
    source,
  };
}

function readName(value: JsonValue | undefined): string {
  if (typeof value !== "string" || value === "") throw invalidManifest("name", "is missing: it is what callers call");
  if (!namePattern.test(value)) {
    throw invalidManifest("name", `is '${value.slice(0, 80)}'; it may have 1 to 64 letters, digits, '_', '-' and '.'`);
  }
  return value;
}

function readType(value: JsonValue | undefined): PluginType {
  const known = Object.keys(pluginTypes).join(", ");
  if (typeof value !== "string" || value === "") throw invalidManifest("pluginType", `is missing; known: ${known}`);
  if (!isPluginType(value)) throw invalidManifest("pluginType", `is '${value.slice(0, 80)}'; known: ${known}`);
  return value;
}

/** Where the plugin begins has to fit to how it is spoken to. */
function readEntryPoint(
  value: JsonValue | undefined,
  pluginType: PluginType,
  communication: JsonObject,
): Pick<VcpManifest, "entryPoint" | "protocol"> {
  const { protocol } = pluginTypes[pluginType];
  const given = communication["protocol"];
  const named = given === undefined || given === null || given === "" ? protocol : given;
  if (typeof named !== "string" || !isProtocolName(named)) {
    const known = Object.keys(protocolNames).join(", ");
    throw invalidManifest("communication.protocol", `is ${JSON.stringify(named).slice(0, 80)}; known: ${known}`);
  }
  if (protocolNames[named] !== protocol) {
    throw invalidManifest(
      "communication.protocol",
      `is '${named}', but a plugin of type ${pluginType} speaks ${protocol}`,
    );
  }
  const entry = objectOf(value, "entryPoint");
  const [command, script] = [textAt(entry, "command")?.trim(), textAt(entry, "script")?.trim()];
  if (protocol === "stdio" && !command) throw invalidManifest("entryPoint.command", "is missing: it starts the plugin");
  if (protocol === "direct" && !script)
    throw invalidManifest("entryPoint.script", "is missing: it is the module to load");
  if (command?.includes("\0")) throw invalidManifest("entryPoint.command", "holds a byte 0");
  return { protocol, entryPoint: { ...(command ? { command } : {}), ...(script ? { script } : {}) } };
}

function readTimeout(value: JsonValue | undefined): number | undefined {
  const milliseconds = typeof value === "string" && /^\d{1,9}$/.test(value) ? Number(value) : value;
  return typeof milliseconds === "number" && milliseconds >= 1 ? Math.floor(milliseconds) : undefined;
}

function readCron(value: JsonValue | undefined): string | undefined {
  if (value === undefined || value === null || value === "") return undefined;
  if (typeof value !== "string") throw invalidManifest("refreshIntervalCron", "must be a cron expression");
  return value.trim();
}

function readCommand(value: JsonValue): readonly InvocationCommand[] {
  if (!isJsonObject(value)) return [];
  const [command, commandIdentifier, example] = [
    textAt(value, "command"),
    textAt(value, "commandIdentifier"),
    textAt(value, "example"),
  ];
  return [
    {
      ...(command === undefined ? {} : { command }),
      ...(commandIdentifier === undefined ? {} : { commandIdentifier }),
      description: textAt(value, "description") ?? "",
      ...(example === undefined ? {} : { example }),
      parameters: listAt(value, "parameters").flatMap(readParameter),
    },
  ];
}

function readParameter(value: JsonValue): readonly CommandParameter[] {
  if (!isJsonObject(value)) return [];
  const name = textAt(value, "name");
  if (name === undefined || name === "") return [];
  const [type, description] = [textAt(value, "type"), textAt(value, "description")];
  return [
    {
      name,
      ...(type === undefined ? {} : { type }),
      ...(description === undefined ? {} : { description }),
      required: value["required"] === true,
    },
  ];
}

/** Some leave the braces out, or write the placeholder alone; all forms mean the same. */
function readPlaceholder(value: JsonValue): readonly SystemPlaceholder[] {
  const entry = typeof value === "string" ? { placeholder: value } : value;
  if (!isJsonObject(entry)) return [];
  const text = textAt(entry, "placeholder")?.trim();
  if (text === undefined || text === "") return [];
  const description = textAt(entry, "description");
  return [
    {
      placeholder: text.startsWith("{{") && text.endsWith("}}") ? text : `{{${text}}}`,
      ...(description === undefined ? {} : { description }),
    },
  ];
}

/** By key: an object with `type`, `default`, `required`, or only the type's name, or both mixed; or a list. */
function readConfigSchema(value: JsonValue | undefined): readonly ConfigKey[] {
  if (Array.isArray(value)) {
    return value.flatMap((entry) => {
      const key = isJsonObject(entry) ? textAt(entry, "key") : undefined;
      return key === undefined || !isJsonObject(entry) ? [] : [readConfigKey(key, entry)];
    });
  }
  if (!isJsonObject(value)) return [];
  return Object.entries(value).map(([key, entry]) => readConfigKey(key, entry));
}

const needed = new RegExp("\\(\\s*(?:必需|required)\\s*\\)", "i");

function readConfigKey(key: string, entry: JsonValue): ConfigKey {
  if (!isJsonObject(entry)) {
    const type = typeof entry === "string" ? entry : "";
    // In prose: "string(必需)，…". What is said to be needed is needed.
    return { key, type: typeOf(type), required: needed.test(type), ...described(type) };
  }
  const fallback = entry["default"] ?? entry["defaultValue"];
  return {
    key,
    type: typeOf(textAt(entry, "type") ?? ""),
    required: entry["required"] === true,
    ...(fallback === undefined || fallback === null
      ? {}
      : { default: typeof fallback === "string" ? fallback : JSON.stringify(fallback) }),
    ...described(textAt(entry, "description") ?? ""),
  };
}

function typeOf(name: string): ConfigKey["type"] {
  const lower = name.trim().toLowerCase();
  return lower === "integer" || lower === "boolean" ? lower : "text";
}

function described(description: string): Pick<ConfigKey, "description"> {
  return description === "" || /^[a-z]+$/i.test(description) ? {} : { description };
}

/** Of a manifest's `webSocketPush`, whatever stands there. */
export function readPush(value: JsonValue | undefined): WebSocketPush {
  const push = isJsonObject(value) ? value : {};
  const [messageType, target] = [textAt(push, "messageType"), textAt(push, "targetClientType")];
  return {
    enabled: push["enabled"] === true,
    usePluginResultAsMessage: push["usePluginResultAsMessage"] === true,
    ...(messageType === undefined || messageType === "" ? {} : { messageType }),
    targetClientType: target === undefined || target === "" ? null : target,
  };
}

function textAt(object: JsonObject, key: string): string | undefined {
  const value = object[key];
  return typeof value === "string" ? value : undefined;
}

function listAt(object: JsonObject, key: string): readonly JsonValue[] {
  const value = object[key];
  return Array.isArray(value) ? value : [];
}

function objectOf(value: JsonValue | undefined, field: string): JsonObject {
  if (value === undefined || value === null) return {};
  if (isJsonObject(value)) return value;
  throw invalidManifest(field, "must be an object");
}

export function invalidManifest(param: string, reason: string): GatewayError {
  return new GatewayError("invalid_definition", `'${param}' ${reason}.`, { param });
}
