/** What becomes of the calls of a tenant that is suspended or erased while they wait and run, with two instances (CHAT-11, BLIND-5). */
import { eraseTenant } from "@toolyard/core/tenants/erase";
import { openDatabase } from "@toolyard/db/client";
import type { Database, SqlValue } from "@toolyard/db/database";
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { childrenOf, publishFlow } from "../support/flows.ts";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { readingTool } from "../support/http-tools.ts";
import { verifies } from "../support/verifies.ts";

const within = { timeout: 20_000, interval: 50 };

let gateway: Gateway;
let other: Gateway;
let backEnd: HttpStub;
let database: Database;
let tenant: TestTenant;
beforeAll(async () => {
  gateway = await startGateway({ timing: { cancelPollMs: 100 } });
  other = await startGateway({ sharedWith: gateway, timing: { cancelPollMs: 100 } });
  backEnd = await startHttpStub();
  database = await openDatabase({ url: gateway.databaseUrl });
});
afterAll(async () => {
  await database.close();
  await other.close();
  await gateway.close();
  await backEnd.close();
});
beforeEach(async () => {
  backEnd.requests.length = 0;
  backEnd.answer = () => ({ body: "{}" });
  tenant = await gateway.newTenant({ concurrent_tool_calls: 1 });
  await tenant.addPlugin(readingTool(backEnd));
});

async function query(sql: string, ...args: SqlValue[]): Promise<readonly Json[]> {
  const [found] = await database.batch([{ sql, args }]);
  return found?.rows ?? [];
}

const setStatus = (status: string): Promise<Json> =>
  gateway.operator.expect("patch", `/v1/tenants/${tenant.id}`, { status });
const invoke = async (q: string): Promise<string> =>
  (await tenant.client.post("/v1/tools/invoke", { name: "lookup", arguments: { q }, async: true })).id;
const stateOf = async (id: string): Promise<string | undefined> =>
  (await gateway.core.repos.calls.get(tenant.id, id))?.state;
const asked = (): Promise<void> => vi.waitFor(() => expect(backEnd.requests).toHaveLength(1), within);

describe(`a tenant that is suspended ${verifies("CHAT-11")}`, () => {
  test("has what runs stopped, what waits stays as it is, and goes on once it is resumed", async () => {
    backEnd.answer = () => ({ body: "{}", delayMs: 60_000 });
    const running = await invoke("first");
    await asked();
    const waiting = await invoke("second");
    await setStatus("suspended");
    await vi.waitFor(async () => expect(await stateOf(running)).toBe("cancelled"), within);
    // Due by all that the sweep goes by, and looked at by whoever got a message.
    await query("UPDATE calls SET sent_at = 1 WHERE tenant = ?1", tenant.id);
    await gateway.core.queue.send("short", [{ tenant: tenant.id, callId: waiting }]);
    await gateway.tick();
    await other.tick();
    await vi.waitFor(async () => {
      expect(await query("SELECT id FROM queue_messages WHERE call_id = ?1", waiting)).toEqual([]);
    }, within);
    expect(await stateOf(waiting)).toBe("queued");
    expect(backEnd.requests).toHaveLength(1);
    backEnd.answer = () => ({ body: "{}" });
    await setStatus("active");
    await query("UPDATE calls SET sent_at = 1 WHERE tenant = ?1", tenant.id);
    await other.tick();
    await vi.waitFor(async () => expect(await stateOf(waiting)).toBe("completed"), within);
  });
});

describe(`events of a run that waits ${verifies("FLOWRUN-1", "CHAT-11")}`, () => {
  /** Follows a run that goes on for as long as nobody signals it. */
  async function follow(
    run: string,
    key: string,
  ): Promise<{ readonly text: () => string; readonly end: Promise<void> }> {
    const headers = { authorization: `Bearer ${key}`, accept: "text/event-stream" };
    const { status, body } = await fetch(`${other.url}/v1/runs/${run}`, { headers });
    expect(status).toBe(200);
    let text = "";
    const read = async (): Promise<void> => {
      const decoder = new TextDecoder();
      for await (const part of body ?? []) text += decoder.decode(part, { stream: true });
    };
    return { text: () => text, end: read() };
  }

  test("are told no longer to a key that was revoked, nor to anybody of a tenant that is suspended", async () => {
    const nodes = {
      paid: { kind: "wait", signal: "paid", next: "again" },
      again: { kind: "wait", signal: "again" },
    };
    await publishFlow(tenant, { name: "paying", start: "paid", nodes });
    const asked = { workflow_id: "paying", input: {}, stream: false, wait: false };
    const { id: run } = await tenant.client.post("/v1/run_workflow", asked);
    const key = await tenant.newKey({ scopes: ["calls"] });
    const [revoked, staying] = [await follow(run, key.key), await follow(run, tenant.key)];
    await vi.waitFor(() => expect(revoked.text()).toContain("paid"), within);
    await tenant.client.expect("delete", `/v1/api-keys/${key.id}`);
    await revoked.end;
    await tenant.client.post(`/v1/runs/${run}/signal`, { name: "paid", token: "t", payload: { amount: 5 } });
    await vi.waitFor(() => expect(staying.text()).toContain("again"), within);
    expect(revoked.text()).not.toContain("again");
    await setStatus("suspended");
    await staying.end;
    expect(staying.text()).not.toContain("event: error");
    expect(await stateOf(run)).toBe("queued");
  });
});

describe(`a run whose key is revoked ${verifies("FLOWRUN-1", "CHAT-11")}`, () => {
  test("ends at its next step, in whichever branch, and what it has under way comes to its end", async () => {
    const items = { $: "[1..200]" };
    // Ids are unique in the whole flow.
    const lane = (of: string) => {
      const ask = { kind: "tool", name: "lookup", arguments: { q: { $: `'${of} ' & $string(item)` } } };
      const body = { start: `ask_${of}`, nodes: { [`ask_${of}`]: ask } };
      return { start: of, nodes: { [of]: { kind: "map", items, concurrency: 1, body } } };
    };
    const both = { kind: "parallel", branches: { left: lane("left"), right: lane("right") } };
    await publishFlow(tenant, { name: "asking", start: "both", nodes: { both } });
    await tenant.client.expect("patch", "/v1/settings", { concurrent_tool_calls: 4 });
    backEnd.answer = () => ({ body: "{}", delayMs: 300 });
    const key = await tenant.newKey({ scopes: ["tools"] });
    const begin = { workflow_id: "asking", input: {}, stream: false, wait: false };
    const { id: run } = await gateway.client(key.key).post("/v1/run_workflow", begin);
    await vi.waitFor(() => expect(backEnd.requests.length).toBeGreaterThan(3), within);
    await tenant.client.expect("delete", `/v1/api-keys/${key.id}`);
    const before = backEnd.requests.length;
    await vi.waitFor(async () => expect(await stateOf(run)).toBe("failed"), within);
    // One of each branch was under way, and one more may have been let in meanwhile.
    expect(backEnd.requests.length).toBeLessThanOrEqual(before + 4);
    expect((await tenant.client.get(`/v1/runs/${run}`)).error).toMatchObject({
      code: "permission_denied",
      message: expect.stringContaining("revoked"),
    });
    const children = await childrenOf(tenant, run);
    expect(new Set(children.map(({ state }) => state))).toEqual(new Set(["completed"]));
  });
});

describe(`a tenant that is erased while its calls run ${verifies("BLIND-5")}`, () => {
  const long = JSON.stringify("personal data ".repeat(5_000));
  const blobs = async (): Promise<readonly string[]> =>
    (await gateway.core.blobs.list(`${tenant.id}/`)).map(({ key }) => key);

  test("leaves nothing of a call that is stopped", async () => {
    backEnd.answer = () => ({ body: long, delayMs: 60_000 });
    await invoke("slow");
    await asked();
    await other.operator.expect("delete", `/v1/tenants/${tenant.id}`);
    expect(await query("SELECT id FROM calls WHERE tenant = ?1", tenant.id)).toEqual([]);
    expect(await blobs()).toEqual([]);
  });

  test("leaves nothing of a call that does not hear of it and answers late", async () => {
    const deaf = await startGateway({ sharedWith: gateway, requestsOnly: true, timing: { cancelPollMs: 3_600_000 } });
    try {
      backEnd.answer = () => ({ body: long, delayMs: 1_000 });
      const answer = deaf
        .client(tenant.key)
        .send("post", "/v1/tools/invoke", { name: "lookup", arguments: { q: "x" } });
      await asked();
      await other.operator.expect("delete", `/v1/tenants/${tenant.id}`);
      await answer;
      expect(await blobs()).toEqual([]);
    } finally {
      await deaf.close();
    }
  });

  test("leaves nothing of a request that was let in before it and whose body came after it", async () => {
    const body = JSON.stringify({ value: "a-secret-of-the-tenant" });
    const { promise: told, resolve: tell } = Promise.withResolvers<void>();
    const parts = new ReadableStream<Uint8Array>({
      async start(stream) {
        stream.enqueue(Buffer.from(body.slice(0, 5)));
        await told;
        stream.enqueue(Buffer.from(body.slice(5)));
        stream.close();
      },
    });
    const admitted = async (): Promise<number> =>
      (await query("SELECT count FROM rate_windows WHERE tenant = ?1 AND scope = 'tenant'", tenant.id))[0]?.count;
    const before = await admitted();
    const answer = tenant.client.send("put", "/v1/credentials/LATE", undefined, {
      raw: parts,
      headers: { "content-type": "application/json" },
    });
    await vi.waitFor(async () => expect(await admitted()).not.toBe(before), within);
    await other.operator.expect("delete", `/v1/tenants/${tenant.id}`);
    tell();
    await answer;
    await query("UPDATE queue_messages SET visible_at = 0 WHERE tenant = ?1", tenant.id);
    await vi.waitFor(async () => {
      for (const table of ["sys_user_credential", "queue_messages", "rate_windows"]) {
        expect(await query(`SELECT tenant FROM ${table} WHERE tenant = ?1`, tenant.id), table).toEqual([]);
      }
    }, within);
  });

  test("is there until it is certain that a worker looks once more, so that it can be asked for again", async () => {
    await query(`CREATE TRIGGER no_message BEFORE INSERT ON queue_messages WHEN NEW.tenant = '${tenant.id}'
      BEGIN SELECT RAISE(ABORT, 'no room'); END`);
    try {
      expect((await other.operator.send("delete", `/v1/tenants/${tenant.id}`)).status).toBeGreaterThanOrEqual(500);
    } finally {
      await query("DROP TRIGGER no_message");
    }
    expect((await other.operator.send("delete", `/v1/tenants/${tenant.id}`)).status).toBe(204);
    expect(await query("SELECT call_id FROM queue_messages WHERE tenant = ?1", tenant.id)).toHaveLength(1);
  });

  test("has somebody look once more although its process ended with the last row", async () => {
    const { repos } = gateway.core;
    const { promise: gone, resolve: end } = Promise.withResolvers<void>();
    const erase = async (id: string): Promise<boolean> => {
      await repos.tenants.erase(id);
      end();
      return new Promise(() => {});
    };
    const tenants: typeof repos.tenants = Object.create(repos.tenants, { erase: { value: erase } });
    void eraseTenant({ ...gateway.core, repos: { ...repos, tenants } }, tenant.id);
    await gone;
    const late = `${tenant.id}/late`;
    await gateway.core.blobs.put(late, Buffer.from("personal data"));
    await query("UPDATE queue_messages SET visible_at = 0 WHERE tenant = ?1", tenant.id);
    await vi.waitFor(async () => expect(await blobs()).toEqual([]), within);
  });
});
