/** One row that cannot be read, since a newer release or other software has written it, stops nothing else. */
import { deliverWebhooks } from "@toolyard/core/webhooks/deliver";
import { openDatabase } from "@toolyard/db/client";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { startEmbeddingStub, type EmbeddingStub } from "../support/embedding-stub.ts";
import { publishFlow } from "../support/flows.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Client, Json, TestTenant } from "../support/gateway-client.ts";
import { hashedVector } from "../support/hashed-vectors.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { readingTool } from "../support/http-tools.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
/** Beside it, on the same database, and it does nothing by itself. */
let second: Gateway;
let stub: HttpStub;
let embeddings: EmbeddingStub;
let tenant: TestTenant;
let client: Client;

beforeAll(async () => {
  [gateway, stub] = await Promise.all([startGateway({ tickEveryMs: 3_600_000 }), startHttpStub()]);
  embeddings = await startEmbeddingStub({ toVector: (text) => [...hashedVector(text, 16)] });
  second = await startGateway({ requestsOnly: true, sharedWith: gateway });
  tenant = await gateway.newTenant();
  ({ client } = tenant);
  await tenant.addPlugin(readingTool(stub, "look"));
  await tenant.addProvider(embeddings.url, { models: { "embed-1": "embed-1" } });
});
afterAll(async () => {
  await second.close();
  await Promise.all([gateway.close(), stub.close(), embeddings.close()]);
});

const run = async (sql: string, ...args: readonly string[]): Promise<void> => {
  const database = await openDatabase({ url: gateway.databaseUrl });
  await database.batch([{ sql, args }]);
  await database.close();
};
const invoke = async (from: Client): Promise<string> => {
  const { headers } = await from.send("post", "/v1/tools/invoke", { name: "look", arguments: { q: "x" } });
  return headers.get("x-toolyard-call-id") ?? "";
};
/** As a newer release may have written it: JSON, but of no kind that is known here. */
const newer = '{"of":"tomorrow"}';
const at = "CAST(unixepoch('subsec') * 1000 AS INTEGER)";
const dueNow = `UPDATE schedules SET next_at = ${at}, timing = json_set(timing, '$.first', ${at}) WHERE tenant = ?1`;
const told = (table: string): readonly unknown[] =>
  gateway.logged.flatMap(({ message, fields }) =>
    message === "a stored row cannot be read" && fields["table"] === table ? [fields] : [],
  );

describe(`a call that cannot be read ${verifies("CHAT-13", "CFG-3")}`, () => {
  test("says so where it is asked for, by its column, and has its line among all others", async () => {
    const ids = [await invoke(client), await invoke(client), await invoke(client)];
    const [, broken = ""] = ids;
    await run("UPDATE calls SET caller_chain = ? WHERE id = ?", newer, broken);
    const { status, json } = await client.send("get", `/v1/calls/${broken}`);
    expect([status, json.error]).toMatchObject([500, { code: "internal_error" }]);
    expect(json.error.message).toContain(`Row '${broken}' of table calls cannot be read ('caller_chain'`);
    const lines = (await client.send("get", "/v1/calls/export")).text.trim().split("\n");
    const exported = lines.map((line): Json => JSON.parse(line));
    expect(exported.map(({ id }) => id)).toEqual(ids);
    expect(exported[1]).toEqual({ id: broken, object: "call", unreadable: true });
    const { data, unreadable } = await client.get("/v1/calls");
    expect(data.map(({ id }: Json) => id)).toEqual([ids[2], ids[0]]);
    expect(unreadable).toEqual([
      { id: broken, message: expect.stringMatching(/^It cannot be read: 'caller_chain' .*newer release/) },
    ]);
    expect(told("calls")).toContainEqual(expect.objectContaining({ tenant: tenant.id, row: broken }));
  });
});

describe(`what a newer release, or another key, has left ${verifies("CHAT-13", "CFG-3")}`, () => {
  test("of a call's state is not told as one of ours", async () => {
    const id = await invoke(client);
    await run("UPDATE calls SET state = ? WHERE id = ?", "frozen", id);
    const { data, unreadable } = await client.get("/v1/calls");
    expect(data.map((call: Json) => call.id)).not.toContain(id);
    expect(unreadable).toContainEqual({ id, message: expect.stringContaining("'state'") });
    const { json } = await client.send("post", `/v1/calls/${id}/cancel`);
    expect(json.error.message).toContain(`Row '${id}' of table calls`);
  });

  test("of what a call was given ends that call, and says which", async () => {
    await tenant.addPlugin({ ...readingTool(stub, "guarded"), sensitive: true });
    const { json: asked } = await client.send("post", "/v1/tools/invoke", {
      name: "guarded",
      arguments: { q: "x" },
      async: true,
    });
    const { id } = asked;
    await run("UPDATE calls SET input = ? WHERE id = ?", "sealed with another key", id);
    await client.post(`/v1/calls/${id}/approve`);
    const told = async (): Promise<Json> => (await client.get(`/v1/calls/${id}`)).error;
    await vi.waitFor(async () => expect(await told()).not.toBeNull(), { timeout: 10_000, interval: 50 });
    expect(await told()).toEqual({
      code: "credential_unreadable",
      message: `What call '${id}' was given cannot be opened with this tenant's key; ask for it anew.`,
    });
  });

  test("of a step ends its run, and says which", async () => {
    await publishFlow(tenant, {
      name: "paying",
      start: "look",
      nodes: {
        look: { kind: "tool", name: "look", arguments: { q: "x" }, next: "paid" },
        paid: { kind: "wait", signal: "paid", timeout_ms: 60_000, next: "done" },
        done: { kind: "end" },
      },
    });
    const { id } = await client.post("/v1/run_workflow", { workflow_id: "paying", stream: false, wait: false });
    const statesOf = async (): Promise<readonly string[]> =>
      (await client.get(`/v1/runs/${id}`)).steps.map(({ state }: Json) => state);
    await vi.waitFor(async () => expect(await statesOf()).toEqual(["completed", "waiting"]), {
      timeout: 10_000,
      interval: 50,
    });
    await run("UPDATE flow_steps SET error = ? WHERE run = ? AND node = 'look'", newer, id);
    const message = expect.stringMatching(/^Row 'look' of table flow_steps cannot be read \('error/);
    expect((await client.send("get", `/v1/runs/${id}`)).json.error).toMatchObject({ message });
    await client.post(`/v1/runs/${id}/signal`, { name: "paid", token: "one", payload: {} });
    await vi.waitFor(async () => expect((await client.get(`/v1/calls/${id}`)).error).toMatchObject({ message }), {
      timeout: 20_000,
      interval: 100,
    });
  });
});

describe(`a knowledge base, or a document, that cannot be read ${verifies("KB-1", "CFG-3")}`, () => {
  test("is named in its list, and the others are found", async () => {
    const bases = [];
    for (const name of ["harbour", "island"]) {
      const { id } = await client.post("/v1/knowledge/create", {
        name,
        config: { embedding: { model: "embed-1", dimensions: 16 } },
      });
      bases.push(String(id));
      for (const text of ["The ferry leaves at nine.", "The ferry is painted blue."])
        await client.post("/v1/knowledge/upsert", { knowledge_base: id, text, name: text });
    }
    const [base = "", other = ""] = bases;
    const documents = async (): Promise<Json> => client.post("/v1/knowledge/list_docs", { knowledge_base: base });
    await vi.waitFor(
      async () => expect((await documents()).data.map(({ state }: Json) => state)).toEqual(["ready", "ready"]),
      { timeout: 20_000, interval: 50 },
    );
    const [document] = (await documents()).data;
    await run("UPDATE knowledge_documents SET metadata = ? WHERE id = ?", '{"of":{"tomorrow":1}}', document.id);
    await run("UPDATE knowledge_bases SET config = ? WHERE id = ?", newer, other);
    expect(await documents()).toMatchObject({
      data: [{ state: "ready" }],
      unreadable: [{ id: document.id, message: expect.stringContaining("'metadata.of'") }],
    });
    const { data, unreadable } = await client.post("/v1/knowledge/list", {});
    expect(data.map(({ id }: Json) => id)).toEqual([base]);
    expect(unreadable).toEqual([{ id: other, message: expect.stringContaining("'config.of'") }]);
    const found = await client.post("/v1/knowledge/query", { knowledge_base: base, query: "ferry" });
    expect(found.hits.map(({ document_id: id }: Json) => id)).not.toContain(document.id);
    expect(found.hits).toHaveLength(1);
    expect(told("knowledge_documents")).toContainEqual(
      expect.objectContaining({ row: expect.stringContaining(document.id) }),
    );
    const { status, json } = await client.send("post", "/v1/knowledge/query", {
      knowledge_base: other,
      query: "ferry",
    });
    // As what is missing; the list that the error names says why.
    expect([status, json.error]).toMatchObject([404, { message: expect.stringContaining("POST /v1/knowledge/list") }]);
  });
});

describe(`what is done for all ${verifies("VCP-18", "CFG-3")}`, () => {
  test("goes on where a schedule that is due, a call that is over and a webhook cannot be read", async () => {
    const [bad, good] = [await gateway.newTenant(), await gateway.newTenant()];
    const made: { readonly schedule: string; readonly webhook: string }[] = [];
    for (const each of [bad, good]) {
      await each.addPlugin(readingTool(stub, "look"));
      const hook = await each.client.post("/v1/webhooks", {
        name: "all",
        url: `${stub.url}/told/${each.id}`,
        events: ["call.completed"],
      });
      const schedule = await each.client.post("/v1/schedule_task", {
        rate: "1 hour",
        task: { uri: "look", arguments: { q: each.id } },
      });
      made.push({ schedule: schedule.id, webhook: hook.id });
    }
    const [{ schedule, webhook } = { schedule: "", webhook: "" }] = made;
    for (const { id } of [bad, good]) await run(dueNow, id);
    await run("UPDATE schedules SET caller = ? WHERE id = ?", newer, schedule);
    await run("UPDATE webhooks SET events = ? WHERE id = ?", newer, webhook);
    const over = await invoke(bad.client);
    await run(
      "UPDATE calls SET caller_chain = ?, error = '{', finished_at = 1, created_at = 1 WHERE id = ?",
      newer,
      over,
    );
    await gateway.tick();
    const calls = async (): Promise<string[]> =>
      (await good.client.get("/v1/calls?tool=look")).data.map(({ state }: Json) => state);
    await vi.waitFor(async () => expect(await calls()).toEqual(["completed"]), { timeout: 10_000, interval: 50 });
    expect(told("schedules")).toMatchObject([{ tenant: bad.id, row: expect.stringContaining(schedule) }]);
    await vi.waitFor(
      async () => {
        await deliverWebhooks(second.core);
        expect(stub.requests.map(({ target }) => target)).toContain(`/told/${good.id}`);
      },
      { timeout: 10_000, interval: 100 },
    );
    expect((await bad.client.get("/v1/webhooks")).unreadable).toMatchObject([{ id: webhook }]);
  });
});
