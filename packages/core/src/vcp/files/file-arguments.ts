/**
 * VCPFileAPI (specification s. 8; VCP-16): `file://` in the arguments of a VCP plugin becomes the file itself, as a
 * data URI. Looked for in the session's workspace, then at the nodes of the tenant that give files of that
 * directory. Nothing is ever read from the machine of the gateway. What cannot be had stays as it was.
 */
import { createHash } from "node:crypto";
import type { AdapterDeps } from "../../deps.ts";
import { GatewayError, toGatewayError } from "../../errors/gateway-error.ts";
import { isJsonObject, parseJson, type JsonObject, type JsonValue } from "../../json.ts";
import { hashNodeTool, longestFile } from "../../nodes/node.ts";
import { runOnNode } from "../../nodes/run.ts";
import { readAll } from "../../ports/blob-store.ts";
import { deliveryOf, withDelivery } from "../../errors/delivery.ts";
import type { InvocationContext, ToolCall, ToolReply } from "../../tools/tool-call.ts";
import { createWorkspace } from "../../workspace/workspace.ts";
import { FileCache } from "./file-cache.ts";
import { isWithin, pathOfFileUrl } from "./file-url.ts";

/** Files of one call. */
const mostFiles = 16;
/** Characters of all data URIs of one call. */
const longestFiles = 33_554_432;
/** Bytes of a file that fit into them, whatever its type is called. */
const longestOwnFile = (longestFiles / 4) * 3 - 1_024;
const fetchMs = 60_000;
/** Nodes that are asked for one file. */
const mostAsked = 4;

/** A whole argument, or addresses within a text, which end where texts go on. */
const addresses = /(?<![\w+.-])file:\/\/[^\s"'`<>()[\]{}，。？！（）「」]+/gi;

export type FileDeps = AdapterDeps;
/** For what a file is asked. */
type FileCall = Pick<ToolCall, "id" | "attempt">;

/** Sends a call with its files; where one was missing and a tool says so, once more with what there is then. */
export async function callWithFiles(
  deps: FileDeps,
  call: ToolCall,
  context: InvocationContext,
  send: (call: ToolCall) => Promise<ToolReply>,
): Promise<ToolReply> {
  const first = await withFiles(deps, call, context);
  try {
    return await send({ ...call, arguments: first.arguments });
  } catch (thrown) {
    if (first.missing.length === 0 || !saysMissing(thrown) || context.signal.aborted) throw thrown;
    const second = await withFiles(deps, call, context);
    if (second.missing.length >= first.missing.length) throw thrown;
    return send({ ...call, arguments: second.arguments });
  }
}

/** A tool on a node has its own files: it is asked with the addresses first. */
export async function callThenWithFiles(
  deps: FileDeps,
  call: ToolCall,
  context: InvocationContext,
  send: (call: ToolCall) => Promise<ToolReply>,
): Promise<ToolReply> {
  try {
    return await send(call);
  } catch (thrown) {
    if (!saysMissing(thrown) || context.signal.aborted) throw thrown;
    const resolved = await withFiles(deps, call, context);
    if (resolved.found === 0) throw thrown;
    return send({ ...call, arguments: resolved.arguments });
  }
}

/** Only an answer counts: what was cut off may have had its effect. */
function saysMissing(thrown: unknown): boolean {
  const error = toGatewayError(thrown);
  if (deliveryOf(error) !== "answered") return false;
  const said = `${error.message} ${JSON.stringify(error.details.extra ?? {})}`;
  return /ENOENT|no such file|file[^.]{0,40}not found|not found[^.]{0,40}file|FILE_NOT_FOUND|FileNotFound|cannot find the (?:file|path)|文件(?:不存在|未找到)|(?:未找到|找不到)[^。]{0,20}文件/i.test(
    said,
  );
}

interface Resolved {
  readonly arguments: JsonObject;
  readonly found: number;
  readonly missing: readonly string[];
}

async function withFiles(deps: FileDeps, call: ToolCall, context: InvocationContext): Promise<Resolved> {
  const places = Map.groupBy(urlsIn(call.arguments), (url) => url);
  const files = new Map<string, string>();
  const missing: string[] = [];
  let characters = 0;
  for (const [url, { length: times }] of [...places].slice(0, mostFiles)) {
    const file = await fileAt(deps, call, context, url);
    if (file === undefined) {
      missing.push(url);
      continue;
    }
    characters += file.length * times;
    if (characters > longestFiles) throw tooLarge(`The files up to '${url}' are more`);
    files.set(url, file);
  }
  const filled = fill(call.arguments, files);
  return { arguments: isJsonObject(filled) ? filled : call.arguments, found: files.size, missing };
}

function urlsIn(value: JsonValue): string[] {
  if (typeof value === "string") return isWhole(value) ? [value] : (value.match(addresses) ?? []);
  if (Array.isArray(value)) return value.flatMap(urlsIn);
  return isJsonObject(value) ? Object.values(value).flatMap(urlsIn) : [];
}

/** An argument that is an address is one to its end, blanks included. */
function isWhole(text: string): boolean {
  return /^file:\/\/[^\n]+$/i.test(text);
}

function fill(value: JsonValue, files: ReadonlyMap<string, string>): JsonValue {
  if (typeof value === "string") {
    return isWhole(value) ? (files.get(value) ?? value) : value.replaceAll(addresses, (url) => files.get(url) ?? url);
  }
  if (Array.isArray(value)) return value.map((each) => fill(each, files));
  if (!isJsonObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, fill(each, files)]));
}

/** As a data URI; undefined: nobody has it. Never throws: whoever wants it goes on all the same. */
export async function fileAt(
  deps: FileDeps,
  call: FileCall,
  context: InvocationContext,
  url: string,
): Promise<string | undefined> {
  try {
    return (await ofWorkspace(deps, context, url)) ?? (await ofNodes(deps, call, context, url));
  } catch (thrown) {
    const { code } = toGatewayError(thrown);
    if (code === "payload_too_large") throw thrown;
    deps.log.log("info", "a file for a tool was not found", { tenant: context.tenant, call_id: call.id, code });
    return undefined;
  }
}

/** `file://notes.txt`, `file:///notes.txt` and `file:///workspace/notes.txt` are the same file of a session. */
async function ofWorkspace(
  deps: FileDeps,
  { tenant, sessionId }: InvocationContext,
  url: string,
): Promise<string | undefined> {
  if (sessionId === undefined) return undefined;
  const path = decoded(url.replace(/^file:\/\//i, "").replace(/^localhost(?=\/)/, ""));
  const workspace = createWorkspace(deps);
  for (const name of [path, path.replace(/^\/?workspace\//, "")]) {
    try {
      const place = { tenant, session: sessionId, path: name };
      const { bytes } = await workspace.stat(place);
      if (bytes > longestOwnFile) throw tooLarge(`'${url}' has ${bytes} bytes, which is more`);
      const { file, body } = await workspace.read(place);
      return toDataUri(file.mediaType, Buffer.from(await readAll(body)).toString("base64"));
    } catch (thrown) {
      // The session may not be there yet, or the path none of a workspace.
      if (!(thrown instanceof GatewayError) || thrown.code === "payload_too_large") throw thrown;
    }
  }
  return undefined;
}

/** A tool that got only the address would look for the file on a machine where it is not. */
function tooLarge(what: string): GatewayError {
  const message = `${what} than the ${longestOwnFile} bytes that files in the arguments of a call may have together; give the tool an address that it can fetch.`;
  return withDelivery(new GatewayError("payload_too_large", message, { param: "arguments" }), "not_sent");
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

const caches = new WeakMap<FileDeps["blobs"], FileCache>();

async function ofNodes(
  deps: FileDeps,
  call: FileCall,
  context: InvocationContext,
  url: string,
): Promise<string | undefined> {
  if (pathOfFileUrl(url) === undefined) return undefined;
  let cache = caches.get(deps.blobs);
  if (cache === undefined) caches.set(deps.blobs, (cache = new FileCache(deps.clock)));
  const asked = context.config.nodes.flatMap(({ name, tools }) => {
    const tool = tools.find(({ kind, directories = [] }) => kind === "files" && isWithin(url, directories));
    return tool === undefined ? [] : [{ node: name, tool }];
  });
  for (const { node, tool } of asked.slice(0, mostAsked)) {
    const key = createHash("sha256")
      .update(JSON.stringify([context.tenant, node, url]))
      .digest("hex");
    const known = cache.get(key);
    if (known !== undefined) return known;
    const { onSent: _onSent, onProgress: _onProgress, ...rest } = context;
    const signal = AbortSignal.any([context.signal, AbortSignal.timeout(fetchMs)]);
    try {
      const reply = await runOnNode(
        deps,
        {
          callId: call.id,
          attempt: call.attempt,
          tool: tool.name,
          toolHash: hashNodeTool(tool),
          node,
          arguments: { fileUrl: url },
          notConnected: () => withDelivery(new GatewayError("tool_unreachable", `Node '${node}' is away.`), "not_sent"),
        },
        { ...rest, signal },
      );
      const file = toFile(reply);
      if (file === undefined) continue;
      cache.put(key, file);
      return file;
    } catch (thrown) {
      const { code } = toGatewayError(thrown);
      deps.log.log("info", "a node did not give a file", { tenant: context.tenant, call_id: call.id, code });
      if (context.signal.aborted) return undefined;
    }
  }
  return undefined;
}

function toFile({ body }: ToolReply): string | undefined {
  const answer = typeof body === "string" ? parseJson(body) : undefined;
  if (!isJsonObject(answer) || answer["status"] !== "success") return undefined;
  const { fileData, mimeType } = answer;
  if (typeof fileData !== "string" || !/^[A-Za-z0-9+/]*={0,2}$/.test(fileData)) return undefined;
  if ((fileData.length * 3) / 4 > longestFile + 2) return undefined;
  return toDataUri(typeof mimeType === "string" ? mimeType : "", fileData);
}

function toDataUri(mediaType: string, base64: string): string {
  const [type = ""] = mediaType.split(";");
  const isType = /^[\w.+-]{1,100}\/[\w.+-]{1,100}$/.test(type);
  return `data:${isType ? type : "application/octet-stream"};base64,${base64}`;
}
