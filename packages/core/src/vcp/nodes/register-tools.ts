/**
 * `register_tools` of a VCP node: its manifests become tools of a node (VCP-15). What cannot be one is left out and
 * said, never guessed (VCP-24): the other tools are not to suffer for it.
 */
import { createHash } from "node:crypto";
import { schemaProblem } from "../../errors/schema-problems.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";
import { longestTimeoutMs, nodeToolSchema, type NodeTool, type VcpCommand } from "../../nodes/node.ts";
import { readPush, type WebSocketPush } from "../plugins/manifest.ts";

/** What a node calls the built-in that gives files of its machine; never a tool. */
export const requestFileTool = "internal_request_file";
/** Milliseconds of a call where the manifest says nothing. */
const defaultTimeoutMs = 60_000;
const mostTools = 63;
/** Manifests of a registration that are looked at. */
const mostManifests = 500;
/** Each is told to the node in a frame of its own. */
const mostLeftTold = 20;
/** Of a registration; a message on its way to the gateway has 128 KB. */
const longestTools = 110_000;
const longestDescription = 4_000;

export interface ReadRegistration {
  /** As the node calls itself. */
  readonly serverName: string;
  /** The same as a name of nodes. */
  readonly node: string;
  readonly tools: readonly NodeTool[];
  readonly cancelsTools: boolean;
  readonly left: readonly LeftOut[];
}

export interface LeftOut {
  readonly name: string;
  readonly why: string;
}

/** `undefined`: it has no name, or no list of tools. */
export function readRegistration(data: JsonValue | undefined): ReadRegistration | undefined {
  if (!isJsonObject(data) || !Array.isArray(data["tools"])) return undefined;
  const serverName = typeof data["serverName"] === "string" ? data["serverName"].trim() : "";
  if (serverName === "") return undefined;
  const capabilities = data["capabilities"];
  const left: LeftOut[] = [];
  const tools = new Map<string, NodeTool>();
  let bytes = 0;
  const manifests = data["tools"];
  for (const manifest of manifests.slice(0, mostManifests)) {
    const name = isJsonObject(manifest) && typeof manifest["name"] === "string" ? manifest["name"] : "";
    if (name === requestFileTool) continue;
    const tool = toTool(manifest);
    const size = typeof tool === "string" ? 0 : Buffer.byteLength(JSON.stringify(tool));
    if (typeof tool === "string") left.push({ name, why: tool });
    else if (tools.has(tool.name)) left.push({ name, why: "it is registered twice; the first one counts" });
    else if (tools.size >= mostTools) left.push({ name, why: `a node has at most ${mostTools} tools` });
    else if (bytes + size > longestTools)
      left.push({ name, why: "the descriptions of all tools are too long together" });
    else {
      tools.set(tool.name, tool);
      bytes += size;
    }
  }
  return {
    serverName,
    node: toNodeName(serverName),
    tools: [...tools.values()],
    cancelsTools: isJsonObject(capabilities) && capabilities["cancelTool"] === true,
    left: toldOf(left, Math.max(0, manifests.length - mostManifests)),
  };
}

function toldOf(left: readonly LeftOut[], unread: number): readonly LeftOut[] {
  const told = left.slice(0, mostLeftTold).map(({ name, why }) => ({ name: name.slice(0, 200), why }));
  const others = left.length - told.length + unread;
  return others === 0 ? told : [...told, { name: "…", why: `and so are ${others} others` }];
}

/** Names of nodes are parts of URIs; other letters become a part that is theirs alone. */
export function toNodeName(serverName: string): string {
  const plain = serverName
    .replaceAll(/[^\w.-]+/g, "-")
    .replace(/^[^A-Za-z0-9]+/, "")
    .slice(0, 48);
  if (plain === serverName) return plain;
  return `${plain === "" ? "vcp" : plain}-${shortHash(serverName)}`;
}

/** What models call a plugin: names of functions are ASCII letters, digits, `_` and `-`. */
function toToolName(name: string): string {
  if (/^[\w-]{1,64}$/.test(name)) return name;
  const plain = name.replaceAll(/[^\w-]+/g, "_").slice(0, 48);
  return /^[\w.-]+$/.test(name) && plain.length < 48 ? plain : `${plain}_${shortHash(name)}`;
}

function shortHash(text: string): string {
  return createHash("sha256").update(text, "utf8").digest("hex").slice(0, 8);
}

/** @returns why it is left out, else the tool */
function toTool(manifest: JsonValue): NodeTool | string {
  if (!isJsonObject(manifest)) return "it is no manifest";
  const { name, displayName, description, pluginType, entryPoint } = manifest;
  if (typeof name !== "string" || name === "") return "'name' is missing";
  if (typeof pluginType !== "string" || pluginType === "") return "'pluginType' is missing";
  if (!entryPoint) return "'entryPoint' is missing";
  const commands = commandsOf(manifest);
  const parsed = nodeToolSchema().safeParse({
    name: toToolName(name),
    description: (textOf(description) ?? name).slice(0, longestDescription),
    parameters: { type: "object", properties: {}, additionalProperties: true },
    effect: "write",
    // Our own word in a manifest, as in those of our nodes: each call waits for a person.
    sensitive: manifest["sensitive"] === true,
    timeout_ms: timeoutOf(manifest),
    // How much a node does at once it does not say.
    concurrency: 16,
    vcp: {
      name,
      display_name: (textOf(displayName) ?? name).slice(0, 200),
      commands,
      ...(pluginType === "asynchronous" ? { asynchronous: true } : {}),
      ...pushOf(manifest),
    },
  });
  if (parsed.success) return parsed.data;
  const { path, says } = schemaProblem(parsed.error);
  return `its '${path.join(".")}' ${says}`;
}

function pushOf({ webSocketPush }: JsonObject): { readonly push?: Omit<WebSocketPush, "enabled"> } {
  const { enabled, ...push } = readPush(webSocketPush);
  return enabled ? { push } : {};
}

function timeoutOf({ communication }: JsonObject): number {
  const timeout = isJsonObject(communication) ? Number(communication["timeout"]) : Number.NaN;
  return timeout >= 1 ? Math.min(Math.floor(timeout), longestTimeoutMs) : defaultTimeoutMs;
}

function commandsOf({ capabilities }: JsonObject): VcpCommand[] {
  const given = isJsonObject(capabilities) ? capabilities["invocationCommands"] : undefined;
  if (!Array.isArray(given)) return [];
  return given.flatMap((each) => {
    if (!isJsonObject(each)) return [];
    const command = textOf(each["command"]) ?? textOf(each["commandIdentifier"]);
    const example = textOf(each["example"]);
    return [
      {
        ...(command === undefined ? {} : { command: command.slice(0, 200) }),
        description: textOf(each["description"]) ?? "",
        ...(example === undefined ? {} : { example }),
      },
    ];
  });
}

function textOf(value: JsonValue | undefined): string | undefined {
  return typeof value === "string" && value.trim() !== "" ? value : undefined;
}
