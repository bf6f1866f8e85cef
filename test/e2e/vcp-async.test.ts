/** Asynchronous VCP plugins: what they answer first, what they call back with, and what becomes of their calls. */
import { createHmac } from "node:crypto";
import { newId } from "@toolyard/core/ids";
import { readAll } from "@toolyard/core/ports/blob-store";
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { asyncPlugin, startDesks, type Desk, type Desks } from "../support/async-plugin.ts";
import { invokeFlow, publishFlow } from "../support/flows.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { calls, startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { rawClient } from "../support/mcp-clients.ts";
import { rawSend } from "../support/raw-send.ts";
import { connectSocket } from "../support/socket-client.ts";
import { importVcp } from "../support/vcp-plugins.ts";
import { verifies } from "../support/verifies.ts";

let first: Gateway;
let second: Gateway;
let tenant: TestTenant;
let desks: Desks;
const name = "VideoMaker";
beforeAll(async () => {
  desks = await startDesks();
  first = await startGateway();
  second = await startGateway({ sharedWith: first });
});
afterAll(async () => {
  await second.close();
  await first.close();
  await desks.close();
});
beforeEach(async () => {
  tenant = await first.newTenant();
  await importVcp(tenant.client, asyncPlugin(name));
});

const invoke = (order: Json): Promise<Reply> =>
  tenant.client.send("post", "/v1/tools/invoke", { uri: `vcp://${name}`, arguments: order });
const callOf = (id: string): Promise<Json> => tenant.client.get(`/v1/calls/${id}`);
const ended = (id: string, state = "completed"): Promise<void> =>
  expect.poll(async () => (await callOf(id)).state, { timeout: 15_000 }).toBe(state);
const stored = async (file: string, of = tenant.id): Promise<string | undefined> => {
  const blob = await first.core.blobs.get(`${of}/VCPAsyncResults/${file}`);
  return blob === undefined ? undefined : Buffer.from(await readAll(blob.body)).toString("utf8");
};
const answerOf = (requestId: string, more: Json = {}): Json => ({ status: "success", requestId, ...more });

/** A call under way, and what its plugin was given. */
async function begin(
  requestId: string,
): Promise<{ readonly id: string; readonly base: string; readonly desk: Desk; readonly secret: string }> {
  const desk = desks.open();
  const { status, json } = await invoke({ desk: desk.url, waits: true, answer: answerOf(requestId) });
  expect(status, JSON.stringify(json)).toBe(202);
  const { CALLBACK_BASE_URL: base, CALLBACK_SECRET: secret } = desk.environment();
  return { id: json.id, base, desk, secret };
}

const messagesOf = ({ requests }: LlmStub): readonly Json[] => (requests.at(-1) as Json).messages;
const post = (
  url: string,
  body: unknown,
  headers: Record<string, string> = {},
): Promise<{ status: number; json: Json }> =>
  rawSend(url, typeof body === "string" ? body : JSON.stringify(body), headers);

describe(`an asynchronous plugin ${verifies("VCP-5")}`, () => {
  test("is answered for at once, works on, and ends its call with what it calls back with", async () => {
    const desk = desks.open();
    const body = {
      requestId: "t1",
      pluginName: name,
      status: "Succeed",
      message: "ready",
      videoUrl: "https://v/1",
      n: 1.5,
    };
    const { status, json } = await invoke({
      log: "Loading { settings",
      answer: answerOf("t1", { messageForAI: "Submitted." }),
      desk: desk.url,
      waits: true,
      late: [{ id: "t1", body }],
    });
    expect(status).toBe(202);
    expect(json).toMatchObject({ status: "running", content: `Submitted.\n{{VCP_ASYNC_RESULT::${name}::t1}}` });
    expect(await callOf(json.id)).toMatchObject({
      state: "running",
      finished_at: null,
      result: { preview: json.content },
    });
    expect((await tenant.client.send("get", `/v1/calls/${json.id}/result`)).status).toBe(409);
    expect(await stored(`${name}-t1.json`)).toBeUndefined();
    desk.go();
    await ended(json.id);
    await expect.poll(() => desk.statuses()).toEqual([200]);
    expect(JSON.parse((await stored(`${name}-t1.json`)) ?? "")).toEqual(body);
    const call = await callOf(json.id);
    expect(JSON.parse(call.result.preview)).toEqual(body);
    expect(call.attempt).toBe(1);
  });

  test("that calls back before it answers has its result kept, and its call ended by it", async () => {
    const body = { requestId: "t1", status: "Succeed", message: "very quick" };
    const early = [{ id: "t1", body }];
    const { status, json } = await invoke({ early, answer: answerOf("t1", { messageForAI: "Submitted." }) });
    expect(status).toBe(200);
    expect(JSON.parse(json.content)).toEqual({ ...body, messageForAI: "Submitted." });
    expect(await callOf(json.id)).toMatchObject({ state: "completed", result: { preview: json.content } });
    expect(JSON.parse((await stored(`${name}-t1.json`)) ?? "")).toEqual(body);
    const failed = [{ id: "t2", body: { status: "Failed", reason: "quota" } }];
    expect((await invoke({ early: failed, answer: answerOf("t2") })).json.error.message).toContain("quota");
  });

  test("whose task is a number that a double cannot hold is ended by that very one", async () => {
    const id = "1234567890123456789";
    const desk = desks.open();
    const { status, json } = await invoke({
      desk: desk.url,
      waits: true,
      log: `{"status":"success","requestId":${id},"messageForAI":"Submitted."}`,
    });
    expect({ status, content: json.content }).toEqual({
      status: 202,
      content: `Submitted.\n{{VCP_ASYNC_RESULT::${name}::${id}}}`,
    });
    const url = `${desk.environment().CALLBACK_BASE_URL}/${name}/${id}`;
    expect((await post(url, `{"requestId":${id},"message":"ready","order":${id}}`)).status).toBe(200);
    await ended(json.id);
    expect((await callOf(json.id)).result.preview).toContain(`"order":${id}`);
    desk.go();
  });

  test("answers an MCP client with its first words at once, and with its result later", async () => {
    const mcp = rawClient(`${first.url}/mcp`, tenant.key);
    const desk = desks.open();
    const order = { desk: desk.url, waits: true, answer: answerOf("t1", { messageForAI: "Submitted." }) };
    const begun = await mcp.ask("tools/call", { name, arguments: order });
    const { structuredContent: told } = begun.answer.result;
    expect(told).toMatchObject({ status: "pending", first_answer: expect.stringMatching(/^Submitted\./) });
    await post(`${desk.environment().CALLBACK_BASE_URL}/${name}/t1`, { message: "ready" });
    const ended = await mcp.ask("tools/call", { name: "get_call_result", arguments: { call_id: told.call_id } });
    expect(ended.text).toContain("ready");
    desk.go();
  });

  test("answers a person as it does upstream, with its first words", async () => {
    const line = `console.log(JSON.stringify({ status: "success", requestId: "t1", result: { submitted: true } }))`;
    const manifest = { pluginType: "asynchronous", entryPoint: { command: "node plugin.mjs" } };
    await importVcp(tenant.client, { name: "Once", manifest, files: { "plugin.mjs": line } });
    const { status, json } = await rawSend(
      `${first.url}/v1/human/tool`,
      "<<<[TOOL_REQUEST]>>>\ntool_name:「始」Once「末」\n<<<[END_TOOL_REQUEST]>>>",
      { "content-type": "text/plain", authorization: `Bearer ${tenant.key}` },
    );
    expect(status).toBe(200);
    expect(json).toEqual({
      submitted: true,
      async_result: "{{VCP_ASYNC_RESULT::Once::t1}}",
      timestamp: expect.any(String),
    });
  });

  test("that says that it failed has failed, with its reason", async () => {
    const { id, base } = await begin("t1");
    await post(`${base}/${name}/t1`, { status: "Failed", reason: "quota" });
    await ended(id, "failed");
    expect((await callOf(id)).error).toMatchObject({ code: "tool_failed", details: { task_id: "t1" } });
    expect((await callOf(id)).error.message).toContain("quota");
  });

  test("that names no task is done with its answer, and so is one that asks about another call's", async () => {
    expect((await invoke({ answer: { status: "success", result: "done at once" } })).status).toBe(200);
    const { base } = await begin("t1");
    const asked = await invoke({ answer: answerOf("t1", { result: "t1 is being made" }) });
    expect(asked.status, "the task is the first call's").toBe(200);
    expect((await post(`${base}/${name}/t1`, { message: "mine" })).status).toBe(200);
  });

  test("that does not answer in time, or answers nothing, is an error in upstream's words", async () => {
    await importVcp(tenant.client, asyncPlugin("Silent", { communication: { protocol: "stdio", timeout: 700 } }));
    const silent = await tenant.client.send("post", "/v1/tools/invoke", {
      uri: "vcp://Silent",
      arguments: { stays: 60_000 },
    });
    expect(silent.status).toBe(504);
    expect(silent.json.error.message).toContain('Plugin "Silent" initial response timed out.');
    expect(silent.json.error.message).toContain("It had 700 ms");
    const crashed = await invoke({ log: "no JSON", exit: 3 });
    expect(crashed.json.error.message).toContain(`Plugin "${name}" exited with code 3. Stdout: no JSON`);
    const refused = await invoke({ answer: { status: "error", error: "no credits" } });
    expect(refused.json.error.message).toContain("no credits");
  });

  test("that dies after its answer leaves its call unknown, until a callback says what came of it", async () => {
    const desk = desks.open();
    const { json } = await invoke({ desk: desk.url, answer: answerOf("t1"), complaint: "no such model", exit: 9 });
    await ended(json.id, "unknown");
    const { message } = (await callOf(json.id)).error;
    expect(message).toContain("ended with code 9");
    expect(message).toContain("Stderr: no such model");
    await post(`${desk.environment().CALLBACK_BASE_URL}/${name}/t1`, { message: "made elsewhere" });
    await ended(json.id);
  });

  test("that is cancelled after its answer is stopped, and its late result changes nothing", async () => {
    const { id, base } = await begin("t1");
    expect(await tenant.client.post(`/v1/calls/${id}/cancel`)).toMatchObject({ state: "cancelled" });
    expect((await post(`${base}/${name}/t1`, { message: "late" })).status).toBe(200);
    expect((await callOf(id)).state).toBe("cancelled");
    expect(await stored(`${name}-t1.json`)).toContain("late");
  });

  test.for<[string, string]>([
    ["视频生成", "t1"],
    [name, "1732881600.25"],
  ])("called %s, with the task %s, has its result read by the placeholder that it gave", async ([plugin, id]) => {
    await importVcp(tenant.client, asyncPlugin(plugin));
    const llm = await startLlmStub();
    try {
      await tenant.addProvider(llm.url);
      const desk = desks.open();
      const order = { desk: desk.url, waits: true, answer: answerOf(id, { messageForAI: "Submitted." }) };
      const uri = `vcp://${encodeURIComponent(plugin)}`;
      const { json } = await tenant.client.send("post", "/v1/tools/invoke", { uri, arguments: order });
      const read = async (): Promise<unknown> => {
        const messages = [{ role: "user", content: json.content }];
        await tenant.client.post("/v1/chat/completions", { model: "stub-1", tool_protocol: "vcp", messages });
        return messagesOf(llm).at(-1)?.content;
      };
      expect(await read()).toBe(`Submitted.\n[任务 ${plugin} (ID: ${id}) 结果待更新...]`);
      const base = desk.environment().CALLBACK_BASE_URL;
      expect((await post(`${base}/${encodeURIComponent(plugin)}/${id}`, { message: "ready" })).status).toBe(200);
      expect(await read()).toBe("Submitted.\nready");
      desk.go();
    } finally {
      await llm.close();
    }
  });

  test("is told of to VCPLog with its own task, when it answers and when it is done", async () => {
    const url = `${second.url.replace("http", "ws")}/ws?client_type=VCPLog`;
    const log = await connectSocket(url, { headers: { authorization: `Bearer ${tenant.key}` } });
    const desk = desks.open();
    const order = { desk: desk.url, waits: true, answer: answerOf("t1", { messageForAI: "Submitted." }) };
    const { json } = await invoke(order);
    const told = (): Json[] => log.of("vcp_log").map(({ data }) => data);
    await expect.poll(() => told().length, { timeout: 10_000 }).toBe(1);
    await post(`${desk.environment().CALLBACK_BASE_URL}/${name}/t1`, { message: "ready" });
    await expect.poll(() => told().length, { timeout: 10_000 }).toBe(2);
    const details = { taskId: "t1", callId: json.id, traceId: expect.any(String) };
    expect(told()).toMatchObject([
      { tool_name: name, status: "success", details: { ...details, state: "running" } },
      {
        tool_name: name,
        status: "success",
        content: '{"message":"ready"}',
        details: { ...details, state: "completed" },
      },
    ]);
    desk.go();
    await log.close();
  });

  test("has the flow that waits for it go on at once", async () => {
    const desk = desks.open();
    const nodes = {
      make: {
        kind: "tool",
        uri: `vcp://${name}`,
        arguments: { desk: desk.url, waits: true, answer: answerOf("t1") },
        next: "done",
      },
      done: { kind: "end", output: "made" },
    };
    await publishFlow(tenant, { name: "film", start: "make", nodes });
    const { json } = await invokeFlow(tenant, "flow://film?async=true");
    await expect.poll(() => desk.environment().CALLBACK_BASE_URL, { timeout: 10_000 }).toBeDefined();
    const running = async (): Promise<Json> => (await tenant.client.get(`/v1/calls?parent_id=${json.id}`)).data;
    await expect.poll(running, { timeout: 10_000 }).toMatchObject([{ state: "running", result: expect.anything() }]);
    await post(`${desk.environment().CALLBACK_BASE_URL}/${name}/t1`, { message: "ready" });
    await ended(json.id);
    desk.go();
  });

  test("ends with the run that waits for it, where that is cancelled after its answer", async () => {
    const desk = desks.open();
    const args = { desk: desk.url, waits: true, answer: answerOf("t1") };
    const make = { kind: "tool", uri: `vcp://${name}`, arguments: args };
    await publishFlow(tenant, { name: "film", start: "make", nodes: { make } });
    const { json } = await invokeFlow(tenant, "flow://film?async=true");
    const child = async (): Promise<Json> => (await tenant.client.get(`/v1/calls?parent_id=${json.id}`)).data;
    await expect.poll(child, { timeout: 10_000 }).toMatchObject([{ state: "running", result: expect.anything() }]);
    await tenant.client.post(`/v1/calls/${json.id}/cancel`);
    await ended(json.id, "cancelled");
    await expect.poll(child).toMatchObject([{ state: "cancelled" }]);
    desk.go();
  });

  test("is still ended where the cancelling broke off and is asked for again", async () => {
    const desk = desks.open();
    const args = { desk: desk.url, waits: true, answer: answerOf("t1") };
    await publishFlow(tenant, {
      name: "film",
      start: "make",
      nodes: { make: { kind: "tool", uri: `vcp://${name}`, arguments: args } },
    });
    const { json } = await invokeFlow(tenant, "flow://film?async=true");
    const child = async (): Promise<Json> => (await tenant.client.get(`/v1/calls?parent_id=${json.id}`)).data;
    await expect.poll(child, { timeout: 10_000 }).toMatchObject([{ state: "running", result: expect.anything() }]);
    await ended(json.id, "queued");
    const family = vi.spyOn(first.core.repos.calls, "family").mockRejectedValueOnce(new Error("away"));
    expect((await tenant.client.send("post", `/v1/calls/${json.id}/cancel`)).status).toBe(500);
    family.mockRestore();
    expect(await child()).toMatchObject([{ state: "running" }]);
    expect(await tenant.client.post(`/v1/calls/${json.id}/cancel`)).toMatchObject({ state: "cancelled" });
    expect(await child()).toMatchObject([{ state: "cancelled" }]);
    desk.go();
  });

  test("ends with the chat that asked for it, where that is interrupted", async () => {
    const llm = await startLlmStub();
    try {
      await tenant.addProvider(llm.url);
      const desk = desks.open();
      const order = { desk: desk.url, waits: true, answer: answerOf("t1") };
      const chat = { requestId: "film", model: "stub-1", messages: [{ role: "user", content: "Make a film." }] };
      llm.script(calls({ name, arguments: order }), { json: {}, delayMs: 60_000 });
      const answer = tenant.client.send("post", "/v1/chat/completions", chat);
      const child = async (): Promise<Json> => (await tenant.client.get(`/v1/calls?kind=tool`)).data;
      await expect.poll(child, { timeout: 10_000 }).toMatchObject([{ state: "running", result: expect.anything() }]);
      await tenant.client.post("/v1/interrupt", { requestId: "film" });
      expect((await answer).json.error.code).toBe("request_cancelled");
      await expect.poll(child).toMatchObject([{ state: "cancelled" }]);
      desk.go();
    } finally {
      await llm.close();
    }
  });

  test("holds its price while it works on, and is charged once, whatever comes of it", async () => {
    const { client } = tenant;
    await client.expect("put", "/v1/prices", { prices: [{ kind: "tool", pattern: name, per_call: 500 }] });
    const budget = await client.post("/v1/budgets", { period: "total", limit_micros: 1_200 });
    const micros = async (): Promise<Json> => {
      const { used, reserved } = await client.get(`/v1/budgets/${budget.id}`);
      return { used: used.micros, reserved: reserved.micros };
    };
    const one = await begin("t1");
    const other = await begin("t2");
    expect(await micros()).toEqual({ used: 0, reserved: 1_000 });
    const third = await invoke({ answer: answerOf("t3") });
    expect(third.json.error).toMatchObject({ code: "budget_exceeded", budget: budget.id });
    await post(`${one.base}/${name}/t1`, { message: "ready" });
    await ended(one.id);
    expect(await micros()).toEqual({ used: 500, reserved: 500 });
    await client.post(`/v1/calls/${other.id}/cancel`);
    expect(await micros()).toEqual({ used: 1_000, reserved: 0 });
    await post(`${other.base}/${name}/t2`, { message: "late" });
    expect(await micros()).toEqual({ used: 1_000, reserved: 0 });
    expect((await callOf(one.id)).cost).toMatchObject({ micros: 500, total_micros: 500 });
    one.desk.go();
  });

  test("that dies after its answer is charged for it, and not again for a late result", async () => {
    const { client } = tenant;
    await client.expect("put", "/v1/prices", { prices: [{ kind: "tool", pattern: name, per_call: 500 }] });
    const desk = desks.open();
    const { json } = await invoke({ desk: desk.url, answer: answerOf("t1"), exit: 9 });
    await ended(json.id, "unknown");
    const spent = async (): Promise<Json> => (await client.get("/v1/usage?group_by=tool")).data;
    expect(await spent()).toMatchObject([{ group: name, calls: 1, micros: 500 }]);
    await post(`${desk.environment().CALLBACK_BASE_URL}/${name}/t1`, { message: "made elsewhere" });
    await ended(json.id);
    expect(await spent()).toMatchObject([{ group: name, calls: 1, micros: 500 }]);
  });

  test("gives a model its first words and the placeholder, and the session's next chat the result", async () => {
    const llm = await startLlmStub();
    try {
      await tenant.addProvider(llm.url);
      const desk = desks.open();
      const order = { desk: desk.url, waits: true, answer: answerOf("t9", { messageForAI: "Submitted." }) };
      llm.script(calls({ name, arguments: order }), text("It is being made."));
      const chat = (content: string): Promise<Json> =>
        tenant.client.post("/v1/chat/completions", {
          model: "stub-1",
          session_id: "sess_video",
          messages: [{ role: "user", content }],
        });
      await chat("Make a video.");
      const told = messagesOf(llm).at(-1);
      expect(told).toMatchObject({ role: "tool", content: `Submitted.\n{{VCP_ASYNC_RESULT::${name}::t9}}` });
      await post(`${desk.environment().CALLBACK_BASE_URL}/${name}/t9`, {
        status: "Succeed",
        message: "the video is ready",
      });
      llm.script(text("Here it is."));
      await chat("Is it there?");
      expect(JSON.stringify(messagesOf(llm))).toContain("the video is ready");
    } finally {
      await llm.close();
    }
  });

  test.each([
    ["by its content", (url: string): Json => ({ content: [{ type: "image_url", image_url: { url } }] })],
    ["by its base64", (url: string): Json => ({ base64: url.slice(url.indexOf(",") + 1) })],
  ])("shows a model the picture that it calls back with %s, as a picture and not as text", async (_how, saying) => {
    const llm = await startLlmStub();
    try {
      await tenant.addProvider(llm.url);
      const picture = Buffer.alloc(30_000, 7);
      picture.set(Buffer.from("\x89PNG\r\n\x1a\n", "latin1"));
      const url = `data:image/png;base64,${picture.toString("base64")}`;
      const desk = desks.open();
      const order = { desk: desk.url, waits: true, answer: answerOf("p1", { messageForAI: "Submitted." }) };
      llm.script(calls({ name, arguments: order }), text("It is being drawn."));
      const session = newId("session");
      const chat = (content: string): Promise<Json> =>
        tenant.client.post("/v1/chat/completions", { session_id: session, messages: [{ role: "user", content }] });
      await chat("Draw.");
      const body = { requestId: "p1", status: "Succeed", message: "drawn", ...saying(url) };
      await post(`${desk.environment().CALLBACK_BASE_URL}/${name}/p1`, body);
      llm.script(text("Here it is."));
      await chat("Is it there?");
      const [, result, shown] = messagesOf(llm);
      expect(result.content).toContain("drawn");
      expect(result.content).not.toContain(picture.toString("base64", 0, 300));
      expect(shown.content.at(-1)).toEqual({ type: "image_url", image_url: { url } });
      expect(JSON.parse((await stored(`${name}-p1.json`)) ?? "")).toEqual(body);
    } finally {
      await llm.close();
    }
  });

  test("has its picture shown where it is faster than its answer", async () => {
    const llm = await startLlmStub();
    try {
      await tenant.addProvider(llm.url);
      const url = `data:image/png;base64,${Buffer.from("\x89PNG\r\n\x1a\n........", "latin1").toString("base64")}`;
      const body = { requestId: "p1", status: "Succeed", content: [{ type: "image_url", image_url: { url } }] };
      const early = [{ id: "p1", body }];
      llm.script(calls({ name, arguments: { early, answer: answerOf("p1", { messageForAI: "Quick." }) } }), text("ok"));
      await tenant.client.post("/v1/chat/completions", { messages: [{ role: "user", content: "Draw." }] });
      expect(messagesOf(llm).map(({ role }) => role)).toEqual(["user", "assistant", "tool", "user"]);
      const [result, shown] = messagesOf(llm).slice(-2);
      expect(result.content).toMatch(/^Quick\.\n\[image: image\/png, 16 bytes\]\n/);
      expect(shown.content.at(-1)).toEqual({ type: "image_url", image_url: { url } });
    } finally {
      await llm.close();
    }
  });

  test("is told of later by the name that the model knows it by, which its own may not be", async () => {
    const llm = await startLlmStub();
    try {
      const own = "画图.助手";
      await tenant.addProvider(llm.url);
      await importVcp(tenant.client, asyncPlugin(own));
      const desk = desks.open();
      const known = (): string => {
        const names: string[] = (llm.requests[0] as Json).tools.map((tool: Json) => tool.function.name);
        return names.find((name) => name.startsWith("__")) ?? "";
      };
      llm.respond((_body, at) =>
        at === 0
          ? calls({ name: known(), arguments: { desk: desk.url, waits: true, answer: answerOf("t1") } })
          : text("It is being drawn."),
      );
      const chat = (content: string): Promise<Json> =>
        tenant.client.post("/v1/chat/completions", {
          model: "stub-1",
          session_id: "sess_drawing",
          messages: [{ role: "user", content }],
        });
      await chat("Draw.");
      await post(`${desk.environment().CALLBACK_BASE_URL}/${encodeURIComponent(own)}/t1`, { message: "drawn" });
      await chat("Is it there?");
      const [call, result] = messagesOf(llm);
      expect(call.tool_calls[0].function.name).toBe(known());
      expect(result.content).toContain("drawn");
    } finally {
      await llm.close();
    }
  });
});

describe(`a callback ${verifies("VCP-5", "VCP-11", "VCP-24")}`, () => {
  test("is answered as upstream does, at any instance, and again whenever it is repeated", async () => {
    const { id, base } = await begin("t1");
    const elsewhere = base.replace(first.url, second.url);
    const bodies = [1, 2, 3, 4].map((n) => ({ requestId: "t1", message: `try ${n}` }));
    const answers = await Promise.all(
      bodies.map((body, at) => post(`${at % 2 === 0 ? base : elsewhere}/${name}/t1`, body)),
    );
    for (const { status, json } of answers) {
      expect(status).toBe(200);
      expect(json).toEqual({ status: "success", message: "Callback received and processed" });
    }
    await ended(id);
    const kept = JSON.parse((await stored(`${name}-t1.json`)) ?? "");
    expect(bodies).toContainEqual(kept);
    expect(JSON.parse((await callOf(id)).result.preview)).toEqual(kept);
    expect((await post(`${base}/${name}/t1`, { message: "other" })).status).toBe(200);
    expect(JSON.parse((await stored(`${name}-t1.json`)) ?? "")).toEqual(kept);
  });

  test("may come for several tasks of one call, of which the named one ends it", async () => {
    const { id, base } = await begin("main");
    for (const task of ["side-1", "side-2"]) {
      expect((await post(`${base}/${name}/${task}`, { requestId: task, message: task })).status).toBe(200);
    }
    expect((await callOf(id)).state).toBe("running");
    await post(`${base}/${name}/main`, { message: "all" });
    await ended(id);
    expect(await stored(`${name}-side-2.json`)).toContain("side-2");
  });

  test("for more than 32 tasks of a call, or for another call's, is a conflict, and nothing is written", async () => {
    const [one, other] = [await begin("t1"), await begin("t2")];
    const taken = await post(`${other.base}/${name}/t1`, { message: "not mine" });
    expect(taken.status).toBe(409);
    expect(await stored(`${name}-t1.json`)).toBeUndefined();
    const statuses = await Promise.all(
      Array.from({ length: 34 }, async (_none, at) => (await post(`${one.base}/${name}/x${at}`, {})).status),
    );
    expect(statuses.filter((status) => status === 409)).toHaveLength(3);
    for (const { desk } of [one, other]) desk.go();
  });

  test.for<[string, unknown, number, string]>([
    ["another task's requestId", { requestId: "t2" }, 400, "invalid_request"],
    ["another plugin's name", { pluginName: "Other" }, 400, "invalid_request"],
    ["a list", [1], 400, "invalid_request"],
    ["no JSON", "{", 400, "invalid_json"],
    ["nothing", "", 400, "invalid_json"],
    ["more than it may hold", { text: "x".repeat(4_300_000) }, 413, "payload_too_large"],
  ])("with %s is refused, and nothing is written", async ([, body, status, code]) => {
    const { id, base, desk } = await begin("t1");
    const answer = await post(`${base}/${name}/t1`, body);
    expect(answer).toMatchObject({ status, json: { status: "error", error: { code } } });
    expect(answer.json.message).toBe(answer.json.error.message);
    expect(await stored(`${name}-t1.json`)).toBeUndefined();
    expect((await callOf(id)).state).toBe("running");
    desk.go();
  });

  test("with a token that is none, or another plugin's, is unknown, and nothing is written", async () => {
    const { base, desk } = await begin("t1");
    const forged = `${base.slice(0, -1)}${base.endsWith("A") ? "B" : "A"}`;
    const other = await first.newTenant();
    for (const url of [
      `${forged}/${name}/t1`,
      `${base}/Other/t1`,
      `${base.replace(tenant.id, other.id)}/${name}/t1`,
      `${first.url}/plugin-callback/t/x/${name}/t1`,
    ]) {
      expect(await post(url, { message: "forged" })).toMatchObject({ status: 404, json: { status: "error" } });
    }
    expect((await post(`${base}/${name}/..%2F..%2Fescape`, { message: "out" })).status).toBe(400);
    expect(await stored(`${name}-t1.json`)).toBeUndefined();
    expect(await stored(`${name}-t1.json`, other.id)).toBeUndefined();
    desk.go();
  });

  test("on the plain path needs the token or a signature", async () => {
    const { id, base, secret, desk } = await begin("t1");
    const plain = `${first.url}/plugin-callback/${name}`;
    const body = JSON.stringify({ message: "signed" });
    const signed = (text: string, change: Record<string, string> = {}): Record<string, string> => {
      const timestamp = String(Math.floor(Date.now() / 1_000));
      const key = Buffer.from(secret.replace("whsec_", ""), "base64");
      const signature = createHmac("sha256", key).update(`m1.${timestamp}.${text}`).digest("base64");
      return {
        "x-toolyard-tenant": tenant.id,
        "webhook-id": "m1",
        "webhook-timestamp": timestamp,
        "webhook-signature": `v1,${signature}`,
        ...change,
      };
    };
    expect((await post(`${plain}/t1`, body)).status).toBe(401);
    expect((await post(`${plain}/t1`, body, { authorization: `Bearer ${tenant.key}` })).status).toBe(404);
    expect((await post(`${plain}/t1`, body, signed("another text"))).status).toBe(401);
    expect((await post(`${plain}/t1`, body, signed(body, { "webhook-timestamp": "1" }))).status).toBe(401);
    expect((await post(`${plain}/t1`, body, signed(body, { "x-toolyard-tenant": "ten_none" }))).status).toBe(401);
    expect((await post(`${plain}/unknown`, body, signed(body))).status).toBe(404);
    expect(await stored(`${name}-t1.json`)).toBeUndefined();
    expect((await post(`${plain}/t1`, body, signed(body))).status).toBe(200);
    await ended(id);
    const token = base.split("/").at(-1) ?? "";
    expect((await post(`${plain}/t2`, { message: "bearer" }, { authorization: `Bearer ${token}` })).status).toBe(200);
    desk.go();
  });

  test("leaves its token in no log, and no secret of the plugin in a result", async () => {
    await importVcp(tenant.client, {
      ...asyncPlugin(name),
      files: { ...asyncPlugin(name).files, "config.env": "API_KEY=sk-very-secret-1234" },
    });
    const { id, base, desk } = await begin("t1");
    await post(`${base}/${name}/t1`, {
      message: "made with sk-very-secret-1234",
      nested: { key: "sk-very-secret-1234" },
    });
    await ended(id);
    const token = base.split("/").at(-1) ?? "";
    expect(JSON.stringify([first.logged, second.logged])).not.toContain(token);
    expect(JSON.stringify(await callOf(id))).not.toContain("sk-very");
    expect(await stored(`${name}-t1.json`)).not.toContain("sk-very");
    desk.go();
  });
});
