import { tmpdir } from "node:os";
import { expect, onTestFinished, test } from "vitest";
import { parseJson, type JsonObject } from "@toolyard/core/json";
import { verifies } from "../../test/support/verifies.ts";
import type { McpProgram } from "./config.ts";
import type { Executed } from "./executor.ts";
import { McpServers } from "./mcp-servers.ts";

/** One call of a held server that does `onCall` with it; `say` sends a message, `answer` the call's. */
async function callHeld(onCall: string, change: JsonObject = {}): Promise<Executed> {
  const program = `
    import { createInterface } from "node:readline";
    const write = (text) => process.stdout.write(text + "\\n");
    const say = (message) => write(JSON.stringify({ jsonrpc: "2.0", ...message }));
    let call;
    const answer = (text) => say({ id: call, result: { content: [{ type: "text", text }] } });
    const deep = "[".repeat(20_000) + "]".repeat(20_000);
    for await (const line of createInterface({ input: process.stdin })) {
      const message = JSON.parse(line);
      const { id, method } = message;
      if (method === "initialize") say({ id, result: { protocolVersion: "2025-11-25", capabilities: {} } });
      else if (method === "tools/call") { call = id; ${onCall} }
      else if (id === "asked") answer(JSON.stringify(message.result));
    }`;
  const servers = new McpServers({
    directory: tmpdir(),
    path: process.env["PATH"] ?? "",
    log: { log: () => undefined },
    onToolsChanged: () => undefined,
  });
  onTestFinished(() => servers.stop());
  const held: McpProgram = {
    name: "memory",
    command: [process.execPath, "--input-type=module", "-e", program],
    environment: {},
    variables: [],
    max_message_bytes: 1_000_000,
    concurrency: 1,
  };
  const run: JsonObject = {
    server: {
      service: "svc_1",
      version: 1,
      owner: "tenant",
      generation: "g",
      environment: {},
      elicitation: "defaults",
      initialize: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "t", version: "1" } },
    },
    request: { method: "tools/call", params: { name: "t", arguments: {}, _meta: { progressToken: "p" } } },
    timeout_ms: 10_000,
    max_bytes: 1_000_000,
    ...change,
  };
  return servers.execute(held, {
    run: "r1",
    arguments: run,
    signal: new AbortController().signal,
    // As the node tells the gateway.
    onProgress: (progress) => void JSON.stringify(progress),
  });
}

const textOf = ({ output }: Executed): unknown => (parseJson(output) as JsonObject)["result"];

test("what a gateway of another release wants of it is declined, and which side to upgrade is said", async () => {
  expect(await callHeld("", { priority: "high" })).toMatchObject({
    status: "declined",
    message: expect.stringMatching(/another release; upgrade the node/),
  });
});

test(`a form that is no schema is declined, and the server lives on ${verifies("MCP-1")}`, async () => {
  const executed = await callHeld(`
    const requestedSchema = { properties: { a: { type: "nonsense" } } };
    say({ id: "asked", method: "elicitation/create", params: { message: "?", requestedSchema } });`);
  expect(textOf(executed)).toEqual({ content: [{ type: "text", text: '{"action":"decline"}' }] });
});

test(`what is nested without an end is no answer to read, and ends nothing but its call ${verifies("MCP-3")}`, async () => {
  const progress = 'write(`{"method":"notifications/progress","params":{"progressToken":"p","a":${deep}}}`);';
  expect(await callHeld(`${progress} answer("done");`)).toMatchObject({ status: "completed" });
  expect(await callHeld('write(`{"id":${call},"result":{"a":${deep}}}`);')).toMatchObject({
    status: "failed",
    message: "Its answer is nested more than 1000 levels deep.",
  });
});
