/** What nodes say on their connection (docs/nodes.md); needs the scope `node`. */
import * as z from "zod";
import { hasScope, mayUseTool } from "../callers/caller.ts";
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { newId } from "../ids.ts";
import type { JsonObject } from "../json.ts";
import type { Connection } from "../realtime/connection.ts";
import { defineMessage, type MessageKind } from "../realtime/message-kind.ts";
import { Redactor } from "../secrets/redactor.ts";
import { formatToolUri } from "../tools/uri.ts";
import { openInput } from "./input.ts";
import { nodeNameSchema, nodeToolsSchema, type NodeTool } from "./node.ts";
import { nodeResultSchema, nodeResultShape, resultKey, useResult } from "./results.ts";

const id = z.string().regex(/^[A-Za-z0-9][\w.:-]{0,63}$/, "must have 1 to 64 letters, digits, '_', '-', '.' or ':'");
/** Made anew by every process that is a node. */
const instance = z.string().regex(/^[\w-]{16,64}$/, "must have 16 to 64 letters, digits, '_' or '-'");
const run = z.string().max(64);
const uploadLifetimeMs = 900_000;

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
      tools: nodeToolsSchema,
    }),
    async answer(deps, { tenant, id: connectionId, caller }, { name, version, instance: own, tools }) {
      for (const tool of tools) requireMayOffer({ caller }, name, tool);
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
          { param: "tools" },
        );
      }
      if (registered.kind === "full") {
        throw new GatewayError("concurrency_limited", "This tenant has as many nodes as it may; remove one first.");
      }
      await deps.tellNow();
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
    schema: z.strictObject({ type: z.literal("node.beat"), id: id.optional(), instance, runs: z.array(run).max(500) }),
    async answer(deps, { tenant }, { instance: own, runs }) {
      const { known, cancelled } = await deps.repos.nodes.extend(tenant, own, runs, deps.timing.leaseMs);
      return { type: "node.beaten", known: [...known], cancelled: [...cancelled] };
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
      return { type: "node.left" };
    },
  }),
} as const;

/** A key that is bound to tools offers no others. */
function requireMayOffer({ caller }: Pick<CallContext, "caller">, node: string, { name }: NodeTool): void {
  const named = { name, enabled: true, roles: [] };
  const uris = [formatToolUri("node", name), formatToolUri("node", node, name)];
  if (uris.some((uri) => mayUseTool(caller, { ...named, uri }))) return;
  throw new GatewayError("permission_denied", `This key is bound to other tools and cannot offer '${name}'.`, {
    param: "tools",
  });
}

async function configOf(deps: CoreDeps, tenant: string): Promise<CallContext["config"]> {
  const row = await deps.repos.tenants.get(tenant);
  if (row === undefined) throw new GatewayError("not_found", "The tenant is gone.");
  return deps.configs.get(tenant, row.configVersion);
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
  return tools.flatMap(({ name }) => {
    for (const adapter of Object.values(others)) {
      const found = adapter.find?.(name, context);
      if (found !== undefined) return [{ name, by: found.uri }];
    }
    return [];
  });
}
