/** Results that are long, and results that come later: the head at once, the whole behind a handle (CHAT-13). */
import { createHash } from "node:crypto";
import { newId } from "@toolyard/core/ids";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Client, Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { readingTool, writingTool } from "../support/http-tools.ts";
import { calls, startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { sseEvents } from "../support/sse.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let other: Gateway;
let llm: LlmStub;
let backEnd: HttpStub;
let tenant: TestTenant;

const resultBytes = 1_000;

beforeAll(async () => {
  [gateway, llm, backEnd] = await Promise.all([startGateway(), startLlmStub(), startHttpStub()]);
  other = await startGateway({ sharedWith: gateway });
});

afterAll(async () => {
  await other.close();
  await Promise.all([gateway.close(), llm.close(), backEnd.close()]);
});

beforeEach(async () => {
  llm.requests.length = 0;
  backEnd.requests.length = 0;
  tenant = await gateway.newTenant({ result_bytes: resultBytes, rounds: 60 });
  await tenant.addProvider(llm.url);
  await tenant.addPlugin(readingTool(backEnd));
});

interface Person {
  readonly name: string;
  readonly id: number;
}

const people: readonly Person[] = Array.from({ length: 400 }, (_none, at) => ({ name: `员工-${at} Person`, id: at }));
/** JSON with an integer that a double cannot hold in each item. */
const json = `{"items":[${people.map(({ name, id }) => `{"name":"${name}","big":1234567890123456${String(id).padStart(3, "0")}}`).join(",")}],"total":400}`;
const lines = Array.from(
  { length: 600 },
  (_none, at) => `${at + 1}: ${at % 50 === 0 ? "FEHLER 错误" : "ok"} 日志 line`,
).join("\n");

function answerWith(body: string | Buffer, type = "application/json"): void {
  backEnd.answer = () => ({ headers: { "content-type": type }, body });
}

const lookup = { name: "lookup", arguments: { q: "x" } };
const readOn = (args: Json): { name: string; arguments: Json } => ({ name: "read_result", arguments: args });
const handleIn = (told: string): string => /"call_id":"(call_\w+)"/.exec(told)?.[1] ?? "";

function chat(client: Client, body: Json = {}): Promise<Json> {
  return client.post("/v1/chat/completions", { messages: [{ role: "user", content: "go" }], ...body });
}

function toolMessages(): string[] {
  const sent = (llm.requests.at(-1)?.["messages"] ?? []) as Json[];
  return sent.filter(({ role }) => role === "tool").map(({ content }) => content);
}

/** A chat whose model decides by what it was told last; the first thing it does is to look up. */
async function converse(
  client: Client,
  next: (told: string, turn: number) => { readonly name: string; readonly arguments: Json } | undefined,
): Promise<string[]> {
  let turn = 0;
  llm.respond(({ messages }) => {
    const last = (messages as Json[]).at(-1);
    if (last.role !== "tool") return calls(lookup);
    const call = next(last.content, turn++);
    return call === undefined ? text("done") : calls(call);
  });
  await chat(client);
  return toolMessages();
}

function invoke(client: Client, name: string, args: Json, more: Json = {}): Promise<Reply> {
  return client.send("post", "/v1/tools/invoke", { name, arguments: args, ...more });
}

async function ended(id: string): Promise<Json> {
  const read = (): Promise<Json> => tenant.client.get(`/v1/calls/${id}`);
  await expect.poll(async () => (await read()).state, { timeout: 10_000 }).not.toMatch(/queued|running|input_required/);
  return read();
}

describe(`a result beyond result_bytes ${verifies("CHAT-13", "CHAT-9")}`, () => {
  test("reaches the model as its head with a handle, never beyond the limit; one that fits is whole", async () => {
    answerWith(lines, "text/plain");
    const [head = ""] = await converse(tenant.client, () => undefined);
    expect(Buffer.byteLength(head)).toBeLessThanOrEqual(resultBytes);
    const shown = head.slice(0, head.lastIndexOf("\n[cut: "));
    expect(lines.startsWith(shown)).toBe(true);
    expect(head).toContain(`${Buffer.byteLength(shown)} of ${Buffer.byteLength(lines)} bytes shown`);
    for (const [bytes, isWhole] of [
      [resultBytes, true],
      [resultBytes + 1, false],
    ] as const) {
      answerWith("x".repeat(bytes), "text/plain");
      const [told = ""] = await converse(tenant.client, () => undefined);
      expect([bytes, told === "x".repeat(bytes), handleIn(told) !== ""]).toEqual([bytes, isWhole, !isWhole]);
    }
  });

  test("is streamed whole by GET /v1/calls/{id}/result, byte for byte, with its type and length", async () => {
    const large = Buffer.from(Array.from({ length: 100_000 }, (_none, at) => `${at} 行 of a long result\n`).join(""));
    answerWith(large, "text/csv; charset=utf-8");
    const [head = ""] = await converse(tenant.client, () => undefined);
    await expect
      .poll(async () => (await tenant.client.get("/v1/calls?kind=chat&state=running")).data.length, { timeout: 5_000 })
      .toBe(0);
    const response = await fetch(`${other.url}/v1/calls/${handleIn(head)}/result`, {
      headers: { authorization: `Bearer ${tenant.key}` },
    });
    expect([response.status, response.headers.get("content-type"), response.headers.get("content-length")]).toEqual([
      200,
      "text/csv; charset=utf-8",
      String(large.byteLength),
    ]);
    const received = createHash("sha256");
    let parts = 0;
    for await (const part of response.body ?? []) {
      parts += 1;
      received.update(part);
    }
    expect(received.digest("hex")).toBe(createHash("sha256").update(large).digest("hex"));
    expect(parts).toBeGreaterThan(1);
    const range = { headers: { range: `bytes=${large.byteLength - 10}-` } };
    const tail = await tenant.client.send("get", `/v1/calls/${handleIn(head)}/result`, undefined, range);
    expect([tail.status, tail.bytes.equals(large.subarray(-10))]).toEqual([206, true]);
  });

  test("is shown by its head in streams and in the record, and by its handle to a direct caller", async () => {
    answerWith(lines, "text/plain");
    llm.script(calls(lookup), text("done"));
    const streamed = await tenant.client.send("post", "/api/chat/completions", {
      messages: [{ role: "user", content: "go" }],
      stream: true,
    });
    const { result } = (sseEvents(streamed.text) as Json[]).find(({ type }) => type === "tool_result");
    expect([result.success, handleIn(result.content) !== "", result.content.length < resultBytes]).toEqual([
      true,
      true,
      true,
    ]);
    const direct = (await invoke(tenant.client, "lookup", { q: "x" })).json;
    expect(direct).toMatchObject({
      status: "completed",
      media_type: "text/plain",
      handle: { call_id: direct.id, bytes: Buffer.byteLength(lines), media_type: "text/plain" },
    });
    expect(await tenant.client.get(`/v1/calls/${direct.id}`)).toMatchObject({
      result: { complete: false, bytes: Buffer.byteLength(lines), url: `/v1/calls/${direct.id}/result` },
    });
  });

  test("names no tool that the caller may not use", async () => {
    answerWith(lines, "text/plain");
    const { client } = await tenant.newKey({ tools: ["lookup"] });
    const [head = ""] = await converse(client, () => undefined);
    expect(head).not.toContain("read_result");
    expect(head).toMatch(/\[cut: \d+ of \d+ bytes shown; GET \/v1\/calls\/call_\w+\/result gives it whole\]$/);
    expect(Buffer.byteLength(head)).toBeLessThanOrEqual(resultBytes);
  });
});

describe(`read_result ${verifies("CHAT-9", "CHAT-13")}`, () => {
  test.each([
    ["text", () => [lines, "text/plain"] as const],
    ["JSON", () => [json, "application/json"] as const],
    ["one long line", () => ["字".repeat(2_000), "text/plain"] as const],
  ])(
    "lets a model that does as it is told read %s to its end, in the same chat, nothing twice",
    async (_what, make) => {
      const [body, type] = make();
      answerWith(body, type);
      const next = (told: string): { readonly name: string; readonly arguments: Json } | undefined => {
        const offset = /(?:,"offset":(\d+)[},]|read on with "offset":(\d+)\])/.exec(told);
        const from = offset?.[1] ?? offset?.[2];
        return from === undefined ? undefined : readOn({ call_id: id || (id = handleIn(told)), offset: Number(from) });
      };
      let id = "";
      const [head = "", ...rest] = await converse(tenant.client, next);
      expect(rest.at(-1)).toContain("this is the end]");
      for (const part of rest) expect(Buffer.byteLength(part)).toBeLessThanOrEqual(resultBytes);
      const shown = head.slice(0, head.lastIndexOf("\n[cut: "));
      expect(shown + rest.map((part) => part.slice(part.indexOf("\n") + 1)).join("")).toBe(body);
      // What is read on is no result of its own to read on.
      expect(rest.some((part) => part.includes("read_result"))).toBe(false);
    },
  );

  test("reads a range, some lines, a part of the JSON, or what matches, by a model and directly", async () => {
    const reading = async (body: string, type: string, args: Json): Promise<readonly string[]> => {
      answerWith(body, type);
      const [, byModel = ""] = await converse(tenant.client, (told, turn) =>
        turn === 0 ? readOn({ call_id: handleIn(told), ...args }) : undefined,
      );
      const { json: direct } = await invoke(tenant.client, "lookup", { q: "x" });
      const directly = await invoke(other.client(tenant.key), "read_result", { call_id: direct.id, ...args });
      return [byModel, directly.json.content];
    };
    const both = (content: string): readonly string[] => [content, content];
    const part = Buffer.from(lines).subarray(10, 29).toString();
    expect(await reading(lines, "text/plain", { offset: 10, length: 19 })).toEqual(
      both(`[bytes 10-29 of ${Buffer.byteLength(lines)}; read on with "offset":29]\n${part}`),
    );
    expect(await reading(lines, "text/plain", { line: 599, lines: 5 })).toEqual(
      both(`[lines 599-600; this is the end]\n${lines.split("\n").slice(598).join("\n")}`),
    );
    expect(await reading(json, "application/json", { jsonpath: "$.items[398:].big" })).toEqual(
      both(expect.stringMatching(/1234567890123456398[^]*1234567890123456399/)),
    );
    expect(await reading(json, "application/json", { jsonpath: "$.total" })).toEqual(
      both(expect.stringContaining("400")),
    );
    const [found = ""] = await reading(lines, "text/plain", { grep: "fehler .误", ignore_case: true, line: 500 });
    expect(found).toContain("501: 501: FEHLER 错误 日志 line");
    expect(found).toContain("551: 551: FEHLER");
    expect(found).toContain("2 matches");
    expect(await reading(lines, "text/plain", { grep: "nirgends" })).toEqual(both("[no line from 1 on matches]"));
  });

  test.each<[Json, string, RegExp]>([
    [{ offset: 0, line: 1 }, "invalid_arguments", /one way to read/],
    [{ offset: 99_999_999 }, "invalid_arguments", /offset/],
    [{ line: 99_999 }, "invalid_arguments", /fewer than 99999 lines/],
    [{ jsonpath: "$.items[?(@.id>1)]" }, "invalid_arguments", /JSONPath/],
    [{ jsonpath: "items" }, "invalid_arguments", /begin with '\$'/],
    [{ grep: "(" }, "invalid_arguments", /grep/i],
    [{ offset: -1 }, "invalid_arguments", /offset/],
    [{ pages: 1 }, "invalid_arguments", /pages/],
  ])("tells the model what is wrong with %j", async (args, code, words) => {
    answerWith(json);
    const [, told = ""] = await converse(tenant.client, (seen, turn) =>
      turn === 0 ? readOn({ call_id: handleIn(seen), ...args }) : undefined,
    );
    expect(JSON.parse(told).error).toMatchObject({ code });
    expect(told).toMatch(words);
  });

  test("says of bytes that they are none to read, and of text that it is no JSON", async () => {
    answerWith(Buffer.from([0, 255, 254, 1]), "image/png");
    const image = (await invoke(tenant.client, "lookup", { q: "x" })).json;
    const reply = await invoke(tenant.client, "read_result", { call_id: image.id });
    expect([reply.status, reply.json.error.code]).toEqual([400, "invalid_arguments"]);
    expect(reply.json.error.message).toContain(`GET /v1/calls/${image.id}/result`);
    answerWith(lines, "text/plain");
    const { json: made } = await invoke(tenant.client, "lookup", { q: "x" });
    expect((await invoke(tenant.client, "read_result", { call_id: made.id, jsonpath: "$" })).status).toBe(400);
  });

  test("opens for the caller who made the call, in any later request on any instance, and for nobody else", async () => {
    answerWith(lines, "text/plain");
    const [head = ""] = await converse(tenant.client, () => undefined);
    const id = handleIn(head);
    await expect
      .poll(async () => (await tenant.client.get("/v1/calls?kind=chat&state=running")).data.length, { timeout: 5_000 })
      .toBe(0);
    llm.script(calls(readOn({ call_id: id, line: 1, lines: 1 })), text("done"));
    await chat(other.client(tenant.key));
    expect(toolMessages()).toEqual([expect.stringContaining("1: FEHLER 错误 日志 line")]);
    const stranger = await gateway.newTenant({ result_bytes: resultBytes });
    await stranger.addProvider(llm.url);
    await stranger.addPlugin(readingTool(backEnd));
    const { client: colleague } = await tenant.newKey();
    const [{ id: chatId }] = (await tenant.client.get("/v1/calls?kind=chat&limit=1")).data;
    const attempts: readonly (readonly [Client, string])[] = [
      [colleague, id],
      [stranger.client, id],
      [tenant.client, "call_01jdnhz2v4x8mfkq3w7c5r9gta"],
      [tenant.client, chatId],
      [tenant.client, "../../../etc/passwd"],
      [tenant.client, `${id}/..`],
    ];
    for (const [client, wanted] of attempts) {
      const direct = await invoke(client, "read_result", { call_id: wanted });
      expect([wanted, direct.status, direct.json.error.code, direct.json.error.param]).toEqual([
        wanted,
        404,
        "not_found",
        "call_id",
      ]);
      llm.script(calls(readOn({ call_id: wanted })), text("done"));
      await chat(client);
      expect(JSON.parse(toolMessages()[0] ?? "").error).toMatchObject({ code: "not_found" });
      expect(toolMessages()[0]).not.toContain("FEHLER");
    }
  });

  test("is for whoever shares the session, if the tenant lets them in", async () => {
    answerWith(lines, "text/plain");
    const session = newId("session");
    const { client: member } = await tenant.newKey();
    const { json: made } = await invoke(member, "lookup", { q: "x" }, { session_id: session });
    const wanted = { call_id: made.id, line: 1, lines: 1 };
    expect((await invoke(tenant.client, "read_result", wanted)).status).toBe(404);
    expect((await invoke(tenant.client, "read_result", wanted, { session_id: session })).status).toBe(200);
    const { client: colleague } = await tenant.newKey();
    expect((await invoke(colleague, "read_result", wanted, { session_id: session })).status).toBe(404);
  });
});

describe(`results that come later ${verifies("CHAT-13")}`, () => {
  test("of an asynchronous call are read by its id: whole, in part, and on every instance", async () => {
    answerWith(json);
    const asked = await invoke(tenant.client, "lookup", { q: "x" }, { async: true });
    expect([asked.status, asked.json.status]).toEqual([202, "queued"]);
    const { id } = asked.json;
    expect(asked.json.url).toBe(`${gateway.url}/v1/calls/${id}`);
    expect(await ended(id)).toMatchObject({
      state: "completed",
      async: true,
      result: { complete: false, media_type: "application/json", bytes: Buffer.byteLength(json) },
    });
    const there = other.client(tenant.key);
    expect((await there.send("get", `/v1/calls/${id}/result`)).text).toBe(json);
    expect((await invoke(there, "read_result", { call_id: id, jsonpath: "$.items[7].name" })).json.content).toContain(
      "员工-7 Person",
    );
    const { client: colleague } = await tenant.newKey();
    expect((await colleague.send("get", `/v1/calls/${id}/result`)).status).toBe(404);
  });

  test("of an approved call come to the session's next request as head and handle, once, and can be read on", async () => {
    await tenant.addPlugin({ ...writingTool(backEnd), sensitive: true });
    answerWith(lines, "text/plain");
    const session = newId("session");
    llm.script(calls({ name: "create_order", arguments: { sku: "S1" } }), text("never"));
    const waiting = await chat(tenant.client, { session_id: session });
    const [pending] = waiting.tool_execution.pending;
    // Nothing is there yet, and the conversation goes on without it.
    llm.script(text("still waiting"));
    await chat(tenant.client, { session_id: session });
    expect(toolMessages()).toEqual([]);
    await tenant.client.post(`/v1/calls/${pending.call_id}/approve`);
    expect(await ended(pending.call_id)).toMatchObject({ state: "completed", session_id: session });
    llm.respond(({ messages }) => {
      const told = (messages as Json[]).filter(({ role }) => role === "tool");
      return told.length === 1 ? calls(readOn({ call_id: handleIn(told[0].content), line: 600 })) : text("read");
    });
    const answer = await chat(other.client(tenant.key), { session_id: session });
    expect(answer.choices[0].message.content).toBe("read");
    const [late = "", rest] = toolMessages();
    expect(handleIn(late)).toBe(pending.call_id);
    expect(Buffer.byteLength(late)).toBeLessThanOrEqual(resultBytes);
    expect(rest).toContain("600: ok 日志 line");
    const sent = llm.requests.at(-2)?.["messages"] as Json[];
    expect(sent.map(({ role }) => role)).toEqual(["assistant", "tool", "user"]);
    await expect
      .poll(async () => (await tenant.client.get("/v1/calls?kind=chat&state=running")).data.length, { timeout: 5_000 })
      .toBe(0);
    llm.script(text("nothing new"));
    await chat(tenant.client, { session_id: session });
    expect(toolMessages()).toEqual([]);
  });

  test("of a call that failed or was rejected are told as what they are", async () => {
    await tenant.addPlugin({ ...writingTool(backEnd), sensitive: true });
    for (const decision of ["approve", "reject"]) {
      backEnd.answer = () => ({ status: 422, body: '{"why":"sold out"}' });
      const session = newId("session");
      llm.script(calls({ name: "create_order", arguments: { sku: decision } }), text("never"));
      const [pending] = (await chat(tenant.client, { session_id: session })).tool_execution.pending;
      await tenant.client.post(`/v1/calls/${pending.call_id}/${decision}`, { reason: "because" });
      await ended(pending.call_id);
      llm.script(text("I see"));
      await chat(tenant.client, { session_id: session });
      const [told = ""] = toolMessages();
      expect(JSON.parse(told).error.code).toBe(decision === "approve" ? "tool_failed" : "call_rejected");
    }
    expect(backEnd.requests).toHaveLength(1);
  });
});
