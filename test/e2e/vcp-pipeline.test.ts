/** The whole pipeline before a model: every step leaves its mark, and the order of the marks is the order of the steps. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { importVcp } from "../support/vcp-plugins.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
/** A second instance at the same database. */
let other: Gateway;
let llm: LlmStub;
let tenant: TestTenant;

/** Marks the first message with its name and with what it has seen. */
const marking = (name: string): string => `
  module.exports = {
    async processMessages(messages) {
      const [first, ...rest] = messages;
      const hasPicture = JSON.stringify(messages).includes("data:image/png;base64,");
      const mark = "[${name} saw " + messages.length + (hasPicture ? " and a picture" : "") + "]";
      return [{ ...first, content: first.content + " " + mark }, ...rest];
    },
  };
`;

function addPreprocessor(name: string, script: string, into = tenant): Promise<Json> {
  return importVcp(into.client, {
    name,
    manifest: {
      pluginType: "messagePreprocessor",
      entryPoint: { script: "index.js" },
      communication: { protocol: "direct" },
    },
    files: { "index.js": script },
  });
}

beforeAll(async () => {
  [gateway, llm] = await Promise.all([startGateway(), startLlmStub()]);
  other = await startGateway({ sharedWith: { dataDir: gateway.dataDir, adminKey: gateway.adminKey } });
  tenant = await gateway.newTenant();
  await tenant.addProvider(llm.url);
  for (const name of ["Alpha", "Beta", "Gamma", "VCPTavern"]) await addPreprocessor(name, marking(name));
  await tenant.client.post("/v1/vcp/variables", {
    kind: "var",
    name: "VarMood",
    content: "cheerful {{VCPTavern::late}}",
  });
  await tenant.client.expect("put", "/v1/vcp/presets/stage", {
    rules: [
      { type: "embed", target: "system", position: "after", content: "Be {{VarMood}}." },
      {
        type: "relative",
        target: "last_user",
        position: "before",
        content: { role: "hidden", content: "WHISPER {{VarMood}}" },
      },
    ],
  });
  await tenant.client.expect("put", "/v1/vcp/presets/late", { rules: [{ type: "embed", content: "TOO LATE" }] });
});

afterAll(async () => {
  await other.close();
  await Promise.all([gateway.close(), llm.close()]);
});

beforeEach(() => {
  llm.requests.length = 0;
  llm.script(text("fine"));
});

const png = "iVBORw0KGgoAAAAA";
const messages = [
  { role: "system", content: "Perform. {{VCPTavern::stage}}" },
  {
    role: "user",
    content: [
      { type: "text", text: "look" },
      { type: "image_url", image_url: { url: png } },
    ],
  },
  { role: "user", content: "<<<[ROLE_DIVIDE_ASSISTANT]>>>Yes<<<[END_ROLE_DIVIDE_ASSISTANT]>>> go on" },
];

async function given(client = tenant.client, more: Json = {}): Promise<Json[]> {
  await client.post("/v1/chat/completions", { messages, tool_protocol: "vcp", ...more });
  return (llm.requests.at(-1) as Json).messages;
}

const marksOf = (sent: readonly Json[]): string[] =>
  String(sent[0].content)
    .match(/\[\w+ saw/g)
    ?.map((mark) => mark.slice(1, -4)) ?? [];

describe(`the pipeline ${verifies("VCP-8", "VCP-6")}`, () => {
  test("runs the Tavern, variables, media, the other preprocessors and the role divider, in this order", async () => {
    const sent = await given();
    // The variable stands in what the Tavern has put in, and what it brings is not the Tavern's any more. Each
    // preprocessor sees the finished picture and the undivided message, and not what is hidden.
    const seen = "saw 3 and a picture";
    expect(sent[0].content).toBe(
      `Perform.\n\nBe cheerful {{VCPTavern::late}}. [Alpha ${seen}] [Beta ${seen}] [Gamma ${seen}]`,
    );
    expect(sent.slice(1)).toEqual([
      {
        role: "user",
        content: [
          { type: "text", text: "look" },
          { type: "image_url", image_url: { url: `data:image/png;base64,${png}` } },
        ],
      },
      { role: "system", content: "WHISPER cheerful {{VCPTavern::late}}" },
      { role: "assistant", content: "Yes" },
      { role: "user", content: "go on" },
    ]);
  });

  test("leaves pictures as they are where the system says so", async () => {
    const shown = [{ role: "system", content: "x {{ShowBase64}}" }, messages[1]];
    const sent = await given(tenant.client, { messages: shown });
    expect(sent[1].content[1]).toEqual({ type: "image_url", image_url: { url: png } });
    expect(sent[0].content).toMatch(/^x \[Alpha/);
  });

  test("applies to chats that speak VCP, unless the tenant wants it for all", async () => {
    const plain = await given(tenant.client, { tool_protocol: "openai" });
    expect(plain).toEqual(messages);
    await tenant.client.expect("patch", "/v1/settings", { message_pipeline: "all" });
    expect(marksOf(await given(tenant.client, { tool_protocol: "openai" }))).toEqual(["Alpha", "Beta", "Gamma"]);
    await tenant.client.expect("patch", "/v1/settings", { message_pipeline: null });
  });

  test("tells preprocessors what the request has for them, and the back end nothing of it", async () => {
    const own = await gateway.newTenant({ tool_protocol: "vcp" });
    await own.addProvider(llm.url);
    const script = `module.exports = { processMessages: (m, config) => [...m, { role: "user", content: config.vcpchatExtensions.room }] };`;
    await importVcp(own.client, {
      name: "Rooms",
      manifest: {
        pluginType: "messagePreprocessor",
        entryPoint: { script: "index.js" },
        communication: { protocol: "direct" },
      },
      files: { "index.js": script },
    });
    const sent = await given(own.client, { vcpchatExtensions: { room: "attic" } });
    expect(sent.at(-1)?.content).toBe("attic");
    expect(llm.requests.at(-1)).not.toHaveProperty("vcpchatExtensions");
  });

  test("goes on with what it had where a preprocessor fails, and says so", async () => {
    const another = await gateway.newTenant({ tool_protocol: "vcp" });
    await another.addProvider(llm.url);
    await addPreprocessor("Breaks", "module.exports = { processMessages() { throw new Error('no luck'); } };", another);
    await addPreprocessor("Works", marking("Works"), another);
    expect(marksOf(await given(another.client))).toEqual(["Works"]);
    expect(gateway.logged.some(({ fields }) => JSON.stringify(fields).includes("no luck"))).toBe(true);
  });
});

test(`what is put in counts against budgets before the model is asked ${verifies("VCP-8")}`, async () => {
  const bounded = await gateway.newTenant({ tool_protocol: "vcp", reserve_tokens: 10 });
  await bounded.addProvider(llm.url);
  await bounded.client.post("/v1/budgets", { name: "all", scope: "tenant", period: "total", limit_tokens: 500 });
  const asks = [{ role: "system", content: "{{VCPTavern::lore}}" }, messages[2]];
  for (const [length, status] of [
    [400, 200],
    [4_000, 422],
  ]) {
    const rules = [{ type: "embed", content: "x".repeat(length ?? 0) }];
    await bounded.client.expect("put", "/v1/vcp/presets/lore", { rules });
    const reply = await bounded.client.send("post", "/v1/chat/completions", { messages: asks });
    expect(reply.status, reply.text).toBe(status);
    expect(reply.json.error?.code).toBe(status === 200 ? undefined : "cost_exceeded");
  }
  expect(llm.requests).toHaveLength(1);
});

describe(`the order of preprocessors ${verifies("VCP-6", "VCP-24")}`, () => {
  const order = (names: Json, client = tenant.client): Promise<Json> =>
    client.send("post", "/admin_api/preprocessors/order", { order: names });

  test("is what was said, for every instance from the next request on", async () => {
    const changed = await order(["Gamma", "ImageProcessor", "Alpha"]);
    expect(changed.json).toEqual({
      status: "success",
      message: "Order saved successfully.",
      newOrder: ["Gamma", "Alpha", "Beta"].map((name) => expect.objectContaining({ name, displayName: name })),
    });
    expect(marksOf(await given(other.client(tenant.key)))).toEqual(["Gamma", "Alpha", "Beta"]);
    const read = await other.client(tenant.key).get("/admin_api/preprocessors/order");
    expect(read.order.map(({ name }: Json) => name)).toEqual(["Gamma", "Alpha", "Beta"]);
    expect((await tenant.client.get("/v1/settings")).preprocessor_order).toEqual(["Gamma", "ImageProcessor", "Alpha"]);
  });

  test.each([
    ["is unknown", ["Alpha", "Nobody"], { unknown: ["Nobody"], repeated: [] }],
    ["is named twice", ["Alpha", "Beta", "Alpha"], { unknown: [], repeated: ["Alpha"] }],
  ])("is refused and stays where one %s, by either route", async (_what, names, told) => {
    await order(["Beta"]);
    for (const reply of [
      await order(names),
      await tenant.client.send("patch", "/v1/settings", { preprocessor_order: names, rounds: 3 }),
    ]) {
      expect(reply.status).toBe(400);
      expect(reply.json.error).toMatchObject({ code: "invalid_request", param: "preprocessor_order", ...told });
    }
    expect(gateway.logged.some(({ message }) => message === "order of preprocessors refused")).toBe(true);
    expect(marksOf(await given())).toEqual(["Beta", "Alpha", "Gamma"]);
    expect((await tenant.client.get("/v1/settings")).rounds).toBe(10);
  });

  test("needs the scope to manage", async () => {
    const member = await tenant.newKey();
    expect((await order(["Alpha"], member.client)).status).toBe(403);
  });
});
