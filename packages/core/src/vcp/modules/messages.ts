/**
 * What nodes that hold modules of VCP plugins say on their connection (docs/nodes.md); needs the scope `modules`,
 * because a node is given the plugins' files and configuration. What it takes is read when somebody asks.
 */
import * as z from "zod";
import { hasScope } from "../../callers/caller.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import type { JsonObject } from "../../json.ts";
import { nodeNameSchema } from "../../nodes/node.ts";
import type { Connection } from "../../realtime/connection.ts";
import { defineMessage, type MessageKind } from "../../realtime/message-kind.ts";
import { moduleReportSchema } from "./reports.ts";

const id = z.string().regex(/^[A-Za-z0-9][\w.:-]{0,63}$/, "must have 1 to 64 letters, digits, '_', '-', '.' or ':'");
const instance = z.string().regex(/^[\w-]{16,64}$/, "must have 16 to 64 letters, digits, '_' or '-'");
const plugin = z.string().min(1).max(64);
const mostModules = 200;
/** An answer that a frame takes. */
const longestOpening = 24_000;

/** @throws GatewayError `permission_denied` */
export function requireModules({ caller }: Pick<Connection, "caller">): void {
  if (hasScope(caller, "modules")) return;
  throw new GatewayError(
    "permission_denied",
    "This key lacks the scope 'modules', which holding modules of VCP plugins takes; make one with POST /v1/api-keys.",
    { param: "modules" },
  );
}

function defineModuleMessage<Message>(kind: MessageKind<Message>): MessageKind<Message> {
  return defineMessage({
    schema: kind.schema,
    answer(deps, connection, message) {
      requireModules(connection);
      return kind.answer(deps, connection, message);
    },
  });
}

export const moduleMessages = {
  "modules.hold": defineModuleMessage({
    schema: z.strictObject({
      type: z.literal("modules.hold"),
      id: id.optional(),
      node: nodeNameSchema,
      instance,
      reports: z.array(moduleReportSchema).max(mostModules),
    }),
    async answer(deps, { tenant }, { node, instance: own, reports }) {
      const { assignModules } = await import("./hold.ts");
      const modules = await assignModules(deps, tenant, { node, instance: own, reports });
      return { type: "modules.held", modules: modules.map((each) => ({ ...each })), lease_ms: deps.timing.leaseMs };
    },
  }),
  "modules.open": defineModuleMessage({
    schema: z.strictObject({
      type: z.literal("modules.open"),
      id: id.optional(),
      plugin,
      node: nodeNameSchema,
      instance,
    }),
    async answer(deps, { tenant }, { plugin: name, node, instance: own }) {
      const { openModule } = await import("./hold.ts");
      const opened = await openModule(deps, tenant, { plugin: name, node, instance: own });
      const answer: JsonObject = {
        type: "modules.opened",
        plugin: opened.plugin,
        fingerprint: opened.fingerprint,
        spec: { ...opened.spec, environment: { ...opened.spec.environment } },
        env_files: opened.envFiles.map((file) => ({ ...file })),
        files_url: opened.filesUrl,
        files_hash: opened.filesHash,
        max_bytes: opened.maxBytes,
      };
      if (Buffer.byteLength(JSON.stringify(answer)) <= longestOpening) return answer;
      throw new GatewayError(
        "payload_too_large",
        `The configuration of plugin '${name}' is larger than the ${longestOpening} bytes that a node can be told.`,
        { param: "plugin" },
      );
    },
  }),
  "modules.told": defineModuleMessage({
    schema: z.strictObject({
      type: z.literal("modules.told"),
      id: id.optional(),
      plugin,
      to: z.enum(["VCPLog", "VCPInfo"]),
      data: z.json(),
    }),
    async answer(deps, { tenant }, { plugin: name, to, data }) {
      const { tellWatchers } = await import("./tell.ts");
      await tellWatchers(deps, tenant, [{ plugin: name, to, data }]);
      return { type: "modules.received" };
    },
  }),
} as const;
