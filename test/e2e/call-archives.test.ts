/** What becomes of calls whose retention is over (CHAT-13): lines of archives, and nothing else of them. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Client, Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { readingTool } from "../support/http-tools.ts";
import { ageCalls } from "../support/old-calls.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let other: Gateway;
let backEnd: HttpStub;

beforeAll(async () => {
  gateway = await startGateway();
  other = await startGateway({ sharedWith: gateway });
  backEnd = await startHttpStub();
});
afterAll(async () => {
  await other.close();
  await gateway.close();
  await backEnd.close();
});

const secret = "sk-archive-secret-0123456789";

async function newShop(settings: Json = {}): Promise<TestTenant> {
  const tenant = await gateway.newTenant(settings);
  await tenant.putCredential("KEY", secret);
  await tenant.addPlugin({
    ...readingTool(backEnd),
    auth_config: { type: "bearer", mapping: [{ source: "KEY", target: "Authorization" }] },
  });
  return tenant;
}

async function invoke({ client }: TestTenant, q: string, body: string): Promise<string> {
  backEnd.answer = () => ({ headers: { "content-type": "text/plain" }, body });
  return (await client.post("/v1/tools/invoke", { name: "lookup", arguments: { q } })).id as string;
}

async function linesOf(client: Client): Promise<readonly Json[]> {
  const archives: readonly Json[] = (await client.get("/v1/call-archives?limit=100&order=asc")).data;
  const texts = await Promise.all(archives.map(async ({ url }) => (await client.send("get", url)).text));
  for (const text of texts) expect(text.endsWith("\n")).toBe(true);
  return texts.flatMap((text) => text.trimEnd().split("\n")).map((line): Json => JSON.parse(line));
}

const idsOf = (lines: readonly Json[]): readonly string[] => lines.map(({ id }) => String(id)).toSorted();

const blobsOf = async (tenant: TestTenant): Promise<readonly string[]> =>
  (await gateway.core.blobs.list(`${tenant.id}/`)).map(({ key }) => key);

describe(`calls past their retention ${verifies("CHAT-13")}`, () => {
  test("are lines of an archive of their day, with all their rows held, and nowhere else", async () => {
    const tenant = await newShop();
    const { client } = tenant;
    const text = "行 of a result\n".repeat(500);
    const short = await invoke(tenant, "北京", `${text}${secret}`);
    const long = await invoke(tenant, "long", "x".repeat(100_000));
    const shown: readonly Json[] = await Promise.all([short, long].map((id) => client.get(`/v1/calls/${id}`)));
    await ageCalls(gateway, tenant.id, 40);
    const young = await invoke(tenant, "young", "fresh");

    expect((await client.get("/v1/calls")).data.map(({ id }: Json) => id)).toEqual([young]);
    for (const path of [`/v1/calls/${short}`, `/v1/calls/${long}/result`]) {
      expect((await client.send("get", path)).status).toBe(404);
    }
    const lines = await linesOf(client);
    expect(idsOf(lines)).toEqual([short, long].toSorted());
    for (const before of shown) {
      const { created_at: _created, started_at: _started, finished_at: _finished, ...rest } = before;
      const { result, duration_ms: _duration, ...same } = rest;
      const line = lines.find(({ id }) => id === before.id);
      expect(line).toMatchObject({ ...same, result: { media_type: "text/plain", bytes: result.bytes } });
    }
    const [shortLine, longLine] = [short, long].map((id) => lines.find((line) => line.id === id));
    expect(shortLine.result).toMatchObject({ complete: true, preview: expect.stringContaining(text) });
    expect(shortLine.input).toEqual({ q: "北京" });
    expect(longLine.result.complete).toBe(false);
    const [archive] = (await client.get("/v1/call-archives")).data;
    expect(archive).toMatchObject({ object: "call_archive", calls: 2, day: shortLine.created_at.slice(0, 10) });
    // The result that was a blob of its own has gone with its row.
    expect(await blobsOf(tenant)).toEqual([`${tenant.id}/archive/calls/${archive.day}/${archive.id}`]);
    const { headers, text: whole, status } = await client.send("get", archive.url);
    expect([status, headers.get("content-type"), Buffer.byteLength(whole)]).toEqual([
      200,
      "application/x-ndjson",
      archive.bytes,
    ]);
    const range = await client.send("get", archive.url, undefined, { headers: { range: "bytes=0-9" } });
    expect([range.status, range.text]).toEqual([206, whole.slice(0, 10)]);
    for (const told of [whole, JSON.stringify(gateway.logged)]) expect(told).not.toContain(secret);
    expect(whole).not.toMatch(/input_hash|sealed|blob_key/);
  });

  test("stand in one archive once, whoever archives and however often", async () => {
    const tenant = await newShop();
    const ids: string[] = [];
    for (let at = 0; at < 30; at += 1) ids.push(await invoke(tenant, String(at), "ok"));
    await Promise.all([ageCalls(gateway, tenant.id, 20), ageCalls(other, tenant.id, 20)]);
    await Promise.all([gateway.tick(), other.tick(), gateway.tick()]);
    expect(idsOf(await linesOf(tenant.client))).toEqual(ids.toSorted());
  });

  test("are for holders of 'calls'", async () => {
    const tenant = await newShop();
    await invoke(tenant, "a", "ok");
    await ageCalls(gateway, tenant.id, 40);
    const [{ url }] = (await tenant.client.get("/v1/call-archives")).data;
    const { client } = await tenant.newKey({ scopes: ["chat", "tools", "manage"] });
    for (const path of ["/v1/call-archives", url]) {
      expect(await client.send("get", path)).toMatchObject({ status: 403, json: { error: { param: "calls" } } });
    }
  });

  test("are just deleted for a tenant that keeps no archives", async () => {
    const tenant = await newShop({ calls_archive_days: 0 });
    await invoke(tenant, "long", "x".repeat(100_000));
    await ageCalls(gateway, tenant.id, 40);
    expect((await tenant.client.get("/v1/calls")).data).toEqual([]);
    expect((await tenant.client.get("/v1/call-archives")).data).toEqual([]);
    expect(await blobsOf(tenant)).toEqual([]);
  });

  test("leave their archive when its days are over too", async () => {
    const tenant = await newShop();
    await invoke(tenant, "a", "ok");
    await ageCalls(gateway, tenant.id, 40);
    expect(await linesOf(tenant.client)).toHaveLength(1);
    await tenant.client.expect("patch", "/v1/settings", { calls_archive_days: 35 });
    await expect
      .poll(async () => {
        await gateway.tick();
        return blobsOf(tenant);
      })
      .toEqual([]);
    expect((await tenant.client.get("/v1/call-archives")).data).toEqual([]);
  });

  test("go with their tenant", async () => {
    const tenant = await newShop();
    await invoke(tenant, "a", "ok");
    await ageCalls(gateway, tenant.id, 40);
    expect(await blobsOf(tenant)).toHaveLength(1);
    await gateway.operator.expect("delete", `/v1/tenants/${tenant.id}`);
    expect(await blobsOf(tenant)).toEqual([]);
  });
});
