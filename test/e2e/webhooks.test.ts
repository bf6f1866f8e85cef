/** Webhooks of a whole gateway: what a receiver gets, verifies, refuses, and gets again (Standard Webhooks). */
import { execFile } from "node:child_process";
import { createHmac } from "node:crypto";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { deliverWebhooks } from "@toolyard/core/webhooks/deliver";
import { openDatabase } from "@toolyard/db/client";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, startGatewayProcess, type Gateway } from "../support/gateway.ts";
import { startHttpStub, type HttpStub, type RecordedRequest } from "../support/http-stub.ts";
import { verifies } from "../support/verifies.ts";

const run = promisify(execFile);
const guide = await readFile(new URL("../../docs/webhooks.md", import.meta.url), "utf8");
const snippet = (language: string): string =>
  new RegExp(`\`\`\`${language}\\n([\\s\\S]*?)\`\`\``).exec(guide)?.[1] ?? "";

type Verify = (secret: string, headers: Readonly<Record<string, string>>, body: string) => boolean;

let directory: string;
let documented: Verify;
let gateway: Gateway;
/** Beside it, on the same database. */
let second: Gateway;
let receiver: HttpStub;
let backEnd: HttpStub;
let tenant: TestTenant;

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "toolyard-webhooks-"));
  await writeFile(join(directory, "verify.ts"), snippet("ts"));
  await writeFile(join(directory, "verify_webhook.py"), snippet("python"));
  ({ verify: documented } = (await import(pathToFileURL(join(directory, "verify.ts")).href)) as { verify: Verify });
  // Nothing is sent but when a test says so.
  gateway = await startGateway({ requestsOnly: true });
  second = await startGateway({ requestsOnly: true, sharedWith: gateway });
  [receiver, backEnd] = await Promise.all([startHttpStub(), startHttpStub()]);
});
afterAll(async () => {
  await second.close();
  await Promise.all([gateway.close(), receiver.close(), backEnd.close()]);
  await rm(directory, { recursive: true, force: true });
});

beforeEach(async () => {
  receiver.requests.length = 0;
  receiver.answer = () => ({ status: 204, body: "" });
  tenant = await gateway.newTenant();
  await tenant.addPlugin({
    name: "look",
    execution: { method: "GET", base_url: `${backEnd.url}/x`, param_placement: "query" },
    parameters: { type: "object", properties: { word: { type: "string" } } },
  });
});

const addWebhook = (change: Json = {}): Promise<Json> =>
  tenant.client.post("/v1/webhooks", { name: "ours", url: `${receiver.url}/hooks`, ...change });
const look = (): Promise<Json> =>
  tenant.client.post("/v1/tools/invoke", { name: "look", arguments: { word: "a-private-word" } });
const log = async (id: string): Promise<Json[]> => (await tenant.client.get(`/v1/webhooks/${id}/deliveries`)).data;
const deliver = (at = gateway): Promise<number> => deliverWebhooks(at.core);

function received(index: number): { readonly headers: Record<string, string>; readonly body: string } {
  const { headers = {}, body } = receiver.requests[index] ?? ({} as Partial<RecordedRequest>);
  return { headers: headers as Record<string, string>, body: String(body) };
}

/** Written from the specification, apart from the code that signs. */
function isSignedWith(secret: string, index: number): boolean {
  const { headers, body } = received(index);
  const mac = createHmac("sha256", Buffer.from(secret.slice("whsec_".length), "base64"));
  mac.update(`${headers["webhook-id"]}.${headers["webhook-timestamp"]}.`).update(body);
  return (headers["webhook-signature"] ?? "").split(" ").includes(`v1,${mac.digest("base64")}`);
}

const typeOf = (body: string): string => (JSON.parse(body) as { readonly type: string }).type;

/** Lets what waits be due. */
async function skipWaiting(): Promise<void> {
  const database = await openDatabase({ url: gateway.databaseUrl });
  await database.batch([{ sql: "UPDATE webhook_deliveries SET next_at = 1 WHERE next_at IS NOT NULL", args: [] }]);
  await database.close();
}

describe(`a webhook ${verifies("CHAT-13", "BLIND-6")}`, () => {
  test("is told of a call's end, signed, without what was in the call", async () => {
    const { id, secret } = await addWebhook();
    expect(secret).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/);
    const call = await look();
    expect(await deliver()).toBe(1);
    expect(receiver.requests).toHaveLength(1);
    expect(isSignedWith(secret, 0)).toBe(true);
    const { headers, body } = received(0);
    expect(documented(secret, headers, body)).toBe(true);
    expect(JSON.parse(body)).toMatchObject({ type: "call.completed", data: { id: call.id, tool: "look" } });
    expect(body).not.toContain("a-private-word");
    expect(await log(id)).toMatchObject([
      { id: headers["webhook-id"], call_id: call.id, state: "delivered", attempts: 1, last_status: 204 },
    ]);
    expect(JSON.stringify(await tenant.client.get("/v1/webhooks"))).not.toContain("whsec_");
  });

  test("is not believed where anything was changed, by either documented verifier", async () => {
    const { secret } = await addWebhook();
    await look();
    await deliver();
    const { headers, body } = received(0);
    const old = String(Number(headers["webhook-timestamp"]) - 600);
    const cases: readonly (readonly [boolean, string, Readonly<Record<string, string>>, string])[] = [
      [true, secret, headers, body],
      [false, secret, headers, `${body} `],
      [false, secret, { ...headers, "webhook-id": "evt_other" }, body],
      [false, secret, { ...headers, "webhook-timestamp": old }, body],
      [false, `whsec_${Buffer.alloc(32).toString("base64")}`, headers, body],
      [false, secret, { ...headers, "webhook-signature": "v2,abc v1" }, body],
    ];
    expect(cases.map(([, ...given]) => documented(...given))).toEqual(cases.map(([valid]) => valid));
    const program =
      "import json, sys\nfrom verify_webhook import verify\nprint(json.dumps([verify(s, h, b.encode()) for s, h, b in json.loads(sys.argv[1])]))";
    const given = JSON.stringify(cases.map(([, ...each]) => each));
    const { stdout } = await run("python3", ["-c", program, given], {
      env: { ...process.env, PYTHONPATH: directory, PYTHONDONTWRITEBYTECODE: "1" },
    });
    expect(JSON.parse(stdout)).toEqual(cases.map(([valid]) => valid));
  });

  test("gets each message once from two instances that look at the same time", async () => {
    await addWebhook();
    for (let count = 0; count < 8; count += 1) await look();
    await Promise.all([deliver(gateway), deliver(second), deliver(gateway), deliver(second)]);
    const ids = receiver.requests.map(({ headers }) => headers["webhook-id"]);
    expect(ids).toHaveLength(8);
    expect(new Set(ids).size).toBe(8);
  });

  test("gets it again after a failure, with the same id and body and a signature of its own time", async () => {
    const { id, secret } = await addWebhook();
    receiver.answer = () => ({ status: 503, headers: { "retry-after": "3600" } });
    await look();
    await deliver();
    const [waiting] = await log(id);
    expect(waiting).toMatchObject({ state: "pending", attempts: 1, last_status: 503 });
    expect(Date.parse(waiting.next_attempt_at) - Date.parse(waiting.last_attempt_at)).toBeGreaterThanOrEqual(3_600_000);
    expect(await deliver()).toBe(0);
    await skipWaiting();
    receiver.answer = () => ({ status: 200 });
    expect(await deliver(second)).toBe(1);
    expect(received(1).headers["webhook-id"]).toBe(received(0).headers["webhook-id"]);
    expect(received(1).body).toBe(received(0).body);
    expect(isSignedWith(secret, 1)).toBe(true);
    expect(await log(id)).toMatchObject([{ state: "delivered", attempts: 2, next_attempt_at: null }]);
  });

  test("is not followed to where it redirects, and is given up in the end", async () => {
    const { id } = await addWebhook();
    receiver.answer = () => ({ status: 307, headers: { location: `${receiver.url}/elsewhere` } });
    await look();
    for (let count = 0; count < 12; count += 1) {
      await deliver();
      await skipWaiting();
    }
    expect(receiver.requests.map(({ target }) => target)).toEqual(Array.from({ length: 10 }, () => "/hooks"));
    expect(await log(id)).toMatchObject([{ state: "failed", attempts: 10, last_status: 307 }]);
  });

  test("that was away for a week is found by its failed messages, and told all of them once it is back", async () => {
    const { id, secret } = await addWebhook();
    for (const _each of [1, 2, 3]) await look();
    receiver.answer = () => ({ status: 503 });
    for (let count = 0; count < 10; count += 1) {
      await deliver();
      await skipWaiting();
    }
    receiver.answer = () => ({ status: 200 });
    await look();
    await deliver();
    const failed = async (limit: number): Promise<Json> =>
      tenant.client.get(`/v1/webhooks/${id}/deliveries?state=failed&order=asc&limit=${limit}`);
    const before = await failed(2);
    expect(before).toMatchObject({ has_more: true, data: [{ state: "failed" }, { state: "failed" }] });
    const rotated = await tenant.client.post(`/v1/webhooks/${id}/rotate-secret`, { overlap_s: 0 });
    receiver.requests.length = 0;
    // As the page says it: those that are sent again are failed no more.
    for (let page = before; page.data.length > 0; page = await failed(2))
      for (const { id: delivery } of page.data)
        await tenant.client.post(`/v1/webhooks/${id}/deliveries/${delivery}/resend`);
    expect(await deliver()).toBe(3);
    expect([isSignedWith(secret, 0), isSignedWith(rotated.secret, 0)]).toEqual([false, true]);
    expect(await tenant.client.get(`/v1/webhooks/${id}`)).toMatchObject({ enabled: true });
    expect((await log(id)).map(({ state }) => state)).toEqual(["delivered", "delivered", "delivered", "delivered"]);
    const wrong = await tenant.client.send("get", `/v1/webhooks/${id}/deliveries?state=lost`);
    expect(wrong).toMatchObject({ status: 400, json: { error: { param: "state" } } });
  });

  test("that is gone is disabled, and told again once it is enabled and asked for", async () => {
    const { id } = await addWebhook();
    receiver.answer = () => ({ status: 410 });
    await look();
    await deliver();
    expect(await tenant.client.get(`/v1/webhooks/${id}`)).toMatchObject({
      enabled: false,
      disabled_reason: expect.stringContaining("410"),
    });
    await look();
    expect(await deliver()).toBe(0);
    receiver.answer = () => ({ status: 200 });
    await tenant.client.expect("patch", `/v1/webhooks/${id}`, { enabled: true });
    const [failed] = await log(id);
    expect(failed).toMatchObject({ state: "failed", last_status: 410 });
    await tenant.client.post(`/v1/webhooks/${id}/deliveries/${failed.id}/resend`);
    await deliver();
    expect(receiver.requests.map(({ headers }) => headers["webhook-id"])).toEqual([failed.id, failed.id]);
    expect(await log(id)).toMatchObject([{ id: failed.id, state: "delivered" }]);
  });

  test("is signed with both secrets while one replaces the other", async () => {
    const { id, secret } = await addWebhook();
    const rotated = await tenant.client.post(`/v1/webhooks/${id}/rotate-secret`);
    expect(rotated.secret).not.toBe(secret);
    await tenant.client.post(`/v1/webhooks/${id}/test`);
    await deliver();
    expect([isSignedWith(secret, 0), isSignedWith(rotated.secret, 0)]).toEqual([true, true]);
    const { headers, body } = received(0);
    expect([documented(secret, headers, body), documented(rotated.secret, headers, body)]).toEqual([true, true]);
    expect(JSON.parse(body)).toMatchObject({ type: "webhook.test", data: { webhook_id: id } });
    const last = await tenant.client.post(`/v1/webhooks/${id}/rotate-secret`, { overlap_s: 0 });
    await tenant.client.post(`/v1/webhooks/${id}/test`);
    await deliver();
    expect([isSignedWith(rotated.secret, 1), isSignedWith(last.secret, 1)]).toEqual([false, true]);
  });

  test("hears of calls that wait, are refused or fail, where it wants to", async () => {
    await addWebhook({ events: ["call.approval_required", "call.rejected"] });
    await tenant.addPlugin({
      name: "careful",
      execution: { method: "POST", base_url: `${backEnd.url}/y`, param_placement: "body" },
      sensitive: true,
    });
    const call = await tenant.client.post("/v1/tools/invoke", { name: "careful", arguments: {} });
    await look();
    await tenant.client.post(`/v1/calls/${call.id}/reject`, { reason: "no" });
    await deliver();
    const types = receiver.requests.map(({ body }) => typeOf(String(body)));
    expect(types.sort()).toEqual(["call.approval_required", "call.rejected"]);
  });

  test.each(["http://hooks.example.com/", "http://10.0.0.1/", "https://169.254.169.254/", "https://u:p@example.com/"])(
    "cannot be at %s",
    async (url) => {
      const reply = await tenant.client.send("post", "/v1/webhooks", { name: "bad", url });
      expect(reply.json.error).toMatchObject({ param: "url" });
      expect(reply.status).toBeGreaterThanOrEqual(400);
      expect(reply.status).toBeLessThan(500);
    },
  );
});

describe(`a process that dies after a call's end ${verifies("CHAT-13")}`, () => {
  test("leaves the message to the next one", async () => {
    const first = await startGatewayProcess();
    const other = await first.newTenant();
    await other.addPlugin({
      name: "look",
      execution: { method: "GET", base_url: `${backEnd.url}/x`, param_placement: "query" },
    });
    const { id, secret } = await other.client.post("/v1/webhooks", { name: "ours", url: `${receiver.url}/after` });
    // The call ends, and the process is killed before anything was sent or while it waits for an answer.
    receiver.answer = (_request, response) => void response;
    const headers = { "idempotency-key": "on-record-before-it-is-told" };
    const call = await other.client.post("/v1/tools/invoke", { name: "look", arguments: {} }, headers);
    await first.stop("SIGKILL");
    receiver.requests.length = 0;
    receiver.answer = () => ({ status: 200 });
    const database = await openDatabase({ url: `file:${join(first.dataDir, "toolyard.db")}` });
    await database.batch([{ sql: "UPDATE webhook_deliveries SET next_at = 1", args: [] }]);
    await database.close();
    const next = await startGatewayProcess({ sharedWith: first });
    await expect.poll(() => receiver.requests.length).toBe(1);
    expect(isSignedWith(secret, 0)).toBe(true);
    expect(JSON.parse(received(0).body)).toMatchObject({ data: { id: call.id } });
    const client = next.client(other.key);
    await expect
      .poll(async () => (await client.get(`/v1/webhooks/${id}/deliveries`)).data)
      .toMatchObject([{ state: "delivered" }]);
    await next.close();
    await first.close();
  });
});
