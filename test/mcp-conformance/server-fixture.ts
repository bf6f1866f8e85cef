/**
 * What the conformance suite expects of a server: its test tools, here those of an MCP server behind a tool
 * service of a tenant, at `/mcp/conformance`. The suite has no credentials, so they are added on the way.
 */
import { createServer, request as forward, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { Json } from "../support/gateway-client.ts";
import { startGateway } from "../support/gateway.ts";
import { anyTool, startMcpStub, textResult, type McpCall } from "../support/mcp-stub.ts";

export interface ConformanceFixture {
  readonly url: string;
  close(): Promise<void>;
}

/** One red pixel. */
const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
const wav = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=";
const slow = { timeout_ms: 120_000 };
const asks = { sensitive: true };

/** By tool: what the gateway is told of it, and how it answers. */
const overrides: Json = {
  slow_compute: slow,
  failing_job: slow,
  protocol_error_job: slow,
  confirm_delete: { ...slow, ...asks },
  test_input_required_result_elicitation: asks,
  test_input_required_result_tampered_state: asks,
  test_streaming_elicitation: asks,
  test_tool_with_task: { ...slow, ...asks },
};

const tools: readonly Json[] = [
  "test_simple_text",
  "test_image_content",
  "test_audio_content",
  "test_embedded_resource",
  "test_multiple_content_types",
  "test_error_handling",
  "test_tool_with_progress",
  "failing_job",
  "protocol_error_job",
  "confirm_delete",
  "test_input_required_result_elicitation",
  "test_input_required_result_tampered_state",
  "test_tool_with_task",
  "test_streaming_elicitation",
  "test_logging_tool",
  "test_trigger_tool_change",
]
  .map((name) => anyTool(name))
  .concat([
    anyTool("greet", { inputSchema: { type: "object", properties: { name: { type: "string" } } } }),
    anyTool("slow_compute", {
      inputSchema: { type: "object", properties: { seconds: { type: "number" }, label: { type: "string" } } },
    }),
    anyTool("test_header_mirror", {
      inputSchema: { type: "object", properties: { region: { type: "string", "x-mcp-header": "Region" } } },
    }),
    anyTool("json_schema_2020_12_tool", { inputSchema: richSchema() }),
  ]);

/** Every kind of keyword that must arrive at a client as it was. */
function richSchema(): Json {
  return {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    type: "object",
    $defs: {
      address: {
        $anchor: "addressDef",
        type: "object",
        properties: { street: { type: "string" }, city: { type: "string" } },
      },
    },
    properties: {
      name: { type: "string" },
      address: { $ref: "#/$defs/address" },
      contactMethod: { type: "string", enum: ["phone", "email"] },
      phone: { type: "string" },
      email: { type: "string" },
    },
    allOf: [{ anyOf: [{ required: ["phone"] }, { required: ["email"] }] }],
    if: { properties: { contactMethod: { const: "phone" } }, required: ["contactMethod"] },
    // oxlint-disable-next-line unicorn/no-thenable
    then: { required: ["phone"] },
    else: { required: ["email"] },
    additionalProperties: false,
  };
}

const resource = (uri: string): Json => ({
  type: "resource",
  resource: { uri, mimeType: "text/plain", text: "A text." },
});
const image = { type: "image", data: png, mimeType: "image/png" };

const results: Readonly<Record<string, Json>> = {
  test_simple_text: textResult("This is a simple text."),
  test_image_content: { content: [image] },
  test_audio_content: { content: [{ type: "audio", data: wav, mimeType: "audio/wav" }] },
  test_embedded_resource: { content: [resource("test://embedded")] },
  test_multiple_content_types: { content: [{ type: "text", text: "Several:" }, image, resource("test://mixed")] },
  test_error_handling: textResult("This tool fails.", { isError: true }),
  failing_job: textResult("The job failed.", { isError: true }),
};

const event = (message: Json): string => `event: message\ndata: ${JSON.stringify({ jsonrpc: "2.0", ...message })}\n\n`;
const pause = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

type Write = (response: ServerResponse) => Promise<undefined>;

const tellsProgress =
  ({ id, meta }: McpCall): Write =>
  async (response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (const progress of [0, 50, 100]) {
      const params = { progressToken: meta.progressToken, progress, total: 100 };
      response.write(event({ method: "notifications/progress", params }));
      await pause(50);
    }
    response.end(event({ id, result: textResult("Done.") }));
    return undefined;
  };

const takesTime =
  ({ id, arguments: args }: McpCall): Write =>
  async (response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.flushHeaders();
    const seconds = Number(args.seconds ?? 0);
    for (let waited = 0; waited < seconds * 1_000 && !response.destroyed; waited += 50) await pause(50);
    response.end(event({ id, result: textResult(`Waited ${seconds} s for ${args.label}.`) }));
    return undefined;
  };

const breaks =
  ({ id }: McpCall) =>
  (): Json => ({ body: JSON.stringify({ jsonrpc: "2.0", id, error: { code: -32_603, message: "It broke." } }) });

function answer(call: McpCall): Json {
  switch (call.name) {
    case "greet":
      return textResult(`Hello, ${call.arguments.name ?? "you"}!`);
    case "slow_compute":
      return takesTime(call);
    case "test_tool_with_progress":
      return tellsProgress(call);
    case "protocol_error_job":
      return breaks(call);
    default:
      return results[call.name] ?? textResult(JSON.stringify(call.arguments));
  }
}

export async function startConformanceFixture(): Promise<ConformanceFixture> {
  const stub = await startMcpStub({ tools });
  const gateway = await startGateway({ timing: { cancelPollMs: 100 } });
  const tenant = await gateway.newTenant();
  const { id } = await tenant.client.post("/v1/tool-services", {
    scheme: "mcp",
    service_id: "conformance",
    config: { url: stub.url, tools: overrides },
  });
  let changes = 0;
  stub.onCall = (call) => {
    if (call.name !== "test_trigger_tool_change") return answer(call);
    stub.tools = [...tools, anyTool(`added_${(changes += 1)}`)];
    return async () => {
      await tenant.client.get(`/v1/tool-services/${id}/tools?refresh=true`);
      return { body: JSON.stringify({ jsonrpc: "2.0", id: call.id, result: textResult("Changed.") }) };
    };
  };
  const proxy = await startProxy(new URL(gateway.url), `Bearer ${tenant.key}`);
  return {
    url: `${proxy.url}/mcp/conformance`,
    async close() {
      await proxy.close();
      await gateway.close();
      await stub.close();
    },
  };
}

/** Passes everything on as it is, with credentials. */
async function startProxy(target: URL, authorization: string): Promise<ConformanceFixture> {
  const server = createServer((incoming: IncomingMessage, outgoing: ServerResponse) => {
    const { method, url, headers } = incoming;
    const onward = forward(
      { hostname: target.hostname, port: target.port, method, path: url, headers: { ...headers, authorization } },
      (reply) => {
        outgoing.writeHead(reply.statusCode ?? 502, reply.headers);
        reply.pipe(outgoing);
        reply.on("error", () => outgoing.destroy());
      },
    );
    onward.on("error", () => outgoing.destroy());
    outgoing.on("close", () => onward.destroy());
    incoming.pipe(onward);
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: async () => {
      server.closeAllConnections();
      await new Promise((done) => server.close(done));
    },
  };
}
