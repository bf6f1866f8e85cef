/**
 * What is larger than Lambda takes in one piece (6 MB) has a way in and out: answers as streams, requests
 * and anything for browsers on links of the bucket, which pass the functions by (docs/decisions/0022).
 */
import { createHash, randomBytes } from "node:crypto";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { createDriver, type Client, type Json } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { readingTool } from "../support/http-tools.ts";
import { verifies } from "../support/verifies.ts";
import type { Deployment } from "./deployment.ts";
import { openGroundOfAws, type Ground } from "./home.ts";

const megabyte = 1_048_576;
const digest = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");
/** As whoever was given a link: with nothing but what it says. */
const follow = ({ request }: Json, body?: Uint8Array<ArrayBuffer>): Promise<Response> =>
  fetch(request.url, { method: request.method, headers: request.headers, ...(body === undefined ? {} : { body }) });

describe.skipIf(inject("runtimeClientMissing") !== "")("10 MB, with functions that take 6 MB", () => {
  let ground: Ground;
  let deployment: Deployment;
  let backEnd: HttpStub;
  let client: Client;
  let key: string;

  beforeAll(async () => {
    [ground, backEnd] = await Promise.all([openGroundOfAws(), startHttpStub()]);
    deployment = await ground.start();
    const tenant = await createDriver(deployment.url, ground.services.adminKey).newTenant();
    await tenant.addPlugin(readingTool(backEnd));
    ({ client, key } = await tenant.newKey());
  });
  afterAll(async () => {
    await deployment.close();
    await backEnd.close();
    await ground.close();
  });

  test(`of a tool's result: its call says the beginning, streams the whole and has a link ${verifies("CHAT-19")}`, async () => {
    const result = Buffer.from(randomBytes(5 * megabyte).toString("hex"));
    backEnd.answer = () => ({ headers: { "content-type": "text/plain" }, body: result.toString("latin1") });
    const { id, ...said } = await client.post("/v1/tools/invoke", { name: "lookup", arguments: { q: "x" } });
    expect(JSON.stringify(said).length).toBeLessThan(megabyte);
    const whole = await client.send("get", `/v1/calls/${id}/result`);
    expect([whole.status, digest(whole.bytes)]).toEqual([200, digest(result)]);
    const link = await client.post(`/v1/calls/${id}/result/download`);
    expect(link).toMatchObject({ bytes: result.length, media_type: "text/plain" });
    expect(new URL(link.request.url).origin).not.toBe(new URL(deployment.url).origin);
    const linked = await follow(link);
    expect([linked.status, digest(new Uint8Array(await linked.arrayBuffer()))]).toEqual([200, digest(result)]);
  });

  test(`of a file: refused in a request, taken by link, and read as a stream ${verifies("CHAT-19")}`, async () => {
    const file = randomBytes(10 * megabyte);
    const at = "/v1/sessions/large/files/data.bin";
    const authorization = `Bearer ${key}`;
    // Not by a function: API Gateway itself says so.
    const refused = await fetch(`${deployment.url}${at}`, { method: "PUT", headers: { authorization }, body: file });
    expect(refused.status).toBe(413);
    const upload = await client.post("/v1/sessions/large/uploads", { path: "data.bin", bytes: file.length });
    expect((await follow(upload, file)).status).toBe(200);
    await client.post(`/v1/sessions/large/uploads/${upload.id}/complete`);
    const whole = await client.send("get", at);
    expect([whole.status, digest(whole.bytes)]).toEqual([200, digest(file)]);
  });
});
