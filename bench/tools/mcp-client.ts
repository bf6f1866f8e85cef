/** The product's own MCP client by itself, in this process: what a call costs without a gateway around it. */
import { createEgress } from "@toolyard/core/blind/egress";
import { HttpPeer } from "@toolyard/core/mcp/http-peer";
import { McpSession } from "@toolyard/core/mcp/session";
import { StreamableHttp } from "@toolyard/core/mcp/streamable-http";
import { callContext } from "../../test/support/call-context.ts";

export interface McpClient {
  call(): Promise<unknown>;
  close(): Promise<void>;
}

export async function openMcpClient(url: string): Promise<McpClient> {
  const name = "mcp://crm";
  const egress = createEgress({ allowCidrs: ["127.0.0.0/8"] });
  const peer = new HttpPeer(
    {
      egress,
      credentials: { resolve: () => Promise.resolve(new Map<string, string>()) },
      tokens: { accessToken: () => Promise.reject(new Error("nobody asks for a token")) },
    },
    {
      url,
      name,
      tool: `${name}/*`,
      auth: { authConfig: undefined, literals: new Map() },
      headers: { authorization: "Bearer token-of-the-crm" },
      tls: () => Promise.resolve(undefined),
    },
  );
  const exchange = {
    context: callContext(),
    signal: new AbortController().signal,
    timeoutMs: 10_000,
    maxBytes: 100_000,
  };
  const session = await McpSession.open(
    new StreamableHttp(peer),
    { name, era: "session", elicitation: "ask", onToolsChanged: () => undefined },
    exchange,
  );
  let id = 0;
  return {
    call() {
      id += 1;
      return session.callTool({ name: "customer_get", arguments: { id: "C001" }, token: `call_${id}` }, exchange);
    },
    async close() {
      await session.close();
      await egress.close();
    },
  };
}
