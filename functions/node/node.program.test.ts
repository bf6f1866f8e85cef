import { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, onTestFinished, test } from "vitest";
import type { JsonObject } from "@toolyard/core/json";
import type { NodeTool } from "@toolyard/core/nodes/node";
import type { Egress } from "@toolyard/core/ports/egress";
import { unscripted } from "../../test/support/fake-core.ts";
import { verifies } from "../../test/support/verifies.ts";
import type { NodeConfig } from "./config.ts";
import type { Executor } from "./executor.ts";
import type { LinkHandlers } from "./link.ts";
import { Node } from "./node.ts";

const tool: NodeTool = {
  name: "measure",
  description: "Measures.",
  parameters: { type: "object" },
  effect: "write",
  sensitive: false,
  timeout_ms: 1_000,
  concurrency: 1,
};

interface Given {
  /** Of the tool that is called; absent: that is one of `mcpServers`. */
  readonly execute?: Executor["execute"];
  readonly mcpServers?: NodeConfig["mcpServers"];
  readonly accept?: JsonObject;
  /** Downloads of arguments. */
  readonly request?: () => Promise<string>;
  readonly store?: () => Promise<void>;
  readonly log?: (message: string) => void;
}

/** A node whose gateway the test plays, with one call in hand. */
async function withCall({
  execute,
  mcpServers = [],
  accept,
  request = () => Promise.resolve(""),
  store,
  log,
}: Given): Promise<{
  readonly node: Node;
  readonly asked: JsonObject[];
  readonly running: Promise<void>;
}> {
  const asked: JsonObject[] = [];
  const done = Promise.withResolvers<void>();
  let isClosed = false;
  let handlers: LinkHandlers | undefined;
  const answers: Readonly<Record<string, JsonObject>> = {
    "node.register": { type: "node.registered", beat_ms: 60_000, hidden: [] },
    "node.accept": accept ?? { type: "node.accepted", input: { arguments: {} } },
    "node.beat": { type: "node.beaten", known: ["r1"], cancelled: [] },
    "node.upload": { type: "node.upload", url: "", headers: {} },
  };
  const askNow = <T>(message: JsonObject, read: (answer: JsonObject) => T): Promise<T> => {
    asked.push(message);
    return Promise.resolve(read(answers[message["type"] as string] ?? {}));
  };
  const node = new Node({
    url: "",
    key: "",
    path: process.env["PATH"] ?? "",
    graceMs: 50,
    runner: unscripted("runner"),
    egress: {
      ...unscripted<Egress>("egress"),
      async request() {
        return { status: 200, headers: {}, body: Readable.from([Buffer.from(await request())]), url: "" };
      },
    },
    log: { log: (_level, message) => log?.(message) },
    config: {
      name: "lab",
      directory: "/",
      programs: [],
      mcpServers,
      holdsSubscriptions: false,
      files: [],
      vcpModules: undefined,
    },
    createLink(given) {
      handlers = given;
      return {
        run: () => done.promise,
        close() {
          isClosed = true;
          done.resolve();
        },
        ask: async (message, read) => (isClosed ? undefined : askNow(message, read)),
        askNow,
        ...(store === undefined ? {} : { store }),
      };
    },
  });
  onTestFinished(() => node.stop());
  if (execute !== undefined) await node.offer([{ offer: tool, executor: { execute } }]);
  const running = node.run();
  const called = mcpServers[0]?.name ?? tool.name;
  handlers?.onEvent({ type: "node.call", data: { run: "r1", call_id: "c1", tool: called } });
  return { node, asked, running };
}

const told = (asked: readonly JsonObject[], type: string): JsonObject[] =>
  asked.filter((each) => each["type"] === type);

const completed: Executor["execute"] = () =>
  Promise.resolve({ status: "completed", mediaType: "text/plain", output: "x" });

describe("arguments of a call that a node has to fetch", () => {
  const accept = { type: "node.accepted", input_url: "https://store.example/arguments" };

  test("are asked for again where they did not come at once", async () => {
    let tries = 0;
    const { asked } = await withCall({
      accept,
      execute: completed,
      request() {
        tries += 1;
        return tries < 3 ? Promise.reject(new Error("reset")) : Promise.resolve(JSON.stringify({ arguments: {} }));
      },
    });
    await expect.poll(() => told(asked, "node.result"), { timeout: 10_000 }).toMatchObject([{ status: "completed" }]);
    expect(tries).toBe(3);
  });

  test("that never come leave the call not begun, which may go again", async () => {
    let begun = 0;
    const { asked } = await withCall({
      accept,
      request: () => Promise.reject(new Error("reset")),
      execute(execution) {
        begun += 1;
        return completed(execution);
      },
    });
    await expect
      .poll(() => told(asked, "node.result"), { timeout: 15_000 })
      .toMatchObject([{ status: "declined", message: "reset" }]);
    expect(begun).toBe(0);
  });
});

describe("a call that a node has begun", () => {
  test("is lost where what carries it out breaks", async () => {
    const { asked } = await withCall({ execute: () => Promise.reject(new Error("broken")) });
    await expect.poll(() => told(asked, "node.result")).toMatchObject([{ status: "lost", message: "broken" }]);
  });

  test("is no more tried to be delivered once the node has stopped", async () => {
    let tries = 0;
    const lines: string[] = [];
    const { node, running } = await withCall({
      log: (line) => void lines.push(line),
      execute: () => Promise.resolve({ status: "completed", mediaType: "text/plain", output: "x".repeat(100_000) }),
      store() {
        tries += 1;
        return Promise.reject(new Error("the store is away"));
      },
    });
    await expect.poll(() => tries).toBe(1);
    await node.stop();
    await running;
    const before = { tries, lines: lines.length };
    // The pause of four seconds that it stopped in ends 2.5 s later.
    await sleep(3_500);
    expect({ tries, lines: lines.length }).toEqual(before);
  });
});

test(`a held server that says without an end that its tools are others is told of once at first ${verifies("MCP-2")}`, async () => {
  const program = `
    import { createInterface } from "node:readline";
    const say = (message) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\\n");
    for await (const line of createInterface({ input: process.stdin })) {
      const { id, method } = JSON.parse(line);
      if (method === "initialize") say({ id, result: { protocolVersion: "2025-11-25", capabilities: {} } });
      if (method !== "tools/call") continue;
      for (let count = 0; count < 50; count += 1) {
        say({ method: "notifications/tools/list_changed" });
        await new Promise((done) => setTimeout(done, 25));
      }
      say({ id, result: { content: [] } });
    }`;
  const server = {
    service: "svc_1",
    version: 1,
    owner: "tenant",
    generation: "g",
    environment: {},
    elicitation: "ask",
    initialize: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "t", version: "1" } },
  };
  const run = { server, request: { method: "tools/call", params: {} }, timeout_ms: 10_000, max_bytes: 100_000 };
  const { asked } = await withCall({
    mcpServers: [
      {
        name: "memory",
        command: [process.execPath, "--input-type=module", "-e", program],
        environment: {},
        variables: [],
        max_message_bytes: 100_000,
        concurrency: 1,
      },
    ],
    accept: { type: "node.accepted", input: { arguments: run } },
  });
  await expect.poll(() => told(asked, "node.result"), { timeout: 10_000 }).toMatchObject([{ status: "completed" }]);
  expect(told(asked, "node.tools_changed")).toHaveLength(1);
});
