/** An MCP server for the suite over all schemes. */
import type { ServerResponse } from "node:http";
import { anyTool, startMcpStub, textResult } from "../mcp-stub.ts";
import type { Mood, SchemeFixture } from "./fixture.ts";

const schema = { type: "object", properties: { id: { type: "string" } }, required: ["id"] };

export const mcpFixture: SchemeFixture = {
  tool: "customer_take",
  arguments: { id: "C001" },
  badArguments: { id: 7 },
  effect: "write",
  async start() {
    let mood: Mood = "well";
    const secret = "sentinel-of-the-mcp-server";
    const stub = await startMcpStub({
      authorization: `Bearer ${secret}`,
      tools: [anyTool("customer_take", { inputSchema: schema })],
      onCall: () => {
        if (mood === "silent") return () => ({ delayMs: 60_000 });
        if (mood === "huge") return textResult("x".repeat(10_000_000));
        if (mood === "well") return textResult("taken");
        mood = "well";
        return (response: ServerResponse) => {
          response.destroy();
          return undefined;
        };
      },
    });
    const auth = { auth_type: "bearer", auth_config: { token: secret } };
    return {
      config: { url: stub.url, ...auth },
      deadConfig: { url: "http://127.0.0.1:9/mcp", ...auth },
      secrets: [secret],
      calls: () => stub.calls.length,
      behave: (next) => {
        mood = next;
      },
      close: () => stub.close(),
    };
  },
};
