/** Pictures that tools give, and the model that is to see them: as pictures, never as text (CHAT-5, MCP-3). */
import { setTimeout as sleep } from "node:timers/promises";
import { newId } from "@toolyard/core/ids";
import { openDatabase } from "@toolyard/db/client";
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { readingTool, writingTool } from "../support/http-tools.ts";
import { calls, startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { anyTool, startMcpStub, type McpStub } from "../support/mcp-stub.ts";
import { verifies } from "../support/verifies.ts";

const png = (bytes = 64): Buffer => {
  const file = Buffer.alloc(bytes, 7);
  file.set(Buffer.from("\x89PNG\r\n\x1a\n", "latin1"));
  return file;
};
const urlOf = (picture: Buffer): string => `data:image/png;base64,${picture.toString("base64")}`;
const user = (content: string): Json => ({ role: "user", content });

let gateway: Gateway;
let llm: LlmStub;
let backEnd: HttpStub;
let mcp: McpStub;
let tenant: TestTenant;
beforeAll(async () => {
  [gateway, llm, backEnd, mcp] = await Promise.all([startGateway(), startLlmStub(), startHttpStub(), startMcpStub()]);
});
afterAll(() => Promise.all([gateway.close(), llm.close(), backEnd.close(), mcp.close()]));
beforeEach(async () => {
  llm.requests.length = 0;
  mcp.tools = [anyTool("shoot")];
  tenant = await gateway.newTenant();
  await tenant.addProvider(llm.url);
  await tenant.addPlugin(readingTool(backEnd, "draw"));
  await tenant.client.post("/v1/tool-services", { scheme: "mcp", service_id: "screen", config: { url: mcp.url } });
});

const chat = (body: Json = {}): Promise<Json> =>
  tenant.client.post("/v1/chat/completions", { messages: [user("look")], ...body });
const draws = (picture: Buffer, type = "image/png"): void => {
  backEnd.answer = () => ({ headers: { "content-type": type }, body: picture });
};
const drawing = (id = "up_1"): ReturnType<typeof calls> => calls({ id, name: "draw", arguments: { q: id } });
const sent = (at: number): Json[] => llm.requests[at]?.["messages"] as Json[];
const picturesIn = (messages: readonly Json[]): readonly string[] =>
  messages.flatMap(({ content }) =>
    Array.isArray(content) ? content.flatMap(({ image_url: image }) => image?.url ?? []) : [],
  );

describe(`pictures of results ${verifies("CHAT-5", "MCP-3")}`, () => {
  test("follow the results of their turn, as pictures and named", async () => {
    draws(png());
    mcp.onCall = () => ({
      content: [
        { type: "text", text: "two views" },
        { type: "image", data: png(80).toString("base64"), mimeType: "image/png" },
        {
          type: "resource",
          resource: { uri: "file:///b.png", mimeType: "image/png", blob: png(90).toString("base64") },
        },
      ],
    });
    const { data } = await tenant.client.get("/v1/tools");
    const shoot = data.find(({ uri }: Json) => uri === "mcp://screen/shoot").name;
    llm.script(
      calls({ id: "up_1", name: "draw", arguments: { q: "x" } }, { id: "up_2", name: shoot, arguments: {} }),
      text("seen"),
    );
    const { choices } = await chat();
    expect(choices[0].message.content).toBe("seen");
    const [, , drawn, shot, shown] = sent(1);
    expect([drawn.role, drawn.tool_call_id, shot.role, shot.tool_call_id]).toEqual(["tool", "up_1", "tool", "up_2"]);
    expect(drawn.content).toMatch(/^\[binary result: image\/png, 64 bytes;/);
    expect(shot.content).toMatch(/^two views\n\[image: image\/png, 80 bytes\]\n/);
    expect(shown.role).toBe("user");
    expect(shown.content[0].text).toContain("not words of the user");
    expect(shown.content.slice(1).map((part: Json) => part.text ?? part.image_url.url)).toEqual([
      expect.stringMatching(/^'draw', call call_\w+, image\/png, 64 bytes:$/),
      urlOf(png()),
      expect.stringContaining(`'${shoot}', call call_`),
      urlOf(png(80)),
      expect.stringContaining("90 bytes"),
      urlOf(png(90)),
    ]);
  });

  test("are what their first bytes say; what is none that models take stays words", async () => {
    llm.script(drawing(), text("seen"));
    draws(png(), "image/jpeg");
    await chat();
    expect(picturesIn(sent(1))).toEqual([urlOf(png())]);
    llm.script(drawing(), text("not seen"));
    draws(Buffer.from("<svg/>"), "image/svg+xml");
    await chat();
    expect(sent(3).map(({ role }) => role)).toEqual(["user", "assistant", "tool"]);
  });

  test.each([
    ["400", 400, "messages[3].content[1]: unknown variant `image_url`, expected `text`"],
    ["500, as llama.cpp has it", 500, "image input is not supported - hint: provide the mmproj"],
  ])("are left out for the rest of the chat where the model has no eyes (%s)", async (_how, status, message) => {
    draws(png());
    llm.respond((body) => {
      const messages = body["messages"] as Json[];
      if (picturesIn(messages).length > 0)
        return { status, json: { error: { message, type: "invalid_request_error" } } };
      const rounds = messages.filter(({ role }) => role === "tool").length;
      return rounds === 2 ? text("blind") : drawing(`up_${rounds}`);
    });
    const { choices } = await chat();
    expect(choices[0].message.content).toBe("blind");
    const asked = llm.requests.map((_request, at) => picturesIn(sent(at)).length);
    expect(asked.filter((count) => count > 0).every((count) => count === 1)).toBe(true);
    expect(asked.slice(-2)).toEqual([0, 0]);
    expect(sent(llm.requests.length - 1).map(({ role }) => role)).toEqual([
      "user",
      "assistant",
      "tool",
      "assistant",
      "tool",
    ]);
  });

  test("are not shown to models of tenants that do not want it", async () => {
    await tenant.client.expect("patch", "/v1/settings", { show_result_pictures: false });
    draws(png());
    llm.script(drawing(), text("words"));
    await chat();
    expect(sent(1).map(({ role }) => role)).toEqual(["user", "assistant", "tool"]);
  });

  test("are on the bill of their calls as they are on that of the chat, where they are shown", async () => {
    mcp.onCall = () => ({
      content: [png(70), png(80)].map((picture) => ({
        type: "image",
        data: picture.toString("base64"),
        mimeType: "image/png",
      })),
    });
    const { data } = await tenant.client.get("/v1/tools");
    const shoot = data.find(({ uri }: Json) => uri === "mcp://screen/shoot").name;
    const asked = [
      { id: "up_1", name: "draw", arguments: { q: "x" } },
      { id: "up_2", name: shoot, arguments: {} },
    ];
    const costs = async (): Promise<readonly number[]> => {
      const before = new Set((await tenant.client.get("/v1/calls?kind=tool")).data.map(({ id }: Json) => id));
      llm.script(calls(...asked), text("seen"));
      await chat();
      const { data: made } = await tenant.client.get("/v1/calls?kind=tool");
      const fresh = made.filter(({ id }: Json) => !before.has(id));
      const whole = await Promise.all(fresh.map(({ id }: Json) => tenant.client.get(`/v1/calls/${id}`)));
      const tokens = (isDrawn: boolean): number =>
        whole.find(({ tool }) => (tool === "draw") === isDrawn).cost.context_tokens;
      return [tokens(true), tokens(false)];
    };
    draws(png());
    const shown = await costs();
    await tenant.client.expect("patch", "/v1/settings", { show_result_pictures: false });
    const [drawn = 0, shot = 0] = await costs();
    expect(shown).toEqual([drawn + 1_000, shot + 2_000]);
  });

  test("make room for newer ones, and one that is too large is not shown", async () => {
    await tenant.client.expect("patch", "/v1/settings", { result_max_bytes: 20_000_000 });
    const sizes = [3_000_000, 3_500_000, 3_900_000, 4_000_000];
    let drawn = 0;
    backEnd.answer = () => ({ headers: { "content-type": "image/png" }, body: png(sizes[drawn++] ?? 64) });
    llm.script(...sizes.map((_size, at) => drawing(`up_${at}`)), text("seen"));
    await chat();
    const lengths = (at: number): readonly number[] =>
      picturesIn(sent(at)).map((url) => Buffer.from(url.slice(url.indexOf(",")), "base64").byteLength);
    expect(lengths(2)).toEqual([3_000_000, 3_500_000]);
    expect(lengths(4)).toEqual([3_500_000, 3_900_000]);
    expect(sent(4)[3].content).toContain("newer ones take their room");
  });

  test("are there again where a turn with calls of the client goes on, on another instance, and are not kept with it", async () => {
    draws(png());
    const click = { type: "function", function: { name: "click", parameters: { type: "object", properties: {} } } };
    llm.script(
      drawing("up_0"),
      calls({ id: "up_1", name: "click", arguments: {} }, { id: "up_2", name: "draw", arguments: { q: "y" } }),
      text("clicked"),
    );
    const first = await chat({ tools: [click] });
    const { message } = first.choices[0];
    const other = await startGateway({ sharedWith: gateway });
    try {
      const result = { role: "tool", tool_call_id: message.tool_calls[0].id, content: "done" };
      const messages = [user("look"), message, result];
      const second = await other.client(tenant.key).post("/v1/chat/completions", { messages, tools: [click] });
      expect(second.choices[0].message.content).toBe("clicked");
    } finally {
      await other.close();
    }
    expect(sent(2).map(({ role }) => role)).toEqual([
      "user",
      "assistant",
      "tool",
      "user",
      "assistant",
      "tool",
      "tool",
      "user",
    ]);
    expect(picturesIn(sent(2))).toEqual([urlOf(png()), urlOf(png())]);
  });

  test("are shown to models that ask in text, too", async () => {
    await tenant.client.expect("patch", "/v1/settings", { tool_protocol: "vcp" });
    draws(png());
    const request = "<<<[TOOL_REQUEST]>>>\ntool_name:「始」draw「末」,\nq:「始」x「末」\n<<<[END_TOOL_REQUEST]>>>";
    llm.script(text(request), text("seen"));
    await chat();
    expect(sent(1).map(({ role }) => role)).toEqual(["user", "assistant", "user", "user"]);
    expect(picturesIn(sent(1))).toEqual([urlOf(png())]);
  });

  test("are not among what a tool is told of the conversation", async () => {
    await tenant.client.expect("patch", "/v1/settings", { tool_protocol: "vcp" });
    await tenant.addPlugin({
      ...writingTool(backEnd, "note"),
      parameters: { type: "object", properties: { river_context: { type: "array" } } },
    });
    draws(png());
    const asks = (tool: string, more: string): string =>
      `<<<[TOOL_REQUEST]>>>\ntool_name:「始」${tool}「末」,\n${more}\n<<<[END_TOOL_REQUEST]>>>`;
    llm.script(text(asks("draw", "q:「始」x「末」")), text(asks("note", "river:「始」full「末」")), text("noted"));
    backEnd.requests.length = 0;
    await chat();
    const { river_context: told } = JSON.parse(String(backEnd.requests[1]?.body));
    expect(told.map(({ role }: Json) => role)).toEqual(["user", "assistant", "user"]);
    expect(picturesIn(told)).toEqual([]);
  });

  test("are no reason to fail where a back end takes no message of the user behind results", async () => {
    draws(png());
    llm.respond((body) => {
      const roles = (body["messages"] as Json[]).map(({ role }) => role);
      if (roles.some((role, at) => role === "user" && roles[at - 1] === "tool"))
        return { status: 400, json: { error: { message: "Unexpected role 'user' after role 'tool'" } } };
      return roles.includes("tool") ? text("done") : drawing();
    });
    const { choices } = await chat();
    expect(choices[0].message.content).toBe("done");
    expect(sent(2).map(({ role }) => role)).toEqual(["user", "assistant", "tool"]);
  });

  test("are no question that the built-in model would answer anew", async () => {
    const plain = await gateway.newTenant();
    await plain.addPlugin(readingTool(backEnd, "draw"));
    draws(png());
    backEnd.requests.length = 0;
    const { choices } = await plain.client.post("/v1/chat/completions", {
      messages: [user('Call draw with {"q": "x"}')],
    });
    expect(choices[0].message.content).toContain("[binary result: image/png");
    expect(backEnd.requests).toHaveLength(1);
  });

  describe("of turns that are kept", () => {
    const click = { type: "function", function: { name: "click", parameters: { type: "object", properties: {} } } };
    /** A turn of both; the conversation with the client's result behind it. */
    const afterTurn = async (before: readonly Json[], more: Json = {}): Promise<readonly Json[]> => {
      llm.script(
        calls({ id: "up_1", name: "click", arguments: {} }, { id: "up_2", name: "draw", arguments: { q: "y" } }),
      );
      const { choices } = await chat({ messages: before, tools: [click], ...more });
      const { message } = choices[0];
      return [...before, message, { role: "tool", tool_call_id: message.tool_calls[0].id, content: "done" }];
    };
    const goOn = (messages: readonly Json[]): Promise<Json> => chat({ messages, tools: [click] });
    const last = (): number => llm.requests.length - 1;

    test("are no more than are sent of a chat, and none where they are not wanted by now", async () => {
      await tenant.client.expect("patch", "/v1/settings", { result_max_bytes: 20_000_000 });
      draws(png(3_900_000));
      let messages: readonly Json[] = [user("look")];
      for (let turn = 0; turn < 3; turn += 1) messages = await afterTurn(messages);
      llm.script(text("seen"), text("not seen"));
      await goOn(messages);
      expect(picturesIn(sent(last()))).toHaveLength(2);
      await tenant.client.expect("patch", "/v1/settings", { show_result_pictures: false });
      await goOn(messages);
      expect(sent(last()).map(({ role }) => role)).toEqual([
        "user",
        ...Array(3).fill(["assistant", "tool", "tool"]).flat(),
      ]);
    });

    test("are left alone by the pipeline, and left out where they are refused", async () => {
      await tenant.client.expect("patch", "/v1/settings", { message_pipeline: "all", media_bytes: 1_024 });
      draws(png(2_048));
      const messages = await afterTurn([user("look")]);
      llm.script(text("seen"));
      await goOn(messages);
      expect(picturesIn(sent(last()))).toEqual([urlOf(png(2_048))]);
      llm.respond((body) => {
        const isBlind = picturesIn(body["messages"] as Json[]).length > 0;
        return isBlind ? { status: 400, json: { error: { message: "no eyes" } } } : text("blind");
      });
      const { choices } = await goOn(messages);
      expect(choices[0].message.content).toBe("blind");
    });
  });

  describe("of results that come late", () => {
    const mine = { type: "function", function: { name: "mine", parameters: { type: "object", properties: {} } } };
    const last = (): readonly Json[] => sent(llm.requests.length - 1);
    const rolesOf = (messages: readonly Json[]): readonly string[] => messages.map(({ role }) => role);
    let session: string;
    /** A person lets it draw when the answer has been given. */
    const drawLater = async (picture: Buffer, type?: string): Promise<void> => {
      draws(picture, type);
      llm.script(calls({ id: "up_1", name: "paint", arguments: { sku: `S${llm.requests.length}` } }));
      const { tool_execution: told } = await chat({ session_id: session });
      const [{ call_id: id }] = told.pending;
      await tenant.client.post(`/v1/calls/${id}/approve`);
      await expect.poll(async () => (await tenant.client.get(`/v1/calls/${id}`)).state).toBe("completed");
    };
    beforeEach(async () => {
      session = newId("session");
      await tenant.addPlugin({ ...writingTool(backEnd, "paint"), sensitive: true });
    });

    test("follow them, before the question", async () => {
      await drawLater(png());
      await drawLater(png(90));
      llm.script(text("seen"));
      await chat({ session_id: session });
      expect(rolesOf(last())).toEqual(["assistant", "tool", "tool", "user", "user"]);
      expect(picturesIn(last())).toEqual([urlOf(png()), urlOf(png(90))]);
      expect(last()[3].content[1].text).toMatch(/^'paint', call call_\w+, image\/png, 64 bytes:$/);
      await chat({ session_id: session });
      expect(rolesOf(last())).toEqual(["user"]);
    });

    test("are there with the turn that the client goes on with, on another instance, whatever has come since", async () => {
      await drawLater(png());
      llm.script(calls({ id: "up_2", name: "mine", arguments: {} }), text("done"));
      const { choices } = await chat({ session_id: session, tools: [mine] });
      const { message } = choices[0];
      const result = { role: "tool", tool_call_id: message.tool_calls[0].id, content: "ok" };
      const messages = [user("look"), message, result];
      await drawLater(png(90));
      llm.script(text("done"));
      const other = await startGateway({ sharedWith: gateway });
      try {
        const body = { messages, tools: [mine], session_id: session };
        await other.client(tenant.key).post("/v1/chat/completions", body);
      } finally {
        await other.close();
      }
      const whole = [...Array(2).fill(["assistant", "tool", "user"]).flat(), "user", "assistant", "tool"];
      expect(rolesOf(last())).toEqual(whole);
      expect(picturesIn(last())).toEqual([urlOf(png()), urlOf(png(90))]);
    });

    test("go alone where they are refused, in the turns after it, too, and the words stay", async () => {
      await drawLater(png());
      const rounds = [calls({ id: "up_2", name: "mine", arguments: {} }), text("done")];
      llm.respond((body) => {
        const isBlind = picturesIn(body["messages"] as Json[]).length > 0;
        return isBlind ? { status: 400, json: { error: { message: "no eyes" } } } : (rounds.shift() ?? text("ok"));
      });
      const { choices } = await chat({ session_id: session, tools: [mine] });
      const { message } = choices[0];
      expect(rolesOf(last())).toEqual(["assistant", "tool", "user"]);
      expect(last()[1].content).toMatch(/^\[binary result: image\/png/);
      const result = { role: "tool", tool_call_id: message.tool_calls[0].id, content: "ok" };
      const asked = llm.requests.length;
      await chat({ session_id: session, tools: [mine], messages: [user("look"), message, result] });
      expect(llm.requests).toHaveLength(asked + 1);
      expect(rolesOf(last())).toEqual(["assistant", "tool", "user", "assistant", "tool"]);
    });

    test("are read while the chat is held: a store that takes its time loses it to no other process", async () => {
      await drawLater(png());
      const timing = { leaseMs: 600, heartbeatMs: 100, cancelPollMs: 50 };
      const [slow, heir] = [
        await startGateway({ sharedWith: gateway, requestsOnly: true, timing }),
        await startGateway({ sharedWith: gateway, tickEveryMs: 50, timing }),
      ];
      const reading = Promise.withResolvers<void>();
      const read = slow.core.blobs.get.bind(slow.core.blobs);
      const blobs = vi.spyOn(slow.core.blobs, "get").mockImplementation(async (...asked) => {
        reading.resolve();
        await sleep(2_000);
        return read(...asked);
      });
      try {
        llm.script(text("seen"));
        const reply = slow.client(tenant.key).post("/v1/chat/completions", {
          messages: [user("look")],
          session_id: session,
        });
        await reading.promise;
        // Rows are looked for by others when it has been a while.
        const database = await openDatabase({ url: gateway.databaseUrl });
        const sql = "UPDATE calls SET sent_at = 0 WHERE tenant = ?1 AND kind = 'chat' AND state = 'running'";
        await database.batch([{ sql, args: [tenant.id] }]);
        await database.close();
        const { choices } = await reply;
        expect(choices[0].message.content).toBe("seen");
        expect(picturesIn(last())).toEqual([urlOf(png())]);
        const { data } = await tenant.client.get(`/v1/calls?session_id=${session}&kind=chat`);
        expect(data.map(({ state }: Json) => state)).toEqual(["completed", "completed"]);
      } finally {
        blobs.mockRestore();
        await Promise.all([slow.close(), heir.close()]);
      }
    });

    test("are not waited for any longer where the chat is cancelled meanwhile", async () => {
      await drawLater(png());
      const slow = await startGateway({ sharedWith: gateway, requestsOnly: true, timing: { cancelPollMs: 50 } });
      const reading = Promise.withResolvers<void>();
      const read = slow.core.blobs.get.bind(slow.core.blobs);
      const blobs = vi.spyOn(slow.core.blobs, "get").mockImplementation(async (...asked) => {
        reading.resolve();
        await sleep(1_000);
        return read(...asked);
      });
      try {
        const asked = llm.requests.length;
        const reply = slow.client(tenant.key).send("post", "/v1/chat/completions", {
          messages: [user("look")],
          session_id: session,
        });
        await reading.promise;
        const [running] = (await tenant.client.get("/v1/calls?state=running")).data;
        await tenant.client.post(`/v1/calls/${running.id}/cancel`);
        expect((await reply).json.error).toMatchObject({ code: "request_cancelled" });
        expect(llm.requests).toHaveLength(asked);
        // What came late is told by the session's next chat.
        blobs.mockRestore();
        llm.script(text("seen"));
        await chat({ session_id: session });
        expect(picturesIn(last())).toEqual([urlOf(png())]);
      } finally {
        blobs.mockRestore();
        await slow.close();
      }
    });

    test("are words where they are not wanted", async () => {
      await tenant.client.expect("patch", "/v1/settings", { show_result_pictures: false });
      await drawLater(png());
      llm.script(text("words"));
      await chat({ session_id: session });
      expect(rolesOf(last())).toEqual(["assistant", "tool", "user"]);
    });

    test("make room for newer ones", async () => {
      await tenant.client.expect("patch", "/v1/settings", { result_max_bytes: 20_000_000 });
      await drawLater(png(3_500_000));
      await drawLater(png(3_600_000));
      llm.script(drawing("up_9"), text("seen"));
      draws(png(3_700_000));
      await chat({ session_id: session });
      expect(picturesIn(sent(llm.requests.length - 2))).toHaveLength(2);
      expect(picturesIn(last())).toEqual([urlOf(png(3_700_000))]);
    });

    test("are shown to models that ask in text, and leave their words where they are refused", async () => {
      await tenant.client.expect("patch", "/v1/settings", { tool_protocol: "vcp" });
      draws(png());
      const request = "<<<[TOOL_REQUEST]>>>\ntool_name:「始」paint「末」,\nsku:「始」x「末」\n<<<[END_TOOL_REQUEST]>>>";
      llm.script(text(request));
      const { tool_execution: told } = await chat({ session_id: session });
      const [{ call_id: id }] = told.pending;
      await tenant.client.post(`/v1/calls/${id}/approve`);
      await expect.poll(async () => (await tenant.client.get(`/v1/calls/${id}`)).state).toBe("completed");
      llm.respond((body) => {
        const isBlind = picturesIn(body["messages"] as Json[]).length > 0;
        return isBlind ? { status: 400, json: { error: { message: "no eyes" } } } : text("blind");
      });
      const { choices } = await chat({ session_id: session });
      expect(choices[0].message.content).toBe("blind");
      const [before, after] = llm.requests.slice(-2).map((body) => body["messages"] as Json[]);
      expect(picturesIn(before ?? [])).toEqual([urlOf(png())]);
      expect(rolesOf(before ?? [])).toEqual(["user", "user", "user"]);
      expect(after).toEqual([before?.[0], before?.[2]]);
    });

    test("are shown to models that make pictures, and left out where they are refused", async () => {
      await drawLater(png());
      await tenant.client.expect("patch", "/v1/settings", { whitelist_image_models: ["stub-1"] });
      llm.respond((body) => {
        const isBlind = picturesIn(body["messages"] as Json[]).length > 0;
        return isBlind ? { status: 500, json: { error: { message: "no eyes" } } } : text("a picture");
      });
      await chat({ session_id: session });
      const asked = llm.requests.map((body) => body["messages"] as Json[]).slice(1);
      expect(picturesIn(asked[0] ?? [])).toEqual([urlOf(png())]);
      expect(rolesOf(last())).toEqual(["assistant", "tool", "user"]);
      expect(last()[1].content).toMatch(/^\[binary result: image\/png/);
    });
  });
});
