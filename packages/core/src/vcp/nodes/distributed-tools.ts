/**
 * Plugins of VCP nodes, as the rest of the runtime sees them: listed with upstream's mark, with `isDistributed` and
 * `serverId` (specification s. 3.5 and 7; VCP-15). Read from the tenant's snapshot.
 */
import type { NodeTool, RegisteredNode, VcpCommand } from "../../nodes/node.ts";
import type { TenantConfig } from "../../tenant-config.ts";
import type { WebSocketPush } from "../push/web-socket-push.ts";

/** Before the display names of what runs on a node. */
export const cloudMark = "[云端] ";

export interface DistributedTool {
  /** Exactly what a TOOL_REQUEST says. */
  readonly name: string;
  /** With upstream's mark. */
  readonly displayName: string;
  readonly description: string;
  readonly commands: readonly VcpCommand[];
  /** Absent: clients are not told. */
  readonly push?: WebSocketPush;
  readonly isDistributed: true;
  readonly serverId: string;
  readonly node: string;
}

type ByName = ReadonlyMap<string, DistributedTool>;

const ofConfigs = new WeakMap<readonly RegisteredNode[], ByName>();

/** By VCP name; where several nodes offer the same, the first one's. */
export function distributedToolsOf({ nodes }: Pick<TenantConfig, "nodes">): ByName {
  let tools = ofConfigs.get(nodes);
  if (tools === undefined) {
    tools = collect(nodes);
    ofConfigs.set(nodes, tools);
  }
  return tools;
}

function collect(nodes: readonly RegisteredNode[]): ByName {
  const tools = new Map<string, DistributedTool>();
  for (const { name: node, serverId, tools: offered } of nodes) {
    if (serverId === undefined) continue;
    for (const { vcp, description, kind } of offered) {
      if (vcp === undefined || kind !== undefined || tools.has(vcp.name)) continue;
      const { name, display_name: displayName, commands, push } = vcp;
      tools.set(name, {
        name,
        displayName: `${cloudMark}${displayName}`,
        description,
        commands,
        ...(push === undefined ? {} : { push: { enabled: true, ...push } }),
        isDistributed: true,
        serverId,
        node,
      });
    }
  }
  return tools;
}

/** Characters of what a model reads that calls functions. */
const longestDescription = 16_000;

/** The tool's description and, of a plugin, those of its commands. */
export function describeOffered({ description, vcp }: Pick<NodeTool, "description" | "vcp">): string {
  if (vcp === undefined) return description;
  const parts = vcp.commands.map(({ command, description: text, example }) =>
    [command === undefined ? "" : `${command}: `, text, example === undefined ? "" : `\n${example}`].join(""),
  );
  const text = [description, ...parts].filter((part) => part.trim() !== "").join("\n\n");
  return text.length > longestDescription ? `${text.slice(0, longestDescription)}…` : text;
}
