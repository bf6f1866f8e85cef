/**
 * Routes that plugins' modules have registered (VCP specification s. 4.4; VCP-7), at our address and at upstream's.
 * Each request is a call of the plugin: `GET /v1/calls` shows it.
 */
import { openHandle } from "@toolyard/core/calls/open-handle";
import { invokeTool, type Invoked } from "@toolyard/core/calls/invoke";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { readAll } from "@toolyard/core/ports/blob-store";
import { toErrorDetails } from "@toolyard/core/tools/outcome";
import { formatToolUri } from "@toolyard/core/tools/uri";
import { passedOn, readRouteAnswer, routesSegment, type RouteAnswer } from "@toolyard/core/vcp/modules/routes";
import type { CoreDeps } from "@toolyard/core/core-deps";
import * as z from "zod";
import type { AppContext } from "../app-env.ts";
import {
  defineRoute,
  type IsolatedRequest,
  type IsolationDriver,
  type Method,
  type RouteModule,
} from "../define-route.ts";
import { readIdempotencyKey } from "../idempotency-key.ts";
import { setRateLimitHeaders } from "../rate-limit-headers.ts";
import { answerThroughSink } from "../sink.ts";

const largestBody = 4_194_304;
/** Pages of plugins have an origin of their own, so that they can reach nothing of the gateway's. */
const sandbox = "sandbox allow-forms allow-popups allow-scripts";

/** A service of the owner, for the isolation suite. */
async function arrangeService(owner: IsolationDriver): Promise<IsolatedRequest> {
  const name = `Private${Math.random().toString(36).slice(2)}`;
  const manifest = {
    name,
    pluginType: "service",
    entryPoint: { script: "index.js" },
    communication: { protocol: "direct" },
    hasApiRoutes: true,
  };
  await owner.send("post", "/v1/plugins/import", {
    vcp: { manifest, files: [{ path: "index.js", text: "module.exports = { registerApiRoutes() {} };" }] },
  });
  return { params: { name, path: "status" } };
}

const anyType = ["application/json", "application/octet-stream", "*/*"];
const whole = { description: "What the module answers, with its status.", mediaType: anyType };
const bare = { description: whole.description };
/** Whatever a module says. */
const ofModules = {
  ...Object.fromEntries([200, 201, 202, 203, 206, 300, 301, 302, 303, 307, 308].map((status) => [status, whole])),
  ...Object.fromEntries([204, 205, 304].map((status) => [status, bare])),
  "4XX": whole,
  "5XX": whole,
};

function defineFor(method: Method, path: string): RouteModule {
  return defineRoute({
    method,
    path,
    opensAtRoot: true,
    summary: "A route of a plugin's module",
    description:
      "Answered by the module where it is held (docs/vcp-modules.md). The request's method, path, query, body and headers that say nothing of the caller are passed on, and the answer comes back whole. Without a node that holds modules: 503 `node_required`.",
    tags: ["vcp"],
    scope: "tools",
    admission: "own",
    request: {
      params: z.strictObject({ name: z.string(), path: z.string().default("") }),
      ...(method === "get"
        ? {}
        : {
            stream: { mediaTypes: anyType, description: "As the module wants it.", optional: true } as const,
            maxBytes: largestBody,
          }),
      headers: { "idempotency-key": "The first answer is given again for 24 hours." },
    },
    responses: ofModules,
    isolation: { kind: "object", arrange: arrangeService },
    handler: (c, { core, presented, params: { name }, stream }) => {
      const exchange = c.get("exchange");
      const idempotencyKey = readIdempotencyKey(c);
      refuseSocket(c, name);
      return answerThroughSink(c, async (sink) => {
        const stop = new AbortController();
        sink.onClose((why) => stop.abort(why));
        const parts: Uint8Array[] = [];
        for await (const part of stream) parts.push(part);
        const invoked = await invokeTool(core, {
          ...presented,
          requestId: exchange.requestId,
          traceId: exchange.traceId,
          span: exchange.span,
          target: formatToolUri("vcp", name, routesSegment),
          isUri: true,
          arguments: {
            method: c.req.method,
            path: pathBelow(c, path),
            query: queryOf(c),
            headers: headersOf(c).map((header) => [...header]),
            base64: Buffer.concat(parts).toString("base64"),
          },
          async: false,
          signal: stop.signal,
          route: "vcp.http",
          ...(idempotencyKey === undefined ? {} : { idempotencyKey }),
        });
        setRateLimitHeaders(exchange.headers, invoked.rate);
        exchange.callerId = invoked.callerId;
        exchange.headers["x-toolyard-call-id"] = invoked.callId;
        if (invoked.replayed) exchange.headers["idempotent-replayed"] = "true";
        const { status, headers, body } = await answerOf(core, invoked, name);
        sink.head(status, {
          ...Object.fromEntries(headers),
          "content-security-policy": sandbox,
          "x-content-type-options": "nosniff",
          "content-length": String(body.byteLength),
        });
        sink.end(Buffer.from(body));
      });
    },
  });
}

/** @throws GatewayError `stream_not_carried`: the module would answer it as the GET that it is not meant to be */
function refuseSocket(c: AppContext, plugin: string): void {
  if (c.req.header("upgrade")?.toLowerCase() !== "websocket") return;
  throw new GatewayError(
    "stream_not_carried",
    `Routes of plugins answer one request with one answer, so the module of '${plugin}' cannot be given a WebSocket. Clients hear of it at /ws ('vcpLogFunctions', 'webSocketPush'); a socket of its own it can open on its node.`,
    { toolName: plugin },
  );
}

/** As it was asked for, so that what is escaped stays so. */
function pathBelow(c: AppContext, path: string): string {
  const before = path.split("/").length - 1;
  return `/${new URL(c.req.url).pathname.split("/").slice(before).join("/")}`;
}

function queryOf(c: AppContext): string {
  return new URL(c.req.url).search.slice(1);
}

function headersOf(c: AppContext): readonly (readonly [string, string])[] {
  const { host } = new URL(c.req.url);
  return [["host", host], ...Object.entries(c.req.header()).filter(([name]) => passedOn(name))];
}

/** @throws GatewayError what a call came to that did not complete */
async function answerOf(
  core: CoreDeps,
  { outcome, context, callId, tool }: Invoked,
  plugin: string,
): Promise<RouteAnswer> {
  switch (outcome.kind) {
    case "completed": {
      const whole =
        outcome.handle === undefined
          ? outcome.text
          : Buffer.from(await readAll((await openHandle(core, context, callId)).body)).toString("utf8");
      return readRouteAnswer(plugin, whole);
    }
    case "pending": {
      const url = `${core.publicUrl}/v1/calls/${callId}`;
      const body = Buffer.from(JSON.stringify({ id: callId, object: "call", status: "queued", url }), "utf8");
      return { status: 202, headers: [["content-type", "application/json"]], body };
    }
    case "failed":
    case "rejected": {
      const { extra, ...details } = toErrorDetails(outcome.details);
      const about = { toolName: tool, ...details, extra: { ...extra, call_id: callId } };
      throw new GatewayError(outcome.code, outcome.message, about);
    }
    default:
      return outcome satisfies never;
  }
}

const ours = "/v1/plugins/{name}/http/{path+}";
const upstreams = "/api/plugins/{name}/{path+}";

export const getPluginRoute = defineFor("get", ours);
export const postPluginRoute = defineFor("post", ours);
export const putPluginRoute = defineFor("put", ours);
export const patchPluginRoute = defineFor("patch", ours);
export const deletePluginRoute = defineFor("delete", ours);
export const getUpstreamPluginRoute = defineFor("get", upstreams);
export const postUpstreamPluginRoute = defineFor("post", upstreams);
export const putUpstreamPluginRoute = defineFor("put", upstreams);
export const patchUpstreamPluginRoute = defineFor("patch", upstreams);
export const deleteUpstreamPluginRoute = defineFor("delete", upstreams);
