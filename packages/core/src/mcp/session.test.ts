import { getEventListeners } from "node:events";
import { expect, onTestFinished, test } from "vitest";
import { callContext } from "../../../../test/support/call-context.ts";
import { startMcpStub } from "../../../../test/support/mcp-stub.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import { createEgress } from "../blind/egress.ts";
import { HttpPeer } from "./http-peer.ts";
import { McpSession } from "./session.ts";
import { StreamableHttp } from "./streamable-http.ts";

test.each(["json", "sse"] as const)(
  `many calls on one session leave nothing at the signal that they share (%s) ${verifies("MCP-4")}`,
  async (answersAs) => {
    const stub = await startMcpStub({ answersAs });
    const egress = createEgress({ allowCidrs: ["127.0.0.0/8"] });
    onTestFinished(async () => {
      await egress.close();
      await stub.close();
    });
    const credentials = { resolve: () => Promise.resolve(new Map<string, string>()) };
    const tokens = { accessToken: () => Promise.reject(new Error("nobody asks for a token")) };
    const peer = new HttpPeer(
      { egress, credentials, tokens },
      {
        url: stub.url,
        name: "mcp://stub",
        tool: "mcp://stub/*",
        auth: { authConfig: undefined, literals: new Map() },
        headers: {},
        tls: () => Promise.resolve(undefined),
      },
    );
    const { signal } = new AbortController();
    const exchange = { context: callContext(), signal, timeoutMs: 10_000, maxBytes: 100_000 };
    const options = {
      name: "mcp://stub",
      era: "session" as const,
      elicitation: "ask" as const,
      onToolsChanged: () => undefined,
    };
    const session = await McpSession.open(new StreamableHttp(peer), options, exchange);
    const call = (count: number): Promise<unknown> =>
      session.callTool({ name: "echo", arguments: { count }, token: `call_${count}` }, exchange);
    for (let count = 0; count < 50; count += 1) await call(count);
    await Promise.all(Array.from({ length: 50 }, (_, count) => call(50 + count)));
    expect(stub.calls).toHaveLength(100);
    expect(getEventListeners(signal, "abort")).toHaveLength(0);
    await session.close();
  },
);
