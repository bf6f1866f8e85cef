/** Runs of flows as people and machines meet them: started, followed, cut off, told, triggered (FLOWRUN-1, MQ-3, URI-2). */
import { createHmac, randomBytes } from "node:crypto";
import { newId } from "@toolyard/core/ids";
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { callIn, childrenOf, publishFlow } from "../support/flows.ts";
import type { Client, Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { readingTool, writingTool } from "../support/http-tools.ts";
import { startLlmStub, text, type LlmStub, type Round } from "../support/llm-stub.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
/** Beside it, on the same database. */
let second: Gateway;
let backEnd: HttpStub;
let llm: LlmStub;
let tenant: TestTenant;

beforeAll(async () => {
  gateway = await startGateway();
  second = await startGateway({ sharedWith: gateway });
  [backEnd, llm] = await Promise.all([startHttpStub(), startLlmStub()]);
});
afterAll(async () => {
  await second.close();
  await Promise.all([gateway.close(), backEnd.close(), llm.close()]);
});
beforeEach(async () => {
  backEnd.requests.length = 0;
  backEnd.answer = () => ({ body: JSON.stringify({ total: 3 }), headers: { "content-type": "application/json" } });
  tenant = await gateway.newTenant();
  await tenant.addPlugin(readingTool(backEnd));
});

interface Event {
  readonly event: string;
  readonly id: string | undefined;
  readonly data: Json;
}

function eventsIn({ text: stream }: Pick<Reply, "text">): readonly Event[] {
  return stream.split("\n\n").flatMap((block) => {
    const line = (name: string): string | undefined =>
      block
        .split("\n")
        .find((each) => each.startsWith(`${name}: `))
        ?.slice(name.length + 2);
    const [event, data] = [line("event"), line("data")];
    return event === undefined || data === undefined ? [] : [{ event, id: line("id"), data: JSON.parse(data) }];
  });
}

const runWorkflow = (body: Json, headers: Record<string, string> = {}): Promise<Reply> =>
  tenant.client.send("post", "/v1/run_workflow", body, { headers });

const lookUp = {
  kind: "tool",
  description: "Looks it up.",
  uri: "plugin://lookup",
  arguments: { q: { $: "input.word" } },
};

describe(`running a workflow ${verifies("FLOWRUN-1")}`, () => {
  test("streams what its steps do, with one trace through events, calls and what leaves", async () => {
    await publishFlow(tenant, {
      name: "look",
      start: "find",
      nodes: { find: { ...lookUp, next: "end" }, end: { kind: "end", output: { $: "steps.find.output.total" } } },
    });
    const trace = "0af7651916cd43dd8448eb211c80319c";
    const answer = await runWorkflow(
      { workflow_id: "look", input: { word: "a" } },
      { traceparent: `00-${trace}-b7ad6b7169203331-01` },
    );
    expect(answer).toMatchObject({ status: 200 });
    expect(answer.headers.get("content-type")).toBe("text/event-stream");
    const events = eventsIn(answer);
    const told = events.filter(({ data }) => data.node !== "end").map(({ event }) => event);
    expect(told).toEqual(["tool_thinking", "tool_start", "tool_result", "done"]);
    const run = answer.headers.get("x-toolyard-call-id");
    for (const { event, data } of events) expect(data).toMatchObject({ type: event, trace_id: trace, run_id: run });
    expect(events.find(({ event }) => event === "tool_result")?.data).toMatchObject({
      step: "find",
      tool: "plugin://lookup",
      success: true,
      result: { total: 3 },
    });
    expect(events.at(-1)).toMatchObject({ event: "done", data: { output: 3 } });
    const [child] = await childrenOf(tenant, String(run));
    expect(child).toMatchObject({ trace_id: trace, root_id: run });
    expect(await tenant.client.get(`/v1/calls/${run}`)).toMatchObject({ trace_id: trace, state: "completed" });
    expect(backEnd.requests[0]?.headers["traceparent"]).toContain(trace);
  });

  test("says which flow is probably meant where there is none of that name", async () => {
    await publishFlow(tenant, { name: "look_up", start: "end", nodes: { end: { kind: "end" } } });
    const misspelt = await runWorkflow({ workflow_id: "lok_up", stream: false });
    expect(misspelt.json.error).toMatchObject({
      code: "flow_not_found",
      param: "workflow_id",
      message:
        "There is no published flow 'lok_up'; publish it with POST /v1/flows/{id}/publish, or is 'look_up' meant?",
    });
    const unlike = await runWorkflow({ workflow_id: "quarterly_report", stream: false });
    expect([unlike.status, unlike.json.error.message]).toEqual([
      404,
      "There is no published flow 'quarterly_report'; publish it with POST /v1/flows/{id}/publish.",
    ]);
  });

  test("has its trace in what is logged of it and of the calls below it", async () => {
    await publishFlow(tenant, {
      name: "look",
      start: "find",
      nodes: { find: { ...lookUp, next: "end" }, end: { kind: "end" } },
    });
    const trace = randomBytes(16).toString("hex");
    const { json: run } = await runWorkflow(
      { workflow_id: "look", input: { word: "a" }, stream: false },
      { traceparent: `00-${trace}-b7ad6b7169203331-01` },
    );
    const [child] = await childrenOf(tenant, run.id);
    const logged = [...gateway.logged, ...second.logged].filter(({ fields }) =>
      [run.id, child.id].includes(fields["call_id"]),
    );
    expect(logged.map(({ message, fields }) => [message, fields["call_id"]])).toEqual(
      expect.arrayContaining([
        ["the tool has answered", child.id],
        ["the tool has answered", run.id],
      ]),
    );
    expect(new Set(logged.map(({ fields }) => fields["trace_id"]))).toEqual(new Set([trace]));
  });

  test("is a tree with the chats of its steps in it", async () => {
    await tenant.addProvider(llm.url);
    llm.respond(() => text("Three."));
    const say = { kind: "model", messages: [{ role: "user", content: "How many?" }] };
    await publishFlow(tenant, { name: "inner", start: "say", nodes: { say } });
    await publishFlow(tenant, {
      name: "outer",
      start: "find",
      nodes: {
        find: { ...lookUp, next: "each" },
        each: {
          kind: "map",
          items: [1, 2],
          body: { start: "ask", nodes: { ask: { ...say, stream: true } } },
          next: "sub",
        },
        sub: { kind: "flow", name: "inner" },
      },
    });
    const { json: run } = await runWorkflow({ workflow_id: "outer", input: { word: "a" }, stream: false });
    expect(run).toMatchObject({ state: "completed" });
    const below = await childrenOf(tenant, run.id);
    expect(below.map(({ kind, uri }) => `${kind} ${String(uri).split("?", 1)[0]}`).toSorted(compare)).toEqual([
      "chat chat",
      "chat chat",
      "tool flow://inner",
      "tool plugin://lookup",
    ]);
    const sub = below.find(({ uri }) => String(uri).startsWith("flow://inner"));
    const [chat] = await childrenOf(tenant, sub?.id);
    const chain = [
      { kind: "flow", id: "outer" },
      { kind: "flow", id: "inner" },
    ];
    expect(chat).toMatchObject({ kind: "chat", caller: { chain: expect.arrayContaining(chain) } });
    const all = [...below, chat];
    expect(all.map(({ root_id: root, trace_id: id }) => [root, id])).toEqual(all.map(() => [run.id, run.trace_id]));
  });

  test("a workflow that there is not is a 404 before the stream, and so is a version", async () => {
    expect(await runWorkflow({ workflow_id: "none" })).toMatchObject({
      status: 404,
      json: { error: { code: "flow_not_found" } },
    });
    await publishFlow(tenant, { name: "one", start: "end", nodes: { end: { kind: "end" } } });
    expect(await runWorkflow({ workflow_id: "one", version: 2 })).toMatchObject({ status: 404 });
  });

  test("whoever is cut off goes on behind the last event, on any instance", async () => {
    await publishFlow(tenant, {
      name: "look",
      start: "first",
      nodes: { first: { ...lookUp, next: "last" }, last: { ...lookUp, next: "end" }, end: { kind: "end", output: 1 } },
    });
    const answer = await runWorkflow({ workflow_id: "look", input: { word: "a" } });
    const events = eventsIn(answer);
    const seen = events.findIndex(({ event }) => event === "tool_result");
    const run = answer.headers.get("x-toolyard-call-id");
    const rest = await second.client(tenant.key).send("get", `/v1/runs/${run}`, undefined, {
      headers: { accept: "text/event-stream", "last-event-id": String(events[seen]?.id) },
    });
    expect(eventsIn(rest)).toEqual(events.slice(seen + 1));
  });

  test("an error ends the stream as an event, and without a stream the run says it", async () => {
    backEnd.answer = () => ({ status: 500, body: "no" });
    await publishFlow(tenant, { name: "look", start: "find", nodes: { find: lookUp } });
    const events = eventsIn(await runWorkflow({ workflow_id: "look", input: { word: "a" } }));
    expect(events.at(-2)).toMatchObject({ event: "tool_result", data: { success: false, step: "find" } });
    expect(events.at(-1)).toMatchObject({
      event: "error",
      data: { state: "failed", error: { code: expect.any(String) } },
    });
    const plain = await runWorkflow({ workflow_id: "look", input: { word: "a" }, stream: false });
    expect(plain).toMatchObject({
      status: 200,
      json: { object: "run", state: "failed", steps: [{ path: "find", state: "failed" }] },
    });
  });

  test("what a model says comes in pieces, and the run's output has the whole", async () => {
    await tenant.addProvider(llm.url);
    llm.script(text("The total is three."));
    await publishFlow(tenant, {
      name: "say",
      start: "answer",
      nodes: {
        answer: {
          kind: "model",
          stream: true,
          messages: [{ role: "user", content: { $: "input.word" } }],
          next: "end",
        },
        end: { kind: "end", output: { $: "steps.answer.output.text" } },
      },
    });
    const events = eventsIn(await runWorkflow({ workflow_id: "say", input: { word: "How many?" } }));
    const said = events.filter(({ event }) => event === "message_chunk").map(({ data }) => data.text as string);
    expect(said.join("")).toBe("The total is three.");
    expect(events.at(-1)).toMatchObject({ event: "done", data: { output: "The total is three." } });
  });

  test("goes on when the client leaves, unless that is to cancel it", async () => {
    await publishFlow(tenant, { name: "idle", start: "wait", nodes: { wait: { kind: "wait", signal: "never" } } });
    const leave = async (more: Json): Promise<string> => {
      const controller = new AbortController();
      const answer = await fetch(`${gateway.url}/v1/run_workflow`, {
        method: "post",
        headers: { authorization: `Bearer ${tenant.key}`, "content-type": "application/json" },
        body: JSON.stringify({ workflow_id: "idle", ...more }),
        signal: controller.signal,
      });
      const reader = answer.body?.getReader();
      await reader?.read();
      controller.abort();
      return String(answer.headers.get("x-toolyard-call-id"));
    };
    const [stays, goes] = [await leave({}), await leave({ cancel_on_disconnect: true })];
    await callIn(tenant, goes, ["cancelled"]);
    expect(await tenant.client.get(`/v1/runs/${stays}`)).toMatchObject({ state: "waiting" });
    await tenant.client.post(`/v1/runs/${stays}/cancel`);
  });

  test("is waited for as long as the page says where no stream is wanted", async () => {
    await publishFlow(tenant, { name: "idle", start: "wait", nodes: { wait: { kind: "wait", signal: "never" } } });
    // By the gateway's clock, which stands still but where it is put forward.
    let now = Date.now();
    const clock = vi.spyOn(gateway.core.clock, "now").mockImplementation(() => now);
    const looks = vi.spyOn(gateway.core.repos.calls, "get");
    onTestFinished(() => {
      clock.mockRestore();
      looks.mockRestore();
    });
    const twoMoreLooks = (): Promise<void> => {
      const before = looks.mock.calls.length;
      return until(() => Promise.resolve(looks.mock.calls.length >= before + 2));
    };
    let isAnswered = false;
    const answer = runWorkflow({ workflow_id: "idle", stream: false }).finally(() => {
      isAnswered = true;
    });
    await twoMoreLooks();
    now += 24_900;
    await twoMoreLooks();
    expect(isAnswered).toBe(false);
    now += 200;
    const { status, json } = await answer;
    expect({ status, state: json.state }).toEqual({ status: 202, state: "waiting" });
    await tenant.client.post(`/v1/runs/${json.id}/cancel`);
  });

  test("the same key is the same run", async () => {
    await publishFlow(tenant, { name: "look", start: "find", nodes: { find: lookUp } });
    const key = { "idempotency-key": newId("request") };
    const body = { workflow_id: "look", input: { word: "a" }, stream: false };
    const [one, two] = [await runWorkflow(body, key), await runWorkflow(body, key)];
    expect(two.json.id).toBe(one.json.id);
    expect(two.headers.get("idempotent-replayed")).toBe("true");
    expect(backEnd.requests).toHaveLength(1);
  });
});

describe("a run under way", () => {
  test("waits for a signal, which is one however often it is sent, and for a person's approval", async () => {
    await publishFlow(tenant, {
      name: "ask",
      start: "wait",
      nodes: {
        wait: { kind: "wait", signal: "paid", next: "sure" },
        sure: { kind: "approval", message: "Send it?", next: "end" },
        end: { kind: "end", output: { $: "steps.wait.output" } },
      },
    });
    const { json: run } = await runWorkflow({ workflow_id: "ask", stream: false, wait: false });
    const signal = { name: "paid", token: "t-1", payload: { amount: 5 } };
    expect(await tenant.client.post(`/v1/runs/${run.id}/signal`, signal)).toMatchObject({ replayed: false });
    expect(await second.client(tenant.key).post(`/v1/runs/${run.id}/signal`, signal)).toMatchObject({ replayed: true });
    await until(async () =>
      (await tenant.client.get(`/v1/runs/${run.id}`)).steps.some(
        ({ path, state }: Json) => path === "sure" && state === "waiting",
      ),
    );
    await tenant.client.post(`/v1/runs/${run.id}/approve`, { reason: "It is paid." });
    await callIn(tenant, run.id);
    expect(await tenant.client.get(`/v1/runs/${run.id}`)).toMatchObject({ state: "completed", output: { amount: 5 } });
    expect((await tenant.client.get("/v1/runs?flow=ask")).data).toHaveLength(1);
  });

  test("is told a person's word about a tool of a step that waits for approval", async () => {
    await tenant.addPlugin({ ...writingTool(backEnd, "pay"), sensitive: true });
    const pay = { kind: "tool", name: "pay", arguments: { sku: "1" }, on_error: "refused", next: "paid" };
    await publishFlow(tenant, {
      name: "pays",
      start: "pay",
      nodes: {
        pay,
        paid: { kind: "end", output: "paid" },
        refused: { kind: "end", output: { $: "steps.pay.error.code" } },
      },
    });
    const answered = async (verb: string, again: string): Promise<unknown> => {
      const { id } = await tenant.client.post("/v1/run_workflow", { workflow_id: "pays", stream: false, wait: false });
      await expect
        .poll(async () => (await tenant.client.get(`/v1/calls?state=input_required&parent_id=${id}`)).data.length)
        .toBe(1);
      const said = await tenant.client.send("post", `/v1/runs/${id}/${verb}`, { step: "pay" });
      expect(said.status, said.text).toBe(200);
      // The same word changes nothing, another one is too late.
      expect((await tenant.client.send("post", `/v1/runs/${id}/${verb}`)).status).toBe(200);
      expect((await tenant.client.send("post", `/v1/runs/${id}/${again}`)).status).toBe(409);
      await callIn(tenant, id);
      // Nor does it when the step is over.
      for (const body of [{}, { step: "pay" }]) {
        expect((await tenant.client.send("post", `/v1/runs/${id}/${verb}`, body)).status).toBe(200);
        expect((await tenant.client.send("post", `/v1/runs/${id}/${again}`, body)).status).toBe(409);
      }
      return (await tenant.client.get(`/v1/runs/${id}`)).output;
    };
    backEnd.requests.length = 0;
    expect(await answered("approve", "reject")).toBe("paid");
    expect(backEnd.requests).toHaveLength(1);
    expect(await answered("reject", "approve")).toBe("call_rejected");
    expect(backEnd.requests).toHaveLength(1);
  });

  test("is told the same word again to the last of several questions", async () => {
    await publishFlow(tenant, {
      name: "asks_twice",
      start: "first",
      nodes: {
        first: { kind: "approval", message: "Send it?", next: "second" },
        second: { kind: "approval", message: "To all?", next: "end" },
        end: { kind: "end", output: "sent" },
      },
    });
    const { json: run } = await runWorkflow({ workflow_id: "asks_twice", stream: false, wait: false });
    const say = (verb: string): Promise<Json> => tenant.client.send("post", `/v1/runs/${run.id}/${verb}`);
    for (const asking of ["first", "second"]) {
      await until(async () =>
        (await tenant.client.get(`/v1/runs/${run.id}`)).steps.some(
          ({ path, state }: Json) => path === asking && state === "waiting",
        ),
      );
      expect((await say("approve")).status).toBe(200);
    }
    expect([(await say("approve")).status, (await say("reject")).status]).toEqual([200, 409]);
    await callIn(tenant, run.id);
    expect([(await say("approve")).status, (await say("reject")).status]).toEqual([200, 409]);
  });

  test("is told of a signal that nobody will take, or that its token cannot be", async () => {
    const inner = {
      kind: "map",
      items: [1],
      body: { start: "deep", nodes: { deep: { kind: "wait", signal: "shipped" } } },
    };
    await publishFlow(tenant, {
      name: "strict",
      start: "wait",
      nodes: { wait: { kind: "wait", signal: "paid", next: "each" }, each: inner },
    });
    const { json: run } = await runWorkflow({ workflow_id: "strict", stream: false, wait: false });
    const tell = (body: Json, by = tenant.client): Promise<Json> => by.send("post", `/v1/runs/${run.id}/signal`, body);
    expect(await tell({ name: "payed", token: "t-1" })).toMatchObject({
      status: 400,
      json: {
        error: { code: "invalid_request", param: "name", message: expect.stringMatching(/'payed'.*paid, shipped/) },
      },
    });
    const signal = { name: "paid", token: "t-1", payload: { amount: 5, of: ["a"] } };
    expect((await tell(signal)).json).toMatchObject({ replayed: false });
    const elsewhere = second.client(tenant.key);
    expect((await tell({ ...signal, payload: { of: ["a"], amount: 5 } }, elsewhere)).json).toMatchObject({
      replayed: true,
    });
    for (const other of [
      { ...signal, name: "shipped" },
      { ...signal, payload: { amount: 6, of: ["a"] } },
    ]) {
      expect(await tell(other, elsewhere)).toMatchObject({
        status: 422,
        json: { error: { code: "idempotency_key_reused", param: "token" } },
      });
    }
    await tell({ name: "shipped", token: "t-2" });
    expect(await callIn(tenant, run.id)).toMatchObject({ state: "completed" });
  });

  test("says of a form that is filled in wrongly where that is, and gives on what was filled in", async () => {
    const form = { type: "object", properties: { note: { type: "string" } }, required: ["note"] };
    await publishFlow(tenant, {
      name: "noted",
      start: "ask",
      nodes: {
        ask: { kind: "approval", message: "Send it?", form, next: "end" },
        end: { kind: "end", output: { $: "steps.ask.output" } },
      },
    });
    const { json: run } = await runWorkflow({ workflow_id: "noted", stream: false, wait: false });
    const approve = (body: Json): Promise<Json> => tenant.client.send("post", `/v1/runs/${run.id}/approve`, body);
    await until(async () => (await tenant.client.get(`/v1/runs/${run.id}`)).state === "waiting");
    expect(await approve({ input: {} })).toMatchObject({
      status: 400,
      json: { error: { param: "input", message: expect.stringMatching(/^'input' does not fit.*\/note/) } },
    });
    expect((await approve({ input: { note: "hello" } })).status).toBe(200);
    await callIn(tenant, run.id);
    expect((await approve({ input: { note: "hello" } })).status).toBe(200);
    expect((await tenant.client.get(`/v1/runs/${run.id}`)).output).toEqual({
      decision: "approved",
      input: { note: "hello" },
    });
  });

  test("shows who decides and may not read it what was decided alone, and to others not what waits in it", async () => {
    const ask = { kind: "approval", message: "Send it?" };
    await publishFlow(tenant, {
      name: "secretive",
      start: "find",
      nodes: {
        find: { ...lookUp, next: "both" },
        both: {
          kind: "parallel",
          branches: { one: { start: "here", nodes: { here: ask } }, two: { start: "there", nodes: { there: ask } } },
          next: "end",
        },
        end: { kind: "end", output: { $: "steps.find.output" } },
      },
    });
    const { json: run } = await runWorkflow({
      workflow_id: "secretive",
      input: { word: "a" },
      stream: false,
      wait: false,
    });
    await until(async () => (await tenant.client.get(`/v1/runs/${run.id}`)).state === "waiting");
    const { client: nobody } = await tenant.newKey({ scopes: ["tools"] });
    const { client: decides } = await tenant.newKey({ scopes: ["approve"] });
    const approve = (client: Client, step?: string): Promise<Reply> =>
      client.send("post", `/v1/runs/${run.id}/approve`, step === undefined ? {} : { step });
    const hidden = await approve(nobody);
    expect([hidden.status, hidden.json.error.param]).toEqual([403, "approve"]);
    expect((await nobody.send("post", "/v1/runs/call_none/approve", {})).json.error.message).toBe(
      hidden.json.error.message,
    );
    expect((await approve(decides)).json.error.message).toContain("both.one/here, both.two/there");
    for (const step of ["both.one/here", "both.two/there", "both.one/here"]) {
      const { status, json } = await approve(decides, step);
      expect({ status, ...json }).toMatchObject({ status: 200, id: run.id, output: null, output_url: null });
      expect(json.steps.map(({ path }: Json) => path)).toEqual([step]);
    }
    await callIn(tenant, run.id);
    expect((await approve(decides, "both.two/there")).json).toMatchObject({ state: "completed", output: null });
    expect((await decides.send("get", `/v1/runs/${run.id}`)).status).toBe(404);
    expect((await approve(tenant.client, "both.two/there")).json.steps).toHaveLength(5);
  });

  test("can be cancelled, and run again from a step", async () => {
    await publishFlow(tenant, {
      name: "slow",
      start: "find",
      nodes: { find: { ...lookUp, next: "wait" }, wait: { kind: "wait", signal: "never" } },
    });
    const { json: run } = await runWorkflow({ workflow_id: "slow", input: { word: "a" }, stream: false, wait: false });
    await until(async () => (await tenant.client.get(`/v1/runs/${run.id}`)).state === "waiting");
    await tenant.client.post(`/v1/runs/${run.id}/cancel`);
    await callIn(tenant, run.id, ["cancelled"]);
    const again = await tenant.client.post(`/v1/runs/${run.id}/replay`, { from: "wait" });
    await until(async () => (await tenant.client.get(`/v1/runs/${again.id}`)).state === "waiting");
    expect(backEnd.requests).toHaveLength(1);
    await tenant.client.post(`/v1/runs/${again.id}/cancel`);
  });

  test("is run again once for each key, which is good for the same replay only", async () => {
    await publishFlow(tenant, { name: "twice", start: "find", nodes: { find: lookUp } });
    const run = async (): Promise<string> =>
      (await runWorkflow({ workflow_id: "twice", input: { word: "a" }, stream: false })).json.id;
    const [one, another] = [await run(), await run()];
    const replay = (id: string, body: Json = {}): Promise<Reply> =>
      tenant.client.send("post", `/v1/runs/${id}/replay`, body, { headers: { "idempotency-key": "again" } });
    const first = await replay(one, { from: "find" });
    expect(first.status).toBe(202);
    const repeated = await replay(one, { from: "find" });
    expect(repeated.json.id).toBe(first.json.id);
    expect(repeated.headers.get("idempotent-replayed")).toBe("true");
    for (const reused of [await replay(one), await replay(another, { from: "find" })]) {
      expect([reused.status, reused.json.error.code]).toEqual([422, "idempotency_key_reused"]);
    }
  });
});

/** As a back end answers that is not asked for a stream. */
function wholeAnswer(content: string): Round {
  return {
    json: {
      id: "c1",
      object: "chat.completion",
      created: 1,
      model: "stub-1",
      choices: [{ index: 0, message: { role: "assistant", content }, finish_reason: "stop" }],
      usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
    },
  };
}

function compare(one: string, other: string): number {
  return one < other ? -1 : 1;
}

async function until(holds: () => Promise<boolean>): Promise<void> {
  for (const end = performance.now() + 20_000; !(await holds());) {
    if (performance.now() > end) throw new Error("It never came to that.");
    await new Promise((done) => setTimeout(done, 50));
  }
}

describe(`a malformed address in a flow ${verifies("URI-2")}`, () => {
  const bad = { kind: "tool", uri: { $: "input.uri" } };

  test("ends the flow with the reason", async () => {
    await publishFlow(tenant, { name: "any", start: "call", nodes: { call: bad } });
    const { json } = await runWorkflow({ workflow_id: "any", input: { uri: "invalid-uri" }, stream: false });
    expect(json).toMatchObject({ state: "failed", steps: [{ path: "call", error: { code: "invalid_uri" } }] });
    expect(json.steps[0].error.message).toContain("scheme://");
  });

  test("or leads to the node for errors", async () => {
    await publishFlow(tenant, {
      name: "any",
      start: "call",
      nodes: {
        call: { ...bad, on_error: "sorry" },
        sorry: { kind: "fail", code: "bad_address", message: { $: "steps.call.error.code" } },
      },
    });
    const { json } = await runWorkflow({ workflow_id: "any", input: { uri: "invalid-uri" }, stream: false });
    expect(json).toMatchObject({ state: "failed" });
    expect(JSON.stringify(json.error)).toContain("bad_address");
    expect(JSON.stringify(json.error)).toContain("invalid_uri");
  });
});

describe("a hook", () => {
  let id: string;
  beforeEach(async () => {
    id = await publishFlow(tenant, {
      name: "hooked",
      start: "end",
      nodes: { end: { kind: "end", output: { $: "input" } } },
    });
  });
  const hook = (body: Json = {}): Promise<Json> =>
    tenant.client.post(`/v1/flows/${id}/hooks`, { name: "shop", ...body });
  const deliver = (url: string, body: string, headers: Record<string, string> = {}): Promise<Reply> =>
    gateway.nobody.send("post", new URL(url).pathname, undefined, {
      raw: body,
      headers: { "content-type": "application/json", ...headers },
    });

  const signedWith = (secret: string, body: string, at = Math.floor(Date.now() / 1_000)): Record<string, string> => {
    const mac = createHmac("sha256", Buffer.from(secret.slice("whsec_".length), "base64")).update(`d1.${at}.${body}`);
    return { "webhook-id": "d1", "webhook-timestamp": String(at), "webhook-signature": `v1,${mac.digest("base64")}` };
  };

  test("says what it takes where it is sent something else", async () => {
    const { url } = await hook();
    for (const headers of [{}, { "content-type": "application/x-www-form-urlencoded" }]) {
      const { status, json } = await deliver(url, "a=b", headers);
      expect([status, json.error]).toMatchObject([
        400,
        { code: "invalid_json", message: expect.stringContaining("takes JSON") },
      ]);
    }
  });

  test("starts a run with the body as its input, once for each delivery", async () => {
    const { url, id: hookId } = await hook();
    const [one, two] = [
      await deliver(url, '{"order":1}', { "webhook-id": "d1" }),
      await deliver(url, '{"order":1}', { "webhook-id": "d1" }),
    ];
    expect([one.status, two.status]).toEqual([202, 202]);
    expect(two.json.run_id).toBe(one.json.run_id);
    await callIn(tenant, one.json.run_id);
    const run = await tenant.client.get(`/v1/runs/${one.json.run_id}`);
    expect(run).toMatchObject({ state: "completed", output: { order: 1 } });
    expect(await tenant.client.get(`/v1/calls/${run.id}`)).toMatchObject({ caller: { id: hookId } });
  });

  test("is nothing under another address, disabled, rotated or deleted", async () => {
    const { url, id: hookId } = await hook();
    expect((await deliver(`${url}x`, "{}")).status).toBe(404);
    await tenant.client.expect("patch", `/v1/flows/${id}/hooks/${hookId}`, { enabled: false });
    expect((await deliver(url, "{}")).status).toBe(404);
    await tenant.client.expect("patch", `/v1/flows/${id}/hooks/${hookId}`, { enabled: true });
    const rotated = await tenant.client.post(`/v1/flows/${id}/hooks/${hookId}/rotate`);
    expect([(await deliver(url, "{}")).status, (await deliver(rotated.url, "{}")).status]).toEqual([404, 202]);
    await tenant.client.expect("delete", `/v1/flows/${id}/hooks/${hookId}`);
    expect((await deliver(rotated.url, "{}")).status).toBe(404);
  });

  test("that is signed takes only what its secret signs", async () => {
    const { url, secret } = await hook({ signed: true });
    const sign = (body: string, at?: number): Record<string, string> => signedWith(secret, body, at);
    expect((await deliver(url, "{}")).json.error.code).toBe("invalid_callback_proof");
    expect((await deliver(url, "{}", sign("[]"))).status).toBe(401);
    expect((await deliver(url, "{}", sign("{}", 1_000))).status).toBe(401);
    expect((await deliver(url, "{}", sign("{}"))).status).toBe(202);
  });

  test("gets another secret with its other address where it is signed", async () => {
    const made = await hook({ signed: true });
    for (const body of [undefined, { signed: true }]) {
      const rotated = await tenant.client.post(`/v1/flows/${id}/hooks/${made.id}/rotate`, body);
      expect(rotated).toMatchObject({ signed: true, secret: expect.stringMatching(/^whsec_/) });
      expect((await deliver(rotated.url, "{}", signedWith(made.secret, "{}"))).status).toBe(401);
      expect((await deliver(rotated.url, "{}", signedWith(rotated.secret, "{}"))).status).toBe(202);
    }
    const plain = await hook();
    const rotate = `/v1/flows/${id}/hooks/${plain.id}/rotate`;
    const still = await tenant.client.post(rotate);
    expect([still.signed, still.secret]).toEqual([false, undefined]);
    expect(await tenant.client.post(rotate, { signed: true })).toMatchObject({ signed: true });
  });

  test("tells deliveries apart by the whole of their names, and those without a name are each one's own", async () => {
    const { url } = await hook();
    const runOf = async (headers: Record<string, string>): Promise<string> =>
      (await deliver(url, "{}", headers)).json.run_id;
    const long = "x".repeat(255);
    const runs = [
      await runOf({ "webhook-id": `${long}1` }),
      await runOf({ "webhook-id": `${long}2` }),
      await runOf({ "webhook-id": "" }),
      await runOf({ "webhook-id": "" }),
      await runOf({ "webhook-id": "", "idempotency-key": "k" }),
    ];
    expect(new Set(runs).size).toBe(runs.length);
    expect(await runOf({ "webhook-id": `${long}1` })).toBe(runs[0]);
    expect(await runOf({ "webhook-id": "", "idempotency-key": "k" })).toBe(runs.at(-1));
  });

  test("is not made by a key that may use fewer tools than its runs would", async () => {
    const { id: hookId } = await hook();
    const { client } = await tenant.newKey({ scopes: ["manage", "tools"], tools: ["crm_*"] });
    for (const path of [`/v1/flows/${id}/hooks`, `/v1/flows/${id}/hooks/${hookId}/rotate`]) {
      const { status, json } = await client.send("post", path, path.endsWith("rotate") ? {} : { name: "own" });
      expect([status, json.error.code]).toEqual([403, "permission_denied"]);
      expect(json.error.message).toContain("a key that is bound to none");
    }
    const manager = await tenant.newKey({ scopes: ["manage"] });
    const { json } = await manager.client.send("post", `/v1/flows/${id}/hooks`, { name: "own" });
    expect(json.error.message).toContain("lacks the scope 'tools'");
    const unbound = await tenant.newKey({ scopes: ["manage", "tools"] });
    expect((await unbound.client.post(`/v1/flows/${id}/hooks`, { name: "own" })).id).toMatch(/^fhk_/);
  });
});

describe(`shipped flows ${verifies("FLOWRUN-1")}`, () => {
  test("answer from knowledge, with the passages that the answer rests on", async () => {
    const owner = await gateway.newTenant({ native_tools: ["knowledge_search"] });
    await owner.addProvider(llm.url);
    llm.script(text("Lamps may be returned within 30 days [1]."));
    await owner.client.post("/v1/knowledge/create", { name: "handbook" });
    const { id } = await owner.client.post("/v1/knowledge/upsert", {
      knowledge_base: "handbook",
      name: "returns.md",
      text: "Lamps may be returned within thirty days.",
    });
    const about = { knowledge_base: "handbook", document_id: id };
    await until(async () => (await owner.client.post("/v1/knowledge/get_doc", about)).state === "ready");
    const answer = await owner.client.send("post", "/v1/run_workflow", {
      workflow_id: "knowledge_rag",
      input: { query: "How long may lamps be returned?", knowledge_bases: ["handbook"] },
    });
    const events = eventsIn(answer);
    expect(events.map(({ event }) => event)).toEqual(
      expect.arrayContaining(["tool_start", "tool_result", "message_chunk"]),
    );
    expect(events.at(-1)).toMatchObject({
      event: "done",
      data: {
        output: {
          answer: "Lamps may be returned within 30 days [1].",
          sources: [{ number: 1, document_name: "returns.md", document_id: id }],
        },
      },
    });
    expect(JSON.stringify(llm.requests.at(-1))).toContain("Lamps may be returned within thirty days.");
  });

  test("search a question over several rounds, read what is found, and cite what they have read", async () => {
    const owner = await gateway.newTenant({
      native_tools: ["deep_search", "fetch"],
      deep_search_sources: [{ tool: "lookup", query: "q" }],
    });
    await owner.addProvider(llm.url);
    await owner.addPlugin(readingTool(backEnd));
    const reading = "<html><body><script>x()</script><p>The tower is 12 m high.</p></body></html>";
    backEnd.answer = ({ target }) =>
      target.startsWith("/tower")
        ? { headers: { "content-type": "text/html" }, body: reading }
        : {
            headers: { "content-type": "application/json" },
            body: JSON.stringify({
              results: [{ title: "The tower", url: `${backEnd.url}/tower`, snippet: "A tower." }],
            }),
          };
    const verdicts = ['{"sufficient":false,"queries":["tower metres"]}', '{"sufficient":true}'];
    llm.respond((body) => {
      const [system] = body["messages"] as Json[];
      const said = String(system.content);
      const words = said.startsWith("You plan")
        ? '{"queries":["tower height"]}'
        : said.startsWith("You judge")
          ? (verdicts.shift() ?? "")
          : "Twelve metres [1], they say [9].";
      return body["stream"] === true ? text(words) : wholeAnswer(words);
    });
    const answer = await owner.client.send("post", "/v1/run_workflow", {
      workflow_id: "deep_search",
      input: { question: "How high is the tower?", max_rounds: 3 },
    });
    const events = eventsIn(answer);
    expect(events.map(({ event }) => event)).toEqual(expect.arrayContaining(["tool_start", "tool_result"]));
    expect(events.at(-1)).toMatchObject({
      event: "done",
      data: {
        output: {
          answer: "Twelve metres [1], they say.",
          citations: [
            {
              number: 1,
              title: "The tower",
              url: `${backEnd.url}/tower`,
              excerpt: expect.stringContaining("12 m high"),
            },
          ],
          dropped_citations: [9],
          queries: ["tower height", "tower metres"],
          rounds: 2,
        },
      },
    });
    const run = String(answer.headers.get("x-toolyard-call-id"));
    const [search] = await childrenOf(owner, run);
    expect(search).toMatchObject({
      uri: expect.stringContaining("native://deep_search"),
      state: "completed",
      root_id: run,
    });
    const kinds = (await childrenOf(owner, search.id)).map(({ kind, tool }) => (kind === "chat" ? kind : tool));
    expect(new Set(kinds)).toEqual(new Set(["chat", "lookup", "fetch"]));
    expect(backEnd.requests.map(({ target }) => target).filter((target) => target.startsWith("/tower"))).toHaveLength(
      1,
    );
  });

  test("are started by a hook of their own", async () => {
    const { url } = await tenant.client.post("/v1/flows/deep_search/hooks", { name: "questions" });
    const { status, json } = await gateway.nobody.send("post", new URL(url).pathname, { question: "How high?" });
    expect(status).toBe(202);
    // This tenant has not switched the tool on.
    expect(await callIn(tenant, json.run_id)).toMatchObject({ state: "failed", error: { code: "flow_failed" } });
    expect(await tenant.client.get(`/v1/runs/${json.run_id}`)).toMatchObject({
      flow: "deep_search",
      steps: [{ path: "search", state: "failed", error: { code: "tool_not_found" } }],
    });
    expect((await tenant.client.send("post", "/v1/flows/deep_surge/hooks", { name: "x" })).status).toBe(404);
  });

  test("are there for every tenant, and one of the tenant's own takes the place", async () => {
    const missing = await runWorkflow({ workflow_id: "knowledge_rag", input: {} });
    expect(missing).toMatchObject({ status: 400, json: { error: { code: "invalid_arguments" } } });
    await publishFlow(tenant, { name: "knowledge_rag", start: "end", nodes: { end: { kind: "end", output: "ours" } } });
    const { json } = await runWorkflow({ workflow_id: "knowledge_rag", stream: false });
    expect(json).toMatchObject({ state: "completed", output: "ours" });
  });
});
