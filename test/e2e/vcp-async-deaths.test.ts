/**
 * Processes that die between an asynchronous plugin's first answer and its callback, and in the middle of one: the
 * call ends with the result all the same, wherever it is told.
 */
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readAll } from "@toolyard/core/ports/blob-store";
import type { KillPoint } from "@toolyard/core/calls/kill-points";
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { asyncPlugin, startDesks, type Desks } from "../support/async-plugin.ts";
import { startGateway, startGatewayProcess, type Gateway } from "../support/gateway.ts";
import type { GatewayDriver, Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { rawSend } from "../support/raw-send.ts";
import { importVcp } from "../support/vcp-plugins.ts";
import { verifies } from "../support/verifies.ts";

const name = "Maker";
let desks: Desks;
beforeAll(async () => {
  desks = await startDesks();
});
afterAll(() => desks.close());

const ask = (tenant: TestTenant, order: Json): Promise<Reply> =>
  tenant.client.send("post", "/v1/tools/invoke", { uri: `vcp://${name}`, arguments: order });

describe(`a process that is killed after a plugin's first answer ${verifies("VCP-5")}`, () => {
  test("leaves the callback to any other process", async () => {
    const first = await startGatewayProcess();
    const second = await startGatewayProcess({ sharedWith: first });
    try {
      const tenant = await first.newTenant();
      await importVcp(tenant.client, asyncPlugin(name));
      const desk = desks.open();
      const { status, json } = await ask(tenant, {
        desk: desk.url,
        waits: true,
        answer: { status: "success", requestId: "t1" },
      });
      expect(status).toBe(202);
      await first.stop("SIGKILL");
      const base: string = desk.environment().CALLBACK_BASE_URL.replace(first.url, second.url);
      const body = { requestId: "t1", status: "Succeed", message: "made elsewhere" };
      expect((await rawSend(`${base}/${name}/t1`, JSON.stringify(body))).status).toBe(200);
      const there: GatewayDriver = second;
      const call = await there.client(tenant.key).get(`/v1/calls/${json.id}`);
      expect(call).toMatchObject({ state: "completed", attempt: 1 });
      expect(JSON.parse(call.result.preview)).toEqual(body);
    } finally {
      await second.close();
      await first.close();
    }
  });
});

test("directories of plugins are where the operator has temporary files, and go with a process that is killed", async () => {
  const directory = await mkdtemp(join(tmpdir(), "toolyard-deaths-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const gateway = await startGatewayProcess({ env: { TMPDIR: directory } });
  onTestFinished(() => gateway.close());
  const tenant = await gateway.newTenant();
  await importVcp(tenant.client, asyncPlugin(name));
  const desk = desks.open();
  const order = { desk: desk.url, waits: true, answer: { status: "success", requestId: "t2" } };
  expect((await ask(tenant, order)).status).toBe(202);
  const ofPlugins = async (): Promise<readonly string[]> =>
    (await readdir(directory)).filter((each) => each.startsWith("toolyard-plugin-"));
  expect(await ofPlugins()).toHaveLength(1);
  await gateway.stop("SIGKILL");
  await expect.poll(ofPlugins, { timeout: 20_000 }).toEqual([]);
});

describe(`a process that dies ${verifies("VCP-5", "VCP-11")}`, () => {
  let first: Gateway;
  let second: Gateway;
  let tenant: TestTenant;
  let deadly: KillPoint | undefined;
  beforeAll(async () => {
    const reach = (point: KillPoint): void => {
      if (point !== deadly) return;
      deadly = undefined;
      throw new Error(`died at ${point}`);
    };
    first = await startGateway({ reach });
    second = await startGateway({ sharedWith: first });
  });
  afterAll(async () => {
    await second.close();
    await first.close();
  });
  beforeEach(async () => {
    tenant = await first.newTenant();
    await importVcp(tenant.client, asyncPlugin(name));
  });

  const callOf = (id: string): Promise<Json> => second.client(tenant.key).get(`/v1/calls/${id}`);
  const stateAfterTicks = async (id: string): Promise<string> => {
    await second.tick();
    return (await callOf(id)).state;
  };
  const begin = async (): Promise<{ readonly reply: Reply; readonly url: string }> => {
    const desk = desks.open();
    const reply = await ask(tenant, { desk: desk.url, waits: true, answer: { status: "success", requestId: "t1" } });
    return { reply, url: `${desk.environment().CALLBACK_BASE_URL}/${name}/t1` };
  };
  const body = JSON.stringify({ message: "first" });

  test("with the answer in its hands leaves a call of unknown fate, which the callback ends", async () => {
    deadly = "callback.awaited";
    const { reply, url } = await begin();
    expect(reply.json.error.code).toBe("outcome_unknown");
    const id: string = reply.json.error.call_id;
    expect((await callOf(id)).state).toBe("unknown");
    expect((await rawSend(url, body)).status).toBe(200);
    expect(await callOf(id)).toMatchObject({ state: "completed", result: { preview: body } });
  });

  test("with the result stored is made up for by the plugin's next try, which changes nothing of it", async () => {
    const { reply, url } = await begin();
    deadly = "callback.stored";
    expect((await rawSend(url, body)).status).toBe(500);
    expect((await callOf(reply.json.id)).state).toBe("running");
    expect((await rawSend(url, JSON.stringify({ message: "second" }))).status).toBe(200);
    expect(await callOf(reply.json.id)).toMatchObject({ state: "completed", result: { preview: body } });
    const blob = await first.core.blobs.get(`${tenant.id}/VCPAsyncResults/${name}-t1.json`);
    expect(blob === undefined ? "" : Buffer.from(await readAll(blob.body)).toString()).toBe(body);
  });

  test("before it has ended the call leaves that to the tick of any other", async () => {
    const { reply, url } = await begin();
    deadly = "callback.completed";
    expect((await rawSend(url, body)).status).toBe(500);
    await expect.poll(() => stateAfterTicks(reply.json.id), { timeout: 15_000 }).toBe("completed");
    expect(await callOf(reply.json.id)).toMatchObject({ result: { preview: body } });
  });
});
