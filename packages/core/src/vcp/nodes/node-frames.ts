/**
 * Frames of a VCP node that are no part of a call (VCP-15): its address, its placeholders, callbacks that it hands
 * on, and tools of the gateway that it wants to call. Tools, results and cancellations are messages of any node
 * (nodes/messages.ts).
 */
import { invokeTool } from "../../calls/invoke.ts";
import { hasScope } from "../../callers/caller.ts";
import type { CoreDeps } from "../../core-deps.ts";
import { GatewayError, toGatewayError } from "../../errors/gateway-error.ts";
import { newId } from "../../ids.ts";
import { isJsonObject, parseJsonExactly, type JsonObject } from "../../json.ts";
import type { Connection } from "../../realtime/connection.ts";
import { listTools } from "../../tools/catalog.ts";
import { textForModel } from "../../tools/outcome.ts";
import { randomHex } from "../../random-hex.ts";
import type { CallbackRequest } from "../async/take-callback.ts";
import { publishFrames } from "../log/frames.ts";
import { staticPluginsOf } from "../static/static-plugin.ts";
import { contextOf, malformed, typeOf } from "./frame-context.ts";
import { toNodeName } from "./register-tools.ts";

const placeholderName = /^[\p{L}\p{N}_.:@#%&^+-]{1,128}$/u;
const mostValues = 500;
/** Bytes, of a node. */
const longestValues = 262_144;
/** Of a result on its way back: a frame has its limit, and the whole is with the call. */
const longestResult = 24_000;
/** Characters of a tool's description in a list of all. */
const longestDescription = 1_000;
/** Of all of them together, where API Gateway carries the list: an answer has 128 KB. */
const longestDescriptions = 20_000;

/** @returns frames for the node */
export async function takeNodeFrame(deps: CoreDeps, connection: Connection, frame: JsonObject): Promise<JsonObject[]> {
  if (!hasScope(connection.caller, "node")) {
    throw new GatewayError("permission_denied", "This key lacks the scope 'node'; make one with POST /v1/api-keys.", {
      param: "node",
    });
  }
  const data = isJsonObject(frame["data"]) ? frame["data"] : {};
  switch (typeOf(frame)) {
    case "report_ip":
    case "music_playlist_update":
      return [];
    case "update_static_placeholders":
      return updatePlaceholders(deps, connection, data);
    case "plugin_callback_forward":
      return forwardCallback(deps, connection, data);
    case "get_vcp_manifests":
      return [await manifests(deps, connection, data)];
    case "execute_vcp_tool":
      return execute(deps, connection, data);
    default:
      throw malformed(`'${typeOf(frame)}' is no frame of a node`);
  }
}

/** Values for prompts; all that the node gives replace all that it gave. What a plugin of the tenant gives is that one's. */
async function updatePlaceholders(deps: CoreDeps, connection: Connection, data: JsonObject): Promise<JsonObject[]> {
  const { serverName, placeholders } = data;
  if (typeof serverName !== "string" || serverName === "" || !isJsonObject(placeholders))
    throw malformed("'data' must have 'serverName' and 'placeholders'");
  const node = toNodeName(serverName);
  const record = await deps.repos.nodes.get(connection.tenant, node);
  if (record?.connectionId !== connection.id) throw malformed(`this connection is not node '${node}'`);
  const { config } = await contextOf(deps, connection);
  // A plugin that is switched off, or of another type, gives none.
  const taken = new Set(staticPluginsOf(config).flatMap(({ placeholders: given }) => given));
  const values = new Map<string, string>();
  const left: string[] = [];
  let bytes = 0;
  for (const [key, value] of Object.entries(placeholders)) {
    const name = bare(key);
    const text = typeof value === "string" ? value : JSON.stringify(value);
    bytes += Buffer.byteLength(text);
    if (!placeholderName.test(name)) left.push(`'${name.slice(0, 80)}' is no name of a placeholder`);
    else if (taken.has(name)) left.push(`'${name}' is a plugin's of the tenant`);
    else if (bytes > longestValues || values.size >= mostValues) left.push(`'${name}' is too much`);
    else values.set(name, text);
  }
  await deps.repos.vcpStaticValues.replace(connection.tenant, placeholderSource(node), values);
  if (left.length === 0) return [];
  throw malformed(`placeholders are left out: ${left.slice(0, 10).join(", ")}`);
}

/** What an asynchronous plugin of the node says later; the node speaks for its own plugins only. */
async function forwardCallback(deps: CoreDeps, connection: Connection, data: JsonObject): Promise<JsonObject[]> {
  const { serverName, callbackData: body } = data;
  const record =
    typeof serverName === "string" ? await deps.repos.nodes.get(connection.tenant, toNodeName(serverName)) : undefined;
  if (record?.connectionId !== connection.id) throw malformed("this connection is not that node");
  if (!isJsonObject(body)) throw malformed("'data.callbackData' must be an object");
  const plugin = body["pluginName"] ?? body["PLUGIN_NAME_FOR_CALLBACK"];
  const taskId = body["taskId"] ?? body["task_id"] ?? body["TaskId"] ?? body["requestId"];
  if (typeof plugin !== "string" || (typeof taskId !== "string" && typeof taskId !== "number"))
    throw malformed("'data.callbackData' must have 'pluginName' and 'taskId'");
  if (!record.tools.some(({ vcp }) => vcp?.name === plugin)) throw malformed(`'${plugin}' is no plugin of this node`);
  await takeOnceNamed(deps, connection.tenant, {
    task: { plugin, taskId: String(taskId) },
    body: JSON.stringify(body),
    proof: { kind: "node", tenant: connection.tenant },
  });
  return [];
}

/** Pauses between looks for a task. */
const lookAgainMs = [50, 150, 300, 500, 1_000];
const mostUnread = 20;

/**
 * The answer that names the task may have come just before, and its call be about to read it. Where no call is, nothing
 * is waited for: frames behind this one may be answers of other calls.
 */
async function takeOnceNamed(deps: CoreDeps, tenant: string, request: CallbackRequest): Promise<void> {
  const { takeCallback } = await import("../async/take-callback.ts");
  for (const waitMs of lookAgainMs) {
    try {
      await takeCallback(deps, request);
      return;
    } catch (thrown) {
      if (!(thrown instanceof GatewayError) || thrown.code !== "not_found") throw thrown;
    }
    if (!(await isAnswerUnread(deps, tenant, request.task.plugin))) break;
    await deps.clock.sleep(waitMs);
  }
  await takeCallback(deps, request);
}

async function isAnswerUnread({ repos }: CoreDeps, tenant: string, plugin: string): Promise<boolean> {
  const filter = { state: "running", tool: plugin } as const;
  const { data } = await repos.calls.list(tenant, filter, { limit: mostUnread, order: "desc" });
  const answered = await Promise.all(data.map(({ id }) => repos.vcpCallbacks.isAnswered(tenant, id)));
  return answered.includes(false);
}

/** Under which values of a node are kept. */
function placeholderSource(node: string): string {
  return `node:${node}`;
}

function bare(placeholder: string): string {
  return placeholder.startsWith("{{") && placeholder.endsWith("}}") ? placeholder.slice(2, -2) : placeholder;
}

/** The tools that the node's key may use. */
async function manifests(deps: CoreDeps, connection: Connection, { requestId }: JsonObject): Promise<JsonObject> {
  const context = await contextOf(deps, connection);
  const tools = hasScope(connection.caller, "tools") ? listTools(deps.adapters, context) : [];
  const longest =
    connection.holder === null ? Math.floor(longestDescriptions / (tools.length + 1)) : longestDescription;
  const plugins = tools.map(({ name, title, description, distributed }) => ({
    name: distributed?.vcpName ?? name,
    displayName: title ?? name,
    description: description.slice(0, Math.min(longest, longestDescription)),
  }));
  return { type: "vcp_manifest_response", data: { requestId: requestId ?? null, plugins } };
}

/** The result comes as a frame of its own: the tool may be on the very node that waits for it. */
async function execute(deps: CoreDeps, connection: Connection, data: JsonObject): Promise<JsonObject[]> {
  const { requestId, toolName, toolArgs } = data;
  if (typeof requestId !== "string" || typeof toolName !== "string")
    throw malformed("'data' must have 'requestId' and 'toolName'");
  const running = run(deps, connection, { toolName, args: isJsonObject(toolArgs) ? toolArgs : {} }).then((result) => ({
    type: "vcp_tool_result",
    data: { requestId, ...result },
  }));
  const status = { type: "vcp_tool_status", data: { requestId, status: "running" } };
  if (connection.holder === null) return [status, await running];
  void running
    .then((frame) =>
      publishFrames(deps, connection.tenant, [{ frame, targetClientType: { connection: connection.id } }]),
    )
    .catch((thrown: unknown) => {
      const { code } = toGatewayError(thrown);
      deps.log.log("warn", "the result of a tool was not told to its node", { tenant: connection.tenant, code });
    });
  return [status];
}

async function run(
  deps: CoreDeps,
  { tenant, caller }: Connection,
  { toolName, args }: { readonly toolName: string; readonly args: JsonObject },
): Promise<JsonObject> {
  try {
    const { outcome } = await invokeTool(deps, {
      tenant,
      principal: { kind: "known", caller },
      requestId: newId("request"),
      traceId: randomHex(16),
      target: toolName,
      arguments: args,
      async: false,
      route: "vcp.node",
      signal: new AbortController().signal,
    });
    if (outcome.kind === "failed" || outcome.kind === "rejected") return { status: "error", error: outcome.message };
    const text = textForModel(outcome);
    if (text.length > longestResult) return { status: "success", result: `${text.slice(0, longestResult)}…` };
    return { status: "success", result: parseJsonExactly(text) ?? text };
  } catch (thrown) {
    return { status: "error", error: toGatewayError(thrown).message };
  }
}
