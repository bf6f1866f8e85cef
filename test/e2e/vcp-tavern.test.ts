/** The Tavern: presets, world books and characters in front of a model that shows what it was given. */
import { crc32 } from "node:zlib";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
/** A second instance at the same database. */
let other: Gateway;
let llm: LlmStub;
let tenant: TestTenant;

beforeAll(async () => {
  [gateway, llm] = await Promise.all([startGateway(), startLlmStub()]);
  other = await startGateway({ sharedWith: { dataDir: gateway.dataDir, adminKey: gateway.adminKey } });
  tenant = await gateway.newTenant({ message_pipeline: "all" });
  await tenant.addProvider(llm.url);
});

afterAll(async () => {
  await other.close();
  await Promise.all([gateway.close(), llm.close()]);
});

beforeEach(() => {
  llm.requests.length = 0;
  llm.script(text("fine"));
});

const put = (path: string, body: Json): Promise<Json> => tenant.client.expect("put", `/v1/vcp/${path}`, body);

async function sent(messages: Json, client = tenant.client, more: Json = {}): Promise<string[]> {
  const answer = await client.post("/v1/chat/completions", { messages, ...more });
  expect(answer.choices[0].message.content).toBe("fine");
  return given();
}

/** What the model was given last, a line a message. */
function given(): string[] {
  const request = llm.requests.at(-1) as Json;
  return request.messages.map(({ role, content }: Json) => `${role}: ${content}`);
}

const talk = [
  { role: "system", content: "You help. {{VCPTavern::play::s1::blacklist:noisy, loud}}" },
  { role: "user", content: "Hello" },
  { role: "assistant", content: "Hi" },
  { role: "user", content: "Is the harbour frozen?" },
];

describe(`a preset ${verifies("VCP-9", "VCP-8")}`, () => {
  test("embeds, then puts messages beside others, then by depth, the deepest first", async () => {
    await put("presets/play", {
      rules: [
        { type: "depth", depth: 1, content: "depth one" },
        { type: "depth", depth: 3, content: { role: "assistant", content: "depth three" } },
        { type: "relative", target: "all_user", position: "before", content: { role: "user", content: "beside" } },
        { type: "relative", target: "system", position: "after", content: "after system" },
        { type: "embed", target: "system", position: "before", content: "embedded" },
        { type: "embed", target: "last_user", position: "after", content: "asked politely" },
        { name: "noisy", type: "embed", target: "system", position: "after", content: "LOUD" },
        { enabled: false, type: "embed", target: "system", position: "after", content: "OFF" },
      ],
    });
    expect(await sent(talk)).toEqual([
      "system: embedded\n\nYou help.",
      "system: after system",
      "user: beside",
      "user: Hello",
      "assistant: depth three",
      "assistant: Hi",
      "user: beside",
      "system: depth one",
      "user: Is the harbour frozen?\n\nasked politely",
    ]);
  });

  test("knows the date, for whomever its rules speak", async () => {
    const content = { role: "user", content: "On {{Date}}." };
    await put("presets/play", { rules: [{ type: "relative", target: "system", content }] });
    expect((await sent(talk))[1]).toMatch(/^user: On \d{4}\/\d{1,2}\/\d{1,2}\.$/);
  });

  test("knows when the caller's last chat was: in the session, in one that it names, or in any", async () => {
    const own = await gateway.newTenant({ message_pipeline: "all", time_zone: "UTC" });
    await own.addProvider(llm.url);
    const content = { role: "user", content: "Last: {{LastChatTime}}, {{TimeSinceLastChat}} ago." };
    await own.client.expect("put", "/v1/vcp/presets/play", {
      rules: [{ type: "relative", target: "system", content }],
    });
    const ask = async (client = own.client, more: Json = {}, mark = "play"): Promise<string | undefined> =>
      (await sent([{ role: "system", content: `Be. {{VCPTavern::${mark}}}` }, talk[1]], client, more))[1];
    const first = "user: Last: 首次对话, 首次对话 ago.";
    const again = /^user: Last: \d{4}\/\d{1,2}\/\d{1,2} \d\d:\d\d:\d\d, 不到1分钟 ago\.$/;
    expect(await ask()).toBe(first);
    expect(await ask(other.client(own.key)), "at another instance").toMatch(again);
    expect(await ask(own.client, { session_id: "evening" })).toBe(first);
    expect(await ask(own.client, { session_id: "evening" })).toMatch(again);
    expect(await ask(own.client, { session_id: "morning" })).toBe(first);
    expect(await ask(own.client, { session_id: "noon" }, "play::evening::blacklist:none")).toMatch(again);
    const { client: somebodyElse } = await own.newKey({ scopes: ["chat"] });
    expect(await ask(somebodyElse)).toBe(first);
    expect(await ask(somebodyElse, {}, "play::evening")).toBe(first);
  });

  test("knows when the caller's last chat was where each has a session of its own, since it is offered tools", async () => {
    const own = await gateway.newTenant({ message_pipeline: "all" });
    await own.addProvider(llm.url);
    await own.addPlugin({
      schema_version: "v1",
      name: "look",
      description: "Looks.",
      parameters: { type: "object", properties: {} },
      execution: { method: "GET", base_url: "http://127.0.0.1:9/look", param_placement: "query" },
    });
    const content = { role: "user", content: "Last: {{LastChatTime}}." };
    await own.client.expect("put", "/v1/vcp/presets/play", {
      rules: [{ type: "relative", target: "system", content }],
    });
    const asks = [{ role: "system", content: "Be. {{VCPTavern::play}}" }, talk[1]];
    expect((await sent(asks, own.client))[1]).toBe("user: Last: 首次对话.");
    expect((await sent(asks, own.client))[1]).toMatch(/^user: Last: \d{4}\//);
  });

  test("is seen by another instance at its next request", async () => {
    await put("presets/play", { rules: [{ type: "embed", content: "first" }] });
    expect((await sent(talk, other.client(tenant.key)))[0]).toBe("system: You help.\n\nfirst");
    await put("presets/play", { rules: [{ type: "embed", content: "second" }] });
    expect((await sent(talk, other.client(tenant.key)))[0]).toBe("system: You help.\n\nsecond");
    await tenant.client.expect("delete", "/v1/vcp/presets/play");
    expect((await sent(talk, other.client(tenant.key)))[0]).toBe("system: You help.");
    expect(other.logged).toContainEqual(
      expect.objectContaining({
        message: "tavern left something out",
        fields: expect.objectContaining({ reason: "there is no preset 'play'" }),
      }),
    );
  });

  test("is asked for by the system message alone, and by no other tenant", async () => {
    await put("presets/play", { rules: [{ type: "embed", content: "OURS" }] });
    const asked = [{ role: "user", content: "{{VCPTavern::play}}" }];
    expect(await sent(asked)).toEqual(["user: {{VCPTavern::play}}"]);
    const stranger = await gateway.newTenant({ message_pipeline: "all" });
    await stranger.addProvider(llm.url);
    expect(await sent(talk, stranger.client)).not.toContainEqual(expect.stringContaining("OURS"));
  });

  test("changes nothing in chats that the pipeline does not apply to", async () => {
    const plain = await gateway.newTenant();
    await plain.addProvider(llm.url);
    await plain.client.expect("put", "/v1/vcp/presets/play", { rules: [{ type: "embed", content: "OURS" }] });
    expect((await sent(talk, plain.client))[0]).toBe(`system: ${talk[0]?.content}`);
  });
});

describe(`a world book ${verifies("VCP-9")}`, () => {
  const asks = (about: string): Json => [
    { role: "system", content: "{{VCPTavern::lore}}" },
    { role: "user", content: about },
  ];

  test("comes up by words, by patterns, and by what came up before", async () => {
    await put("presets/lore", { world_books: ["north"] });
    await put("world_books/north", {
      recursive: true,
      whole_words: true,
      entries: [
        { keys: ["ice"], content: "Ice is measured by the harbour master.", order: 2 },
        { keys: ["harbour master"], content: "The harbour master is called Lund.", order: 1 },
        { keys: ["/fro(st|zen)\\b/i"], secondary_keys: ["sea"], content: "The sea freezes in January.", order: 3 },
        { keys: ["港口"], content: "港口在北方。", order: 4 },
        { content: "It is always dark.", constant: true, order: 0, position: "at_depth", depth: 0, role: "user" },
      ],
    });
    expect(await sent(asks("How thick is the ice?"))).toEqual([
      "system: The harbour master is called Lund.",
      "system: Ice is measured by the harbour master.",
      "user: How thick is the ice?",
      "user: It is always dark.",
    ]);
    expect(await sent(asks("What a nice price"))).toEqual(["user: What a nice price", "user: It is always dark."]);
    expect(await sent(asks("Frozen sea"))).toContain("system: The sea freezes in January.");
    expect(await sent(asks("Frozen lake"))).not.toContain("system: The sea freezes in January.");
    expect(await sent(asks("请问港口在哪里"))).toContain("system: 港口在北方。");
  });

  test("refuses a pattern that cannot be used, and keeps what it was", async () => {
    const refused = await tenant.client.send("put", "/v1/vcp/world_books/north", {
      entries: [
        { keys: ["ok"], content: "x" },
        { keys: ["/(?<=a)b/"], content: "y" },
      ],
    });
    expect(refused.status).toBe(400);
    expect(refused.json.error).toMatchObject({ code: "invalid_definition", param: "entries[1].keys" });
    const { content } = await tenant.client.get("/v1/vcp/world_books/north");
    expect(content.entries).toHaveLength(5);
  });

  test("of SillyTavern is imported, with notes on what has no place here", async () => {
    const book = {
      entries: {
        0: {
          uid: 0,
          key: ["tower"],
          keysecondary: [],
          comment: "Tower",
          content: "The tower leans.",
          order: 10,
          position: 1,
        },
        1: {
          uid: 1,
          key: ["/(?=x)/", "well"],
          content: "The well is dry.",
          position: 4,
          depth: 0,
          role: 0,
          group: "w",
        },
        2: { uid: 2, key: ["gate"], content: "off", disable: true },
      },
    };
    const stored = await tenant.client.expect("post", "/v1/vcp/world_books/import?name=imported", undefined, {
      raw: JSON.stringify(book),
      headers: { "content-type": "application/json" },
    });
    expect(stored.notes).toEqual([
      expect.stringContaining("'group' is not used"),
      expect.stringContaining("the key '/(?=x)/' was left out"),
    ]);
    await put("presets/lore", { world_books: ["imported"] });
    expect(await sent(asks("tower, well and gate"))).toEqual([
      "system: The tower leans.",
      "user: tower, well and gate",
      "system: The well is dry.",
    ]);
  });
});

describe(`a name ${verifies("VCP-9")}`, () => {
  test.each(["presets", "world_books", "characters"])(
    "of %s that nothing could say is refused by name",
    async (kind) => {
      const body = kind === "characters" ? { name: "Ada" } : {};
      expect(await tenant.client.send("put", `/v1/vcp/${kind}/a%7Bb`, body)).toMatchObject({
        status: 400,
        json: {
          error: {
            param: "name",
            message: "Path field 'name' may hold neither braces, colons, slashes nor control characters.",
          },
        },
      });
    },
  );
});

describe(`a character ${verifies("VCP-9")}`, () => {
  const card = {
    spec: "chara_card_v2",
    spec_version: "2.0",
    data: {
      name: "Ada",
      description: "{{char}} is a pilot who trusts {{user}}.",
      personality: "calm",
      scenario: "",
      first_mes: "Hello!",
      mes_example: "<START>",
      post_history_instructions: "Stay in role.",
      character_book: {
        entries: [{ keys: ["engine"], content: "<BOT>'s engine is old.", enabled: true, insertion_order: 1 }],
      },
    },
  };

  function picture(json: string): Uint8Array<ArrayBuffer> {
    const chunk = (type: string, data: Buffer): Buffer => {
      const named = Buffer.concat([Buffer.from(type, "latin1"), data]);
      const frame = Buffer.alloc(8);
      frame.writeUInt32BE(data.length, 0);
      frame.writeUInt32BE(crc32(named), 4);
      return Buffer.concat([frame.subarray(0, 4), named, frame.subarray(4)]);
    };
    const text64 = Buffer.from(`chara\0${Buffer.from(json).toString("base64")}`, "latin1");
    return new Uint8Array(
      Buffer.concat([
        Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]),
        chunk("IHDR", Buffer.alloc(13)),
        chunk("tEXt", text64),
        chunk("IEND", Buffer.alloc(0)),
      ]),
    );
  }

  test("is read from a picture, played under its name, and brings its own world book", async () => {
    const imported = await tenant.client.expect("post", "/v1/vcp/characters/import?name=pilot", undefined, {
      raw: picture(JSON.stringify(card)),
      headers: { "content-type": "image/png" },
    });
    expect(imported).toMatchObject({ object: "vcp.character", name: "pilot", notes: [] });
    await put("presets/fly", { character: "pilot", user_name: "Kim" });
    const messages = [
      { role: "system", content: "Play.\n{{VCPTavern::fly}}" },
      { role: "user", content: "How is the engine?" },
    ];
    expect(await sent(messages)).toEqual([
      "system: Play.",
      "system: Ada's engine is old.",
      "system: Ada is a pilot who trusts Kim.\n\ncalm",
      "user: How is the engine?",
      "system: Stay in role.",
    ]);
  });

  test.each([
    ["a text", new TextEncoder().encode("hello")],
    ["a picture that is cut off", picture("{}").slice(0, 60)],
    ["a picture whose text is damaged", picture("{}").with(50, 0x21)],
    ["a card without a name", new TextEncoder().encode('{"data":{"description":"x"}}')],
  ])("is refused as %s", async (_what, bytes) => {
    const reply = await tenant.client.send("post", "/v1/vcp/characters/import?name=bad", undefined, {
      raw: new Uint8Array(bytes),
      headers: { "content-type": "application/octet-stream" },
    });
    expect(reply.status).toBe(400);
    expect(reply.json.error.code).toBe("invalid_definition");
  });

  test("is refused as a picture that is none, although it could be a card", async () => {
    const reply = await tenant.client.send("post", "/v1/vcp/characters/import?name=bad", undefined, {
      raw: new TextEncoder().encode('{"name":"a flow","nodes":{}}'),
      headers: { "content-type": "image/png" },
    });
    expect(reply.json.error).toMatchObject({ code: "invalid_definition", param: "body" });
    expect(reply.json.error.message).toContain("no PNG");
  });
});

describe(`what is hidden ${verifies("VCP-9")}`, () => {
  test("goes to the model as a system message, and to nobody else", async () => {
    const secret = "THE BUTLER DID IT";
    await put("presets/crime", {
      rules: [
        { type: "relative", target: "system", position: "after", content: { role: "hidden", content: secret } },
        { type: "embed", target: "last_user", position: "after", content: { role: "hidden", content: secret } },
      ],
    });
    const messages = [
      { role: "system", content: "Narrate. {{VCPTavern::crime}}" },
      { role: "user", content: "Who was it?" },
    ];
    const session = "hidden-1";
    const reply = await tenant.client.send("post", "/v1/chat/completions", { messages, session_id: session });
    expect(given()).toEqual(["system: Narrate.", `system: ${secret}`, "user: Who was it?", `system: ${secret}`]);
    expect(reply.text).not.toContain(secret);
    const call = await tenant.client.get(`/v1/calls/${reply.headers.get("x-toolyard-call-id")}`);
    const list = await tenant.client.send("get", "/v1/calls?limit=100");
    for (const seen of [JSON.stringify(call), list.text, JSON.stringify(gateway.logged)]) {
      expect(seen).not.toContain(secret);
    }
  });
});
