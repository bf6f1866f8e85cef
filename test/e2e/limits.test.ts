/** Limits that hold over two instances on one database, and what a caller is told when it meets one. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Client, Reply } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { calls, startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { verifies } from "../support/verifies.ts";

let one: Gateway;
let two: Gateway;
let llm: LlmStub;
let backEnd: HttpStub;

beforeAll(async () => {
  [one, llm, backEnd] = await Promise.all([startGateway(), startLlmStub(), startHttpStub()]);
  two = await startGateway({ sharedWith: one });
});

afterAll(async () => {
  await two.close();
  await Promise.all([one.close(), llm.close(), backEnd.close()]);
});

beforeEach(() => {
  backEnd.requests.length = 0;
  llm.requests.length = 0;
  backEnd.answer = () => ({ body: "{}" });
});

const slow = (name: string) => ({
  name,
  parameters: { type: "object", properties: { q: { type: "string" } } },
  execution: {
    method: "GET",
    base_url: `${backEnd.url}/${name}`,
    content_type: "application/json",
    param_placement: "query",
  },
});

/** Answers that come only when told, and how many are waited for. */
function gate(): { readonly waiting: () => number; open(): void } {
  let release: () => void = () => undefined;
  const opened = new Promise<void>((resolve) => {
    release = resolve;
  });
  let waiting = 0;
  backEnd.answer = async () => {
    waiting += 1;
    await opened;
    return { body: "{}" };
  };
  return { waiting: () => waiting, open: release };
}

/** The same request many times, every other one to the other instance. */
function spread(key: string, count: number, send: (client: Client) => Promise<Reply>): Promise<Reply[]> {
  const instances = [one.client(key), two.client(key)] as const;
  return Promise.all(Array.from({ length: count }, (_unused, at) => send(instances[at % 2 === 0 ? 0 : 1])));
}

describe(`concurrent tool calls ${verifies("CHAT-12")}`, () => {
  test("sixteen of a tenant run, over both instances; the others are told so and can come again", async () => {
    const tenant = await one.newTenant();
    await tenant.addPlugin(slow("held"));
    const held = gate();
    const replies = spread(tenant.key, 24, (client) => client.send("post", "/v1/tools/invoke", { name: "held" }));
    await expect.poll(held.waiting).toBe(16);
    await expect.poll(async () => (await tenant.client.get("/v1/calls?state=running&limit=100")).data.length).toBe(16);
    held.open();
    const statuses = (await replies).map(({ status }) => status);
    expect(statuses.filter((status) => status === 200)).toHaveLength(16);
    const refused = (await replies).filter(({ status }) => status === 429);
    expect(refused).toHaveLength(8);
    expect(refused[0]?.json.error).toMatchObject({
      code: "concurrency_limited",
      type: "rate_limit_error",
      retryable: true,
    });
    expect(refused[0]?.json.error.message).toContain("concurrent_tool_calls");
    expect(refused[0]?.headers.get("retry-after")).toBe("1");
    expect(held.waiting()).toBe(16);
    expect((await tenant.client.send("post", "/v1/tools/invoke", { name: "held" })).status).toBe(200);
  });

  test("chats take their calls from the same sixteen", async () => {
    const tenant = await one.newTenant({ concurrent_tool_calls: 3 });
    await tenant.addProvider(llm.url);
    await tenant.addPlugin(slow("held"));
    const names = ["a", "b", "c", "d"];
    llm.respond((body) =>
      (body["messages"] as unknown[]).length > 1
        ? text("ok")
        : calls(...names.map((q) => ({ name: "held", arguments: { q } }))),
    );
    const held = gate();
    const answers = spread(tenant.key, 2, (client) =>
      client.send("post", "/v1/chat/completions", { messages: [{ role: "user", content: "x" }] }),
    );
    await expect.poll(held.waiting).toBe(3);
    held.open();
    expect((await answers).map(({ status }) => status)).toEqual([200, 200]);
    expect(backEnd.requests).toHaveLength(8);
  });
});

describe(`requests ${verifies("CHAT-12")}`, () => {
  test("a key's requests per minute are counted exactly, on both instances, with the standard headers", async () => {
    const tenant = await one.newTenant();
    const limited = await tenant.newKey({ requests_per_minute: 10 });
    // A window that ends in the middle would count twice.
    const left = 60_000 - (Date.now() % 60_000);
    if (left < 5_000) await new Promise((next) => setTimeout(next, left));
    const replies = await spread(limited.key, 30, (client) => client.send("get", "/v1/models"));
    expect(replies.filter(({ status }) => status === 200)).toHaveLength(10);
    const refused = replies.find(({ status }) => status === 429);
    expect(refused?.json.error).toMatchObject({ code: "rate_limited", scope: "key" });
    expect(refused?.json.error.message).toContain("'requests_per_minute' of the key");
    expect(refused?.headers.get("x-ratelimit-limit-requests")).toBe("10");
    expect(refused?.headers.get("x-ratelimit-remaining-requests")).toBe("0");
    expect(Number(refused?.headers.get("retry-after"))).toBeGreaterThan(0);
    expect(refused?.headers.get("ratelimit-policy")).toContain("10");
  });

  test("chats of a key at once", async () => {
    const tenant = await one.newTenant();
    await tenant.addProvider(llm.url);
    const limited = await tenant.newKey({ concurrent_requests: 2 });
    llm.respond(() => ({ writes: text("slow").writes, gapMs: 150 }));
    const replies = await spread(limited.key, 6, (client) =>
      client.send("post", "/v1/chat/completions", { messages: [{ role: "user", content: "x" }], stream: true }),
    );
    expect(replies.filter(({ status }) => status === 200)).toHaveLength(2);
    const refused = replies.filter(({ status }) => status === 429);
    expect(refused).toHaveLength(4);
    expect(refused[0]?.json.error).toMatchObject({ code: "concurrency_limited", scope: "key" });
  });
});

describe(`a body of megabytes ${verifies("CHAT-12")}`, () => {
  const paths = [
    ["/v1/chat/completions", "invalid_json"],
    ["/v1/tools/invoke", "invalid_json"],
    ["/mcp", -32_700],
  ] as const;
  const large = `[${"{},".repeat(400_000)}`;
  /** Node sends it in chunks, without saying how long it is. */
  const inChunks = (): ReadableStream<Uint8Array> => new Blob([large]).stream();

  async function codeOf(key: string, path: string, raw: string | ReadableStream<Uint8Array>): Promise<string | number> {
    const headers = { "content-type": "application/json", accept: "application/json, text/event-stream" };
    const { json } = await one.client(key).send("post", path, undefined, { raw, headers });
    return json.error.data?.code ?? json.error.code;
  }

  test.each(paths)("is read by %s for callers that there are, and for nobody else", async (path, unreadable) => {
    const { key } = await one.newTenant();
    const madeUp = key.slice(0, -8) + "A".repeat(8);
    for (const raw of [large, inChunks()]) expect(await codeOf(madeUp, path, raw)).toBe("invalid_api_key");
    expect(await codeOf(key, path, large)).toBe(unreadable);
    // The process knows tenant and key by now.
    expect(await codeOf(key, path, large)).toBe(unreadable);
    expect(await codeOf(madeUp, path, large)).toBe("invalid_api_key");
  });
});
