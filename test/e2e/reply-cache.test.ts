/** Reads that are asked for again: what the back end confirms is not sent twice (CHAT-14). */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { TestTenant } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub, type RecordedRequest } from "../support/http-stub.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let backEnd: HttpStub;
let tenant: TestTenant;
/** What the resource holds, and its version. */
let version = 1;

beforeAll(async () => {
  [gateway, backEnd] = await Promise.all([startGateway(), startHttpStub()]);
});

afterAll(async () => {
  await Promise.all([gateway.close(), backEnd.close()]);
});

beforeEach(async () => {
  backEnd.requests.length = 0;
  backEnd.answer = answerWithTag;
  tenant = await gateway.newTenant();
  await tenant.addPlugin(definition("look", "GET"));
  await tenant.addPlugin(definition("change", "POST"));
});

function answerWithTag(request: RecordedRequest) {
  const etag = `"v${version}"`;
  if (request.headers["if-none-match"] === etag) return { status: 304, body: "" };
  return { headers: { etag }, body: JSON.stringify({ version }) };
}

function definition(name: string, method: string) {
  return {
    name,
    parameters: { type: "object", properties: { q: { type: "string" } } },
    execution: {
      method,
      base_url: `${backEnd.url}/x`,
      content_type: "application/json",
      param_placement: method === "GET" ? "query" : "body",
    },
  };
}

const look = (client = tenant.client, q = "a") => client.post("/v1/tools/invoke", { name: "look", arguments: { q } });
const conditions = () => backEnd.requests.map((request) => request.headers["if-none-match"] ?? "none");

describe(`repeated reads ${verifies("CHAT-14")}`, () => {
  test("the repetition asks with the validator, and a 304 gives the same result", async () => {
    const first = await look();
    const second = await look();
    expect(second.content).toBe(first.content);
    expect(conditions()).toEqual(["none", `"v${version}"`]);
    const [call] = (await tenant.client.get("/v1/calls?limit=1")).data;
    expect(call.state).toBe("completed");
  });

  test("what has changed is seen at once, on whichever instance it is read", async () => {
    const other = await startGateway({ sharedWith: gateway });
    try {
      await look();
      await look(other.client(tenant.key));
      version += 1;
      expect(JSON.parse((await look(other.client(tenant.key))).content)).toEqual({ version });
      expect(JSON.parse((await look()).content)).toEqual({ version });
    } finally {
      await other.close();
    }
  });

  test("other arguments, another caller and another definition are other reads", async () => {
    await look();
    await look(tenant.client, "b");
    await look((await tenant.newKey({ scopes: ["tools"] })).client);
    const [plugin] = (await tenant.client.get("/v1/plugins")).data.filter(
      ({ name }: { name: string }) => name === "look",
    );
    await tenant.client.expect("put", `/v1/plugins/${plugin.id}`, {
      schema_version: "v1",
      description: "changed",
      ...definition("look", "GET"),
    });
    await look();
    expect(conditions()).toEqual(["none", "none", "none", "none"]);
  });

  test("another tenant's read is its own", async () => {
    const stranger = await gateway.newTenant();
    await stranger.addPlugin(definition("look", "GET"));
    await look();
    await look(stranger.client);
    expect(conditions()).toEqual(["none", "none"]);
  });

  test(`what a request's own configuration reads is not kept ${verifies("BLIND-7")}`, async () => {
    const plugin = { schema_version: "v1", description: "Brought along.", ...definition("look", "GET") };
    const runtime_config = { plugins: [plugin], credentials: {} };
    const brought = () =>
      tenant.client.post("/v1/tools/invoke", { name: "look", arguments: { q: "a" }, runtime_config });
    await brought();
    await brought();
    expect(conditions()).toEqual(["none", "none"]);
  });

  test("a changed credential is another identity", async () => {
    const auth = {
      auth_config: { type: "api_key", mapping: [{ source: "KEY", target: "x-key", location: "header" }] },
    };
    await tenant.putCredential("KEY", "first-secret");
    await tenant.addPlugin({ ...definition("mine", "GET"), ...auth });
    const mine = () => tenant.client.post("/v1/tools/invoke", { name: "mine", arguments: {} });
    await mine();
    await tenant.putCredential("KEY", "second-secret");
    await mine();
    await mine();
    expect(conditions()).toEqual(["none", "none", `"v${version}"`]);
  });

  test("a write to the service makes what was read from it void", async () => {
    await look();
    await tenant.client.post("/v1/tools/invoke", { name: "change", arguments: {} });
    await look();
    expect(conditions()).toEqual(["none", "none", "none"]);
  });

  test("Last-Modified works as well; no-store and replies without a validator are not kept", async () => {
    const date = "Fri, 27 Nov 2026 10:00:00 GMT";
    backEnd.answer = (request) =>
      request.headers["if-modified-since"] === date
        ? { status: 304, body: "" }
        : { headers: { "last-modified": date }, body: "1" };
    expect([(await look()).content, (await look()).content]).toEqual(["1", "1"]);
    expect(backEnd.requests[1]?.headers["if-modified-since"]).toBe(date);
    backEnd.requests.length = 0;
    backEnd.answer = () => ({ headers: { etag: '"x"', "cache-control": "no-store" }, body: "2" });
    await look(tenant.client, "c");
    await look(tenant.client, "c");
    backEnd.answer = () => ({ body: "3" });
    await look(tenant.client, "d");
    await look(tenant.client, "d");
    expect(conditions()).toEqual(["none", "none", "none", "none"]);
  });
});
