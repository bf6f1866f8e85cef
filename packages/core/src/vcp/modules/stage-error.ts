/** What is wrong with a module, as an error of the catalogue that says what to do. */
import { GatewayError } from "../../errors/gateway-error.ts";
import type { ErrorCode } from "../../errors/catalog.ts";
import type { Fault, ModuleFault } from "./wire.ts";

const codes = {
  absent: "tool_failed",
  load: "tool_failed",
  initialize: "tool_failed",
  open: "node_required",
  timeout: "tool_timeout",
  stream: "stream_not_carried",
  memory: "tool_failed",
  ended: "tool_failed",
  size: "tool_output_too_large",
  result: "tool_failed",
  threw: "tool_failed",
} as const satisfies Record<ModuleFault, ErrorCode>;

export function codeOf({ fault }: Fault): ErrorCode {
  return codes[fault];
}

/** For a plugin whose module needs a node, and none is there. */
export function needsNode(plugin: string, reason: string): GatewayError {
  return new GatewayError(
    "node_required",
    `The module of plugin '${plugin}' ${reason}. Start a node that holds modules ('"vcp_modules": {}' in its node.json): npm run node -- --url <this gateway> --config node.json.`,
    { toolName: plugin },
  );
}
