/**
 * A node of VCP as the wire sees one: registers on opening, says its address, answers `execute_tool`, knows nothing
 * else. Written from the description of the frames.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { Json } from "./gateway-client.ts";
import { connectSocket, type SocketClient } from "./socket-client.ts";

export interface VcpNodeOptions {
  /** With the path. */
  readonly url: string;
  readonly key?: string;
  readonly serverName?: string;
  readonly tools?: readonly Json[];
  readonly cancelTool?: boolean;
  /** What a call comes to; absent or undefined: no answer. */
  readonly run?: (toolName: string, toolArgs: Json, data: Json) => unknown;
}

export interface VcpNode {
  readonly client: SocketClient;
  readonly serverId: string;
  /** Frames `execute_tool` so far. */
  readonly asked: Json[];
  register(tools: readonly Json[]): void;
  close(): Promise<void>;
}

export function vcpManifest(name: string, change: Json = {}): Json {
  return {
    manifestVersion: "1.0.0",
    name,
    displayName: `${name} of a node`,
    version: "0.1.0",
    description: `Does what ${name} does.`,
    pluginType: "synchronous",
    entryPoint: { type: "python", command: "python3 script.py" },
    communication: { protocol: "stdio", timeout: 5_000 },
    capabilities: {
      invocationCommands: [{ command: "go", description: `Goes. text:「始」…「末」`, example: "an example" }],
    },
    ...change,
  };
}

export async function startVcpNode(options: VcpNodeOptions): Promise<VcpNode> {
  const { url, key, serverName = "lab", tools = [vcpManifest("Echo")], cancelTool = false, run } = options;
  const headers = key === undefined ? {} : { authorization: `Bearer ${key}` };
  const client = await connectSocket(url, { headers });
  const asked: Json[] = [];
  const register = (offered: readonly Json[]): void =>
    client.say({
      type: "register_tools",
      data: { serverName, tools: offered, ...(cancelTool ? { capabilities: { cancelTool: true } } : {}) },
    });
  client.socket.on("message", (message: Buffer) => {
    const { type, data } = JSON.parse(message.toString("utf8"));
    if (type !== "execute_tool") return;
    asked.push(data);
    void (async () => {
      const { requestId, toolName, toolArgs } = data;
      try {
        const result = await run?.(toolName, toolArgs, data);
        if (result !== undefined) client.say({ type: "tool_result", data: { requestId, status: "success", result } });
      } catch (thrown) {
        const error = thrown instanceof Error ? thrown.message : thrown;
        client.say({ type: "tool_result", data: { requestId, status: "error", error } });
      }
    })();
  });
  await until(() => client.of("connection_ack").length > 0);
  const serverId = client.of("connection_ack")[0].data.serverId;
  register(tools);
  client.say({ type: "report_ip", data: { serverName, localIPs: ["10.0.0.7"], publicIP: "203.0.113.7" } });
  return { client, serverId, asked, register, close: () => client.close() };
}

async function until(check: () => boolean): Promise<void> {
  for (const end = Date.now() + 10_000; Date.now() < end;) {
    if (check()) return;
    await sleep(5);
  }
  throw new Error("it did not happen");
}
