/**
 * Routes that a plugin's module registers (VCP specification s. 4.4; VCP-7). A request to one is a call like any
 * other, at the address `vcp://Plugin/_http`: permitted, limited and recorded, and answered by the module where it is
 * held.
 */
import { createHash } from "node:crypto";
import * as z from "zod";
import type { AdapterDeps } from "../../deps.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import { parseJson, type JsonObject } from "../../json.ts";
import type { InvocationContext, ToolReply } from "../../tools/tool-call.ts";
import type { Tool } from "../../tools/tool.ts";
import { formatToolUri } from "../../tools/uri.ts";
import type { PluginCall } from "../plugins/invoke.ts";
import type { VcpPlugin } from "../plugins/plugin.ts";
import { httpAnswerSchema } from "./node-wire.ts";
import { askOnNode } from "./on-node.ts";
import { hasRoutes } from "./residence.ts";

/** After the plugin's name; no command begins like it. */
export const routesSegment = "_http";

/** Whoever asks waits for it, behind gateways that wait no longer than 29 s. */
const longestMs = 25_000;
/** Methods that change nothing. */
const reading: ReadonlySet<unknown> = new Set(["GET", "HEAD", "OPTIONS"]);

const requestSchema = z.strictObject({
  method: z.string(),
  path: z.string(),
  query: z.string(),
  headers: z.array(z.tuple([z.string(), z.string()])),
  base64: z.string(),
});

const text = { type: "string" };
const parameters: JsonObject = {
  type: "object",
  properties: {
    method: text,
    path: text,
    query: text,
    headers: { type: "array", items: { type: "array", items: text } },
    base64: text,
  },
  required: ["method", "path", "query", "headers", "base64"],
};

const tools = new WeakMap<VcpPlugin, Tool>();

/** It is neither listed nor found by a name. */
export function routesToolOf(plugin: VcpPlugin): Tool | undefined {
  if (!hasRoutes(plugin)) return undefined;
  let tool = tools.get(plugin);
  if (tool === undefined) tools.set(plugin, (tool = toTool(plugin)));
  return tool;
}

function toTool({ name, displayName, manifest, enabled, record }: VcpPlugin): Tool {
  const uri = formatToolUri("vcp", name, routesSegment);
  return {
    uri,
    name: `${record.name.slice(0, 58)}${routesSegment}`,
    description: `Routes of ${displayName}.`,
    parameters,
    kind: "VCP",
    enabled,
    roles: record.roles,
    effect: "write",
    effectOf: ({ method }) => (reading.has(method) ? "read" : "write"),
    repeat: "never",
    sensitive: false,
    service: formatToolUri("vcp", name),
    requiredCredentials: [],
    timeoutMs: Math.min(manifest.timeoutMs, longestMs),
    endsInTime: true,
    maxAttempts: 1,
    outputTrust: "outside",
    hash: createHash("sha256").update(`${record.hash} ${uri}`, "utf8").digest("hex"),
  };
}

/** @throws GatewayError `node_required`, and what came of the call */
export async function invokeRoute(
  deps: AdapterDeps,
  { plugin, call }: PluginCall,
  context: InvocationContext,
): Promise<ToolReply> {
  const request = requestSchema.parse(call.arguments);
  const given = await askOnNode(
    deps,
    {
      plugin,
      ask: { kind: "http", request: { ...request, ip: null } },
      timeoutMs: call.timeoutMs ?? plugin.manifest.timeoutMs,
      call,
    },
    context,
  );
  return { mediaType: "application/json", body: JSON.stringify(given) };
}

export interface RouteAnswer {
  readonly status: number;
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly body: Uint8Array;
}

/** Of modules' answers; others are the gateway's to set. */
const passedBack = new Set([
  "cache-control",
  "content-disposition",
  "content-language",
  "content-type",
  "etag",
  "expires",
  "last-modified",
  "link",
  "location",
  "retry-after",
]);

/** Ours, and what servers in front of us take for an order to send a file or a page of their own. */
const heldBack = /^x-(?:toolyard-|request-id$|accel-|sendfile|lighttpd-|litespeed-|reproxy-)/;

/** @throws GatewayError `tool_failed` for what is no answer */
export function readRouteAnswer(plugin: string, body: string): RouteAnswer {
  const parsed = httpAnswerSchema.safeParse(parseJson(body));
  if (!parsed.success)
    throw new GatewayError("tool_failed", `The module of '${plugin}' gave no answer of HTTP.`, { toolName: plugin });
  const { status, headers, base64 } = parsed.data;
  return {
    status,
    headers: headers.filter(([name]) => passedBack.has(name) || (name.startsWith("x-") && !heldBack.test(name))),
    body: Buffer.from(base64, "base64"),
  };
}

/** Of requests: nothing that proves who asks. */
export function passedOn(name: string): boolean {
  if (/^x-(?:api-key|toolyard-|forwarded-|amz|stainless-|real-ip)/.test(name)) return false;
  return /^(?:accept|accept-language|content-type|if-modified-since|if-none-match|range|user-agent|x-.+)$/.test(name);
}
