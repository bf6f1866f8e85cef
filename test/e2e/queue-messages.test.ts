/**
 * Every kind of message that workers take: brought to two instances at once, brought again after it was done, and
 * brought late, when what it is about is gone.
 */
import { handleMessage } from "@toolyard/core/calls/worker";
import type { QueueMessage } from "@toolyard/core/ports/task-queue";
import { openDatabase } from "@toolyard/db/client";
import type { Database } from "@toolyard/db/database";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startEmbeddingStub, type EmbeddingStub } from "../support/embedding-stub.ts";
import { publishFlow } from "../support/flows.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Client, Json, TestTenant } from "../support/gateway-client.ts";
import { startHits, type Hits } from "../support/hits.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { calls, startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { importVcp } from "../support/vcp-plugins.ts";
import { verifies } from "../support/verifies.ts";

const endStates = ["completed", "failed", "cancelled", "unknown", "rejected"];
const mostRounds = 20;

let first: Gateway;
let second: Gateway;
let database: Database;
let shop: HttpStub;
let model: LlmStub;
let vectors: EmbeddingStub;
let hits: Hits;
let tenant: TestTenant;

beforeAll(async () => {
  [shop, model, vectors, hits] = await Promise.all([
    startHttpStub(() => ({ body: '{"receipt":1}', delayMs: 50 })),
    startLlmStub(),
    startEmbeddingStub(),
    startHits(),
  ]);
  model.respond((body) => {
    const { messages, tools = [] } = body as Json;
    const isAnswered = messages.some(({ role }: Json) => role === "tool");
    return tools.length > 0 && !isAnswered ? calls({ name: "order", arguments: {} }) : text("ok");
  });
  // Messages are carried out here, so that they come when and as often as a test says.
  first = await startGateway({ requestsOnly: true, timing: { cancelPollMs: 50 } });
  second = await startGateway({ requestsOnly: true, timing: { cancelPollMs: 50 }, sharedWith: first });
  database = await openDatabase({ url: first.databaseUrl });
});
afterAll(async () => {
  await database.close();
  await second.close();
  await first.close();
  await Promise.all([shop.close(), model.close(), vectors.close(), hits.close()]);
});

beforeEach(async () => {
  tenant = await first.newTenant();
  await tenant.addProvider(model.url);
  await tenant.addProvider(vectors.url, { models: { "embed-1": "embed-1" } });
  shop.requests.length = 0;
  model.requests.length = 0;
  vectors.asked.length = 0;
  hitsBefore = hits.of("Sky");
});
let hitsBefore = 0;

interface Asked {
  /** Of the call that the message is about; absent: it is about something else. */
  readonly callId?: string;
  /** How often it took effect. */
  readonly effects: () => number;
  /** Takes away what it is about. */
  readonly remove: () => Promise<unknown>;
}

const shopEffects = (): number => shop.requests.length;

async function addOrder(change: Json = {}): Promise<string> {
  return tenant.addPlugin({
    name: "order",
    execution: { method: "POST", base_url: `${shop.url}/orders`, param_placement: "body" },
    ...change,
  });
}

async function invoke(client: Client, body: Json): Promise<string> {
  const { id } = await client.post("/v1/tools/invoke", { arguments: {}, async: true, ...body });
  return id as string;
}

const kinds: Readonly<Record<string, (client: Client) => Promise<Asked>>> = {
  async "a call"(client) {
    const plugin = await addOrder();
    const callId = await invoke(client, { name: "order" });
    return { callId, effects: shopEffects, remove: () => tenant.client.expect("delete", `/v1/plugins/${plugin}`) };
  },
  async "an approved call"(client) {
    const plugin = await addOrder({ sensitive: true });
    const callId = await invoke(client, { name: "order" });
    await tenant.client.post(`/v1/calls/${callId}/approve`, {});
    return { callId, effects: shopEffects, remove: () => tenant.client.expect("delete", `/v1/plugins/${plugin}`) };
  },
  async "a run of a flow"(client) {
    await addOrder();
    const flow = await publishFlow(tenant, {
      schema_version: 1,
      name: "buying",
      description: "Orders.",
      start: "order",
      nodes: { order: { kind: "tool", name: "order", next: "later" }, later: { kind: "wait", duration_ms: 50 } },
    });
    const callId = await invoke(client, { uri: "flow://buying" });
    return {
      callId,
      effects: shopEffects,
      remove: () => tenant.client.expect("delete", `/v1/flows/${flow}?force=true`),
    };
  },
  async "an agent"(client) {
    await addOrder();
    const agent = await tenant.client.post("/v1/agents", { name: "buyer", model: "stub-1", tools: ["order"] });
    const callId = await invoke(client, { uri: "agent://buyer", arguments: { prompt: "buy" } });
    return {
      callId,
      effects: shopEffects,
      remove: () => tenant.client.expect("delete", `/v1/agents/${agent.id}?force=true`),
    };
  },
  async "a turn of a group chat"(client) {
    await tenant.client.post("/v1/agents", { name: "ada", model: "stub-1" });
    const { id } = await client.post("/v1/group_chats", { name: "room", members: [{ kind: "agent", name: "ada" }] });
    const turn = await client.post(`/v1/group_chats/${id}/messages`, { content: "well?" });
    return {
      callId: turn.call_id ?? turn.id,
      effects: () => model.requests.length,
      remove: () => tenant.client.expect("delete", `/v1/group_chats/${id}`),
    };
  },
  async "a document"(client) {
    const { id } = await client.post("/v1/knowledge/create", {
      name: "base",
      config: { embedding: { model: "embed-1" } },
    });
    const document = await client.post("/v1/knowledge/upsert", {
      knowledge_base: id,
      document_id: "d",
      text: "The price is 10.",
    });
    return {
      callId: document.call_id,
      effects: () => vectors.asked.length,
      remove: () => tenant.client.post("/v1/knowledge/delete", { knowledge_base: id }),
    };
  },
  async "the firing of a schedule"(client) {
    await addOrder();
    const schedule = await client.post("/v1/schedule_task", {
      rate: "1 day",
      task: { uri: "plugin://order" },
      deliver: { session_id: `s-${tenant.id}` },
    });
    await run("UPDATE schedules SET next_at = 1 WHERE id = ?1", schedule.id);
    await first.tick();
    const [call] = (await tenant.client.get(`/v1/calls?parent_id=${schedule.id}`)).data;
    return {
      callId: call.id,
      effects: shopEffects,
      remove: () => tenant.client.expect("delete", `/v1/schedule_task/${schedule.id}`),
    };
  },
  async "the value of a static plugin"() {
    const plugin = await importVcp(tenant.client, {
      name: "Sky",
      manifest: {
        pluginType: "static",
        entryPoint: { command: "node plugin.mjs" },
        capabilities: { systemPromptPlaceholders: [{ placeholder: "{{VCPSky}}" }] },
      },
      files: { "plugin.mjs": `await fetch(${JSON.stringify(hits.urlOf("Sky"))}); console.log("blue");` },
    });
    await first.core.queue.send("short", [{ tenant: tenant.id, callId: "vcp-static:plugin:Sky" }]);
    return {
      effects: () => hits.of("Sky") - hitsBefore,
      remove: () => tenant.client.expect("delete", `/v1/plugins/${plugin.plugin_id}`),
    };
  },
};
const kindNames = Object.keys(kinds);
/** The others are asked for by nobody in particular. */
const asked = kindNames.filter((kind) => kind !== "the value of a static plugin");

async function run(sql: string, ...args: string[]): Promise<readonly Json[]> {
  const [result] = await database.batch([{ sql, args }]);
  return (result?.rows ?? []) as readonly Json[];
}

async function takeMessages(): Promise<readonly QueueMessage[]> {
  const found = await run("DELETE FROM queue_messages WHERE tenant = ?1 RETURNING tenant, call_id", tenant.id);
  return found.map((row) => ({ tenant: String(row.tenant), callId: String(row.call_id) }));
}

/** To both at once. */
async function bring(messages: readonly QueueMessage[]): Promise<void> {
  await Promise.all(messages.flatMap((message) => [first, second].map(({ core }) => handleMessage(core, message))));
}

/** What was sent, and all that is sent because of it. */
async function bringAll(): Promise<readonly QueueMessage[]> {
  const brought: QueueMessage[] = [];
  for (let round = 0; round < mostRounds; round += 1) {
    const messages = await takeMessages();
    if (messages.length === 0) break;
    brought.push(...messages);
    await bring(messages);
  }
  return brought;
}

async function ask(kind: string, client = tenant.client): Promise<Asked> {
  const asked = await kinds[kind]?.(client);
  if (asked === undefined) throw new Error(`There is no kind ${kind}.`);
  return asked;
}

async function callOf({ callId }: Asked): Promise<Json> {
  return callId === undefined ? undefined : tenant.client.get(`/v1/calls/${callId}`);
}

function faults(): readonly unknown[] {
  return [...first.logged, ...second.logged].filter(
    ({ level, fields }) => level === "error" && (fields["tenant"] === undefined || fields["tenant"] === tenant.id),
  );
}

describe(`the message of ${verifies("API-5", "CHAT-13")}`, () => {
  test.each(kindNames)("%s, brought to two at once and again after it was done, has one effect", async (kind) => {
    const asked = await ask(kind);
    const brought = await bringAll();
    expect(brought.length).toBeGreaterThan(0);
    expect(asked.effects()).toBe(1);
    const before = await callOf(asked);
    await bring(brought);
    await bringAll();
    expect(asked.effects()).toBe(1);
    expect(await callOf(asked)).toEqual(before);
    expect([undefined, ...endStates]).toContain(before?.state);
    expect(faults()).toEqual([]);
  });

  test.each(kindNames)("%s that is gone by then does nothing, and leaves nothing under way", async (kind) => {
    const asked = await ask(kind);
    await asked.remove();
    await bringAll();
    const call = await callOf(asked);
    expect([undefined, ...endStates]).toContain(call?.state);
    expect(call?.error?.code).not.toBe("internal_error");
    expect(asked.effects()).toBe(0);
    expect(faults()).toEqual([]);
  });

  test.each(kindNames)("%s of a tenant that was erased does nothing", async (kind) => {
    const asked = await ask(kind);
    const messages = await takeMessages();
    await first.operator.expect("delete", `/v1/tenants/${tenant.id}`);
    await bring(messages);
    expect(asked.effects()).toBe(0);
    await bringAll();
    const tables = await run(`SELECT s.name FROM sqlite_schema AS s CROSS JOIN pragma_table_info(s.name) AS c
      WHERE s.type = 'table' AND c.name = 'tenant'`);
    const left = await Promise.all(
      tables.map(async ({ name }) =>
        (await run(`SELECT 1 FROM ${name} WHERE tenant = ?1`, tenant.id))[0] ? name : [],
      ),
    );
    expect(left.flat()).toEqual([]);
    expect(await first.core.blobs.list(`${tenant.id}/`)).toEqual([]);
    expect(faults()).toEqual([]);
  });

  test.each(asked)("%s whose key was revoked runs nothing", async (kind) => {
    const key = await tenant.newKey({ scopes: ["tools", "chat", "manage"] });
    const asked = await ask(kind, key.client);
    await tenant.client.expect("delete", `/v1/api-keys/${key.id}`);
    await bringAll();
    expect(await callOf(asked)).toMatchObject({ state: "failed", error: { code: "permission_denied" } });
    expect(asked.effects()).toBe(0);
  });
});
