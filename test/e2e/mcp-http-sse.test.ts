/** `mcp://` over HTTP with SSE (2024-11-05): the stream is at one server, and messages may come to another. */
import type { ServerResponse } from "node:http";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startHttpStub } from "../support/http-stub.ts";
import { anyTool, textResult } from "../support/mcp-stub.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let tenant: TestTenant;
beforeAll(async () => {
  gateway = await startGateway();
  tenant = await gateway.newTenant();
});
afterAll(() => gateway.close());

const content = async (uri: string): Promise<string> => {
  const { status, json, text } = await tenant.client.send("post", "/v1/tools/invoke", { uri, arguments: {} });
  expect(status, text).toBe(200);
  return json.content;
};

test.each([
  [404, "Could not find session"],
  [400, "No transport found for sessionId"],
])(
  `a connection of HTTP with SSE whose stream stays while its server is another (%i) is begun anew, and the call made once ${verifies("MCP-1", "MCP-4")}`,
  async (status, words) => {
    const streams: ServerResponse[] = [];
    let current = 0;
    const calls: string[] = [];
    const say = (stream: ServerResponse | undefined, event: string, data: string): void =>
      void stream?.write(`event: ${event}\ndata: ${data}\n\n`);
    const old = await startHttpStub((request, response) => {
      if (request.method === "GET") {
        response.writeHead(200, { "content-type": "text/event-stream" });
        streams.push(response);
        say(response, "endpoint", `/messages?sessionId=${streams.length}`);
        return undefined;
      }
      const session = Number(new URL(request.target, "http://stub").searchParams.get("sessionId"));
      // Behind a balancer: the stream is still held, and messages go to another.
      if (session <= current) return { status, body: words };
      const { id, method, params }: Json = JSON.parse(request.body.toString());
      if (method === "tools/call") calls.push(params.name);
      const results: Json = {
        initialize: { protocolVersion: "2024-11-05", capabilities: {} },
        "tools/list": { tools: [anyTool("echo")] },
        "tools/call": textResult("done"),
      };
      const message = { jsonrpc: "2.0", id, result: results[method] };
      if (id !== undefined) say(streams[session - 1], "message", JSON.stringify(message));
      return { status: 202, body: "" };
    });
    const config = { url: `${old.url}/sse`, transport: "sse" };
    await tenant.client.post("/v1/tool-services", { scheme: "mcp", service_id: `old${status}`, config });
    expect(await content(`mcp://old${status}/echo`)).toBe("done");
    current = streams.length;
    expect(await content(`mcp://old${status}/echo`)).toBe("done");
    expect(calls).toEqual(["echo", "echo"]);
    for (const stream of streams) stream.end();
    await old.close();
  },
);
