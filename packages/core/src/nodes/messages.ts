/** What nodes say on their connection (docs/nodes.md); needs the scope `node`. */
import * as z from "zod";
import { hasScope, mayUseTool } from "../callers/caller.ts";
import type { CallContext } from "../context.ts";
import { currentConfig } from "../current-config.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError, toGatewayError } from "../errors/gateway-error.ts";
import { newId } from "../ids.ts";
import type { JsonObject } from "../json.ts";
import type { Connection } from "../realtime/connection.ts";
import { defineMessage, type MessageKind } from "../realtime/message-kind.ts";
import { Redactor } from "../secrets/redactor.ts";
import { formatToolUri } from "../tools/uri.ts";
import { tellProgress } from "../calls/progress.ts";
import { requireModules } from "../vcp/modules/messages.ts";
import { openInput } from "./input.ts";
import { logSystemEvent } from "../vcp/log/vcp-log.ts";
import { nodeNameSchema, offeredToolsSchema, serverIdOf, type NodeTool } from "./node.ts";
import { nodeResultSchema, nodeResultShape, resultKey, useResult } from "./results.ts";

const id = z.string().regex(/^[A-Za-z0-9][\w.:-]{0,63}$/, "must have 1 to 64 letters, digits, '_', '-', '.' or ':'");
/** Made anew by every process that is a node. */
const instance = z.string().regex(/^[\w-]{16,64}$/, "must have 16 to 64 letters, digits, '_' or '-'");
const run = z.string().max(64);
const uploadLifetimeMs = 900_000;
/** Processes of MCP servers on one node. */
const mostHeld = 64;

/** Only for connections that may be nodes. */
function defineNodeMessage<Message>(kind: MessageKind<Message>): MessageKind<Message> {
  return defineMessage({
    schema: kind.schema,
    answer(deps, connection, message) {
      requireNode(connection);
      return kind.answer(deps, connection, message);
    },
  });
}

function requireNode({ caller }: Connection): void {
  if (hasScope(caller, "node")) return;
  throw new GatewayError("permission_denied", "This key lacks the scope 'node'; make one with POST /v1/api-keys.", {
    param: "node",
  });
}

export const nodeMessages = {
  "node.register": defineNodeMessage({
    schema: z.strictObject({
      type: z.literal("node.register"),
      id: id.optional(),
      name: nodeNameSchema,
      version: z.string().min(1).max(64),
      instance,
      tools: offeredToolsSchema(),
    }),
    async answer(deps, { tenant, id: connectionId, caller }, { name, version, instance: own, tools }) {
      for (const tool of tools) requireMayOffer({ caller }, name, tool);
      if (tools.some(({ kind }) => kind === "modules")) requireModules({ caller });
      const registered = await deps.repos.nodes.register(tenant, {
        id: newId("node"),
        name,
        version,
        instance: own,
        tools,
        connectionId,
        callerId: caller.id,
      });
      if (registered.kind === "collision") {
        throw new GatewayError(
          "conflict",
          `Node '${registered.node}' offers a tool '${registered.tool}' with another definition; rename it, or make both equal to share the calls.`,
          { param: "tools", toolName: registered.tool },
        );
      }
      if (registered.kind === "full") {
        throw new GatewayError("concurrency_limited", "This tenant has as many nodes as it may; remove one first.");
      }
      await deps.tellNow();
      logNode(deps, tenant, {
        name,
        own,
        event: "node.registered",
        content: `'${name}' offers ${tools.length} tools.`,
      });
      return {
        type: "node.registered",
        name,
        lease_ms: deps.timing.leaseMs,
        beat_ms: deps.timing.heartbeatMs,
        hidden: await hiddenTools(deps, { tenant, caller }, tools),
      };
    },
  }),
  "node.accept": defineNodeMessage({
    schema: z.strictObject({ type: z.literal("node.accept"), id: id.optional(), run, instance }),
    async answer(deps, { tenant }, { run: runId, instance: own }) {
      const accepted = await deps.repos.nodes.accept(tenant, runId, own, deps.timing.leaseMs);
      if (accepted === undefined) return { type: "node.withdrawn", run: runId };
      return { type: "node.accepted", run: runId, ...(await openInput(deps, tenant, accepted)) };
    },
  }),
  "node.beat": defineNodeMessage({
    schema: z.strictObject({
      type: z.literal("node.beat"),
      id: id.optional(),
      instance,
      runs: z.array(run).max(500),
      held: z
        .array(z.strictObject({ service: id, version: z.int() }))
        .max(mostHeld)
        .default([]),
    }),
    async answer(deps, { tenant }, { instance: own, runs, held }) {
      const { known, cancelled } = await deps.repos.nodes.extend(tenant, own, runs, deps.timing.leaseMs);
      const stop = held.length === 0 ? [] : await unwantedOf(deps, tenant, held);
      return { type: "node.beaten", known: [...known], cancelled: [...cancelled], stop };
    },
  }),
  "node.progress": defineNodeMessage({
    schema: z.strictObject({
      type: z.literal("node.progress"),
      id: id.optional(),
      run,
      instance,
      progress: z.number(),
      total: z.number().exactOptional(),
      message: z.string().max(1_000).exactOptional(),
    }),
    async answer(deps, { tenant }, { run: runId, instance: own, progress, total, message }) {
      const found = await deps.repos.nodes.run(tenant, runId);
      if (found?.instance !== own) throw new GatewayError("not_found", `There is no run '${runId}'.`, { param: "run" });
      // A chat's read has its row when the chat ends.
      const call = await deps.repos.calls.get(tenant, found.callId);
      tellProgress(deps.log, {
        tenant,
        callId: found.callId,
        tool: call?.tool ?? found.tool,
        callerId: call?.callerId,
        sessionId: call?.sessionId ?? undefined,
        progress,
        total,
        message,
      });
      return { type: "node.received", run: runId };
    },
  }),
  "node.tools_changed": defineNodeMessage({
    schema: z.strictObject({ type: z.literal("node.tools_changed"), id: id.optional(), service: id, instance }),
    async answer(deps, { tenant, holder, caller }, { service }) {
      const looking = lookOnce(deps, { tenant, caller }, service);
      // A process that holds the socket answers its messages in turn, and those that looking needs come next.
      if (holder === null) await looking;
      return { type: "node.received" };
    },
  }),
  "node.upload": defineNodeMessage({
    schema: z.strictObject({
      type: z.literal("node.upload"),
      id: id.optional(),
      run,
      instance,
      bytes: z.int().min(0),
      media_type: nodeResultShape.media_type,
    }),
    async answer(deps, { tenant }, { run: runId, instance: own, bytes, media_type: mediaType }) {
      const found = await deps.repos.nodes.run(tenant, runId);
      if (found?.instance !== own) throw new GatewayError("not_found", `There is no run '${runId}'.`, { param: "run" });
      const { settings } = await configOf(deps, tenant);
      if (bytes > settings.result_max_bytes) {
        throw new GatewayError(
          "tool_output_too_large",
          `The result has ${bytes} bytes, more than the ${settings.result_max_bytes} that this tenant keeps (setting 'result_max_bytes').`,
          { param: "bytes" },
        );
      }
      const link = await deps.blobs.presign(resultKey(tenant, runId), {
        method: "PUT",
        expiresInMs: uploadLifetimeMs,
        bytes,
        mediaType,
      });
      return { type: "node.upload", run: runId, url: link.url, headers: { ...link.headers } };
    },
  }),
  "node.result": defineNodeMessage({
    schema: z.strictObject({ type: z.literal("node.result"), id: id.optional(), run, instance, ...nodeResultShape }),
    async answer(deps, { tenant }, { type: _type, id: _id, run: runId, instance: own, ...result }) {
      const kept = JSON.stringify(nodeResultSchema.parse(result));
      const ended = await deps.repos.nodes.end(tenant, runId, own, kept);
      if (ended?.handedOver === true) await useResult(deps, tenant, ended);
      else if (ended?.result !== null && ended !== undefined) await deps.answers.deliver(tenant, runId, ended.result);
      return { type: "node.received", run: runId };
    },
  }),
  "node.leave": defineNodeMessage({
    schema: z.strictObject({ type: z.literal("node.leave"), id: id.optional(), name: nodeNameSchema, instance }),
    async answer(deps, { tenant }, { name, instance: own }) {
      await deps.repos.nodes.remove(tenant, name, own);
      logNode(deps, tenant, { name, own, event: "node.left", content: `'${name}' has left.` });
      return { type: "node.left" };
    },
  }),
} as const;

interface NodeEvent {
  readonly name: string;
  /** The instance. */
  readonly own: string;
  readonly event: string;
  readonly content: string;
}

function logNode(deps: CoreDeps, tenant: string, { name, own, event, content }: NodeEvent): void {
  logSystemEvent(deps, tenant, { event, status: "success", content, serverId: serverIdOf(own) ?? name });
}

/** A key that is bound to tools offers no others. */
function requireMayOffer({ caller }: Pick<CallContext, "caller">, node: string, { name }: NodeTool): void {
  const named = { name, enabled: true, roles: [] };
  const uris = [formatToolUri("node", name), formatToolUri("node", node, name)];
  if (uris.some((uri) => mayUseTool(caller, { ...named, uri }))) return;
  throw new GatewayError("permission_denied", `This key is bound to other tools and cannot offer '${name}'.`, {
    param: "tools",
  });
}

/** By tenant and service, of which the tools are being looked at; true: they have changed again since. */
const lookedAt = new WeakMap<CoreDeps, Map<string, boolean>>();

/** However often a server says that its tools have changed, it is asked one time after the other. */
async function lookOnce(
  deps: CoreDeps,
  context: Pick<CallContext, "tenant" | "caller">,
  service: string,
): Promise<void> {
  const known = lookedAt.get(deps);
  const looking = known ?? new Map<string, boolean>();
  if (known === undefined) lookedAt.set(deps, looking);
  const key = `${context.tenant} ${service}`;
  if (looking.has(key)) {
    looking.set(key, true);
    return;
  }
  do {
    looking.set(key, false);
    await lookAgain(deps, context, service);
  } while (looking.get(key) === true);
  looking.delete(key);
}

/** Asks a held server for its tools, as the tenant has them: the key of a node is no user's. Never throws. */
async function lookAgain(
  deps: CoreDeps,
  { tenant, caller }: Pick<CallContext, "tenant" | "caller">,
  service: string,
): Promise<void> {
  try {
    const config = await configOf(deps, tenant);
    const record = config.services.find((each) => each.id === service);
    if (record?.enabled !== true || typeof record.config["node"] !== "string") return;
    const { userId: _userId, ...own } = caller;
    const context = { tenant, caller: own, config, requestId: "", traceId: "", redactor: new Redactor() };
    const { discoverIfPossible, probeTimeoutMs } = await import("../services/list-tools.ts");
    await discoverIfPossible(deps, context, record, probeTimeoutMs);
  } catch (thrown) {
    const { code } = toGatewayError(thrown);
    deps.log.log("warn", "the tools of a held server could not be looked at again", { tenant, service, code });
  }
}

/** Services whose processes are to end: gone, disabled, or configured otherwise by now. */
async function unwantedOf(
  deps: CoreDeps,
  tenant: string,
  held: readonly { readonly service: string; readonly version: number }[],
): Promise<string[]> {
  const { services } = await configOf(deps, tenant);
  return held
    .filter(
      ({ service, version }) => !services.some((now) => now.id === service && now.enabled && now.version === version),
    )
    .map(({ service }) => service);
}

async function configOf(deps: CoreDeps, tenant: string): Promise<CallContext["config"]> {
  const config = await currentConfig(deps, tenant);
  if (config === undefined) throw new GatewayError("not_found", "The tenant is gone.");
  return config;
}

/** Tools whose names something else of the tenant has: by name, that one is called. */
async function hiddenTools(
  deps: CoreDeps,
  { tenant, caller }: Pick<CallContext, "tenant" | "caller">,
  tools: readonly NodeTool[],
): Promise<JsonObject[]> {
  const config = await configOf(deps, tenant);
  const context: CallContext = { tenant, caller, config, requestId: "", traceId: "", redactor: new Redactor() };
  const { node: _node, ...others } = deps.adapters;
  return tools.flatMap(({ name: offered, kind, vcp }) => {
    if (kind !== undefined) return [];
    const name = vcp?.name ?? offered;
    for (const adapter of Object.values(others)) {
      const found = adapter.find?.(name, context);
      if (found !== undefined) return [{ name, by: found.uri }];
    }
    return [];
  });
}
