/** Flows of a whole gateway as their authors meet them: drafts, versions, faults, references (FLOW-4, URI-2, CFG-4). */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { shippedFlows } from "@toolyard/core/flows/shipped/index";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
/** Beside it, on the same database. */
let second: Gateway;
let tenant: TestTenant;

beforeAll(async () => {
  gateway = await startGateway({ requestsOnly: true });
  second = await startGateway({ requestsOnly: true, sharedWith: gateway });
});
afterAll(async () => {
  await second.close();
  await gateway.close();
});
beforeEach(async () => {
  tenant = await gateway.newTenant();
});

const definition = (change: Json = {}): Json => ({
  schema_version: 1,
  name: "orders",
  description: "Takes in an order.",
  input: { type: "object", properties: { id: { type: "string" } }, required: ["id"] },
  start: "done",
  nodes: { done: { kind: "end", output: { $: "input.id" } } },
  ...change,
});
const create = (body: Json): Promise<Json> => tenant.client.post("/v1/flows", body);

describe(`drafts and versions ${verifies("FLOW-4")}`, () => {
  test("a draft is told all its faults, and cannot be published until it has none", async () => {
    const broken = definition({ nodes: { done: { kind: "tool", uri: "invalid-uri", next: "gone" } } });
    const flow = await create({ definition: broken });
    expect(flow).toMatchObject({ name: "orders", latest_version: null, unpublished_changes: true });
    expect(flow.problems.map(({ pointer }: Json) => pointer)).toEqual(["/nodes/done/next", "/nodes/done/uri"]);
    const refused = await tenant.client.send("post", `/v1/flows/${flow.id}/publish`, {});
    expect(refused).toMatchObject({ status: 400, json: { error: { code: "flow_invalid", problems: flow.problems } } });
    const mended = await tenant.client.expect("patch", `/v1/flows/${flow.id}`, { definition: definition() });
    expect(mended.problems).toEqual([]);
    expect(await tenant.client.post(`/v1/flows/${flow.id}/publish`)).toMatchObject({
      latest_version: 1,
      unpublished_changes: false,
    });
  });

  test("publishing gives the next number once, and versions never change", async () => {
    const { id } = await create({ definition: definition(), publish: true });
    expect(await tenant.client.post(`/v1/flows/${id}/publish`)).toMatchObject({ latest_version: 1 });
    const other = definition({ description: "Takes in an order, faster." });
    await tenant.client.expect("patch", `/v1/flows/${id}`, { definition: other });
    expect(await tenant.client.post(`/v1/flows/${id}/publish`)).toMatchObject({ latest_version: 2 });
    const { data } = await tenant.client.get(`/v1/flows/${id}/versions`);
    expect(data.map(({ version, description }: Json) => [version, description])).toEqual([
      [2, "Takes in an order, faster."],
      [1, "Takes in an order."],
    ]);
    expect((await tenant.client.get(`/v1/flows/${id}/versions/1`)).definition).toEqual(definition());
    expect(await tenant.client.send("get", `/v1/flows/${id}/versions/3`)).toMatchObject({ status: 404 });
  });

  test("two who publish what they read do not overwrite each other", async () => {
    const { id } = await create({ definition: definition() });
    const there = second.client(tenant.key);
    const answers = await Promise.all(
      [tenant.client, there].map((client, at) =>
        client.send("patch", `/v1/flows/${id}`, { definition: definition({ description: `By ${at}.` }), revision: 1 }),
      ),
    );
    expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([200, 412]);
    const published = await Promise.all(
      [tenant.client, there].map((each) => each.send("post", `/v1/flows/${id}/publish`, {})),
    );
    expect(published.some(({ status }) => status === 200)).toBe(true);
    expect(await tenant.client.get(`/v1/flows/${id}`)).toMatchObject({ latest_version: 1 });
  });

  test.each([
    [{}, "'definition.name' is required."],
    [{ name: 5 }, "'definition.name' is not valid: expected string, received number."],
  ])("a definition with %j for a name is told so", async (change, message) => {
    const { name: _name, ...unnamed } = definition();
    expect(await tenant.client.send("post", "/v1/flows", { definition: { ...unnamed, ...change } })).toMatchObject({
      status: 400,
      json: { error: { code: "invalid_definition", param: "definition.name", message } },
    });
  });

  test("a name is taken once and never changes", async () => {
    const { id } = await create({ definition: definition() });
    expect(await tenant.client.send("post", "/v1/flows", { definition: definition() })).toMatchObject({
      status: 409,
      json: { error: { param: "definition.name" } },
    });
    const renamed = { definition: definition({ name: "other" }) };
    expect(await tenant.client.send("patch", `/v1/flows/${id}`, renamed)).toMatchObject({
      status: 400,
      json: { error: { code: "invalid_definition", param: "definition.name" } },
    });
  });
});

describe(`checking a flow ${verifies("URI-2")}`, () => {
  test("finds every fault without keeping anything", async () => {
    const answer = await tenant.client.post("/v1/flows/validate", {
      definition: definition({
        start: "a",
        nodes: {
          a: { kind: "tool", uri: "unknown://service/tool", next: "b" },
          b: { kind: "transform", expression: "input.(" },
          c: { kind: "end" },
        },
      }),
    });
    expect(answer).toMatchObject({ object: "flow.validation", valid: false });
    expect(answer.problems).toEqual([
      { pointer: "/nodes/c", message: expect.stringContaining("never reached") },
      { pointer: "/nodes/a/uri", message: expect.stringContaining("unknown") },
      { pointer: "/nodes/b/expression", message: expect.stringMatching(/character \d/) },
    ]);
    expect((await tenant.client.get("/v1/flows")).data).toEqual([]);
  });

  test.each([
    ["nested too deep", `${"[".repeat(900)}${"]".repeat(900)}`, "nested deeper"],
    ["larger than any flow", `[${"[],".repeat(1_500_000)}[]]`, "524288 bytes"],
  ])("says so of what is %s", async (_what, definition, message) => {
    const raw = Uint8Array.from(Buffer.from(`{"definition":${definition}}`));
    const { status, json } = await tenant.client.send("post", "/v1/flows/validate", undefined, {
      raw,
      headers: { "content-type": "application/json" },
    });
    expect([status, json]).toMatchObject([
      200,
      { valid: false, problems: [{ message: expect.stringContaining(message) }] },
    ]);
  });

  test("a flow as it stands in its author's file is told how it is sent, and nothing else", async () => {
    const definition = { schema_version: 1, name: "bare", description: "d", start: "a", nodes: { a: { kind: "end" } } };
    for (const path of ["/v1/flows/validate", "/v1/flows"]) {
      const { status, json } = await tenant.client.send("post", path, definition);
      expect(status).toBe(400);
      expect(json.error).toMatchObject({
        code: "invalid_request",
        param: "definition",
        message: expect.stringContaining('{"definition": {…}}'),
      });
      expect(json.error.problems).toBeUndefined();
    }
  });

  test("what is published as its schema takes the shipped flows and no unknown field", async () => {
    const schema = await tenant.client.get("/v1/flows/schema");
    expect(schema).toMatchObject({ type: "object", required: expect.arrayContaining(["schema_version", "nodes"]) });
    for (const shipped of Object.values(shippedFlows)) {
      const checked = await tenant.client.post("/v1/flows/validate", { definition: shipped });
      expect(checked).toMatchObject({ valid: true, problems: [] });
    }
  });
});

describe(`what flows refer to ${verifies("CFG-4")}`, () => {
  const service = {
    scheme: "api",
    service_id: "crm",
    config: {
      base_url: "https://crm.example.com",
      tools: { customer_list: { description: "Customers.", endpoint: "/customers" } },
    },
  };
  const usesService = definition({
    name: "customers",
    start: "each",
    nodes: {
      each: {
        kind: "map",
        items: { $: "[1..3]" },
        body: { start: "list", nodes: { list: { kind: "tool", uri: "api://crm/customer_list?timeout=5000" } } },
      },
    },
  });

  test("a service that a flow calls is deleted only when that is confirmed", async () => {
    const { id } = await tenant.client.post("/v1/tool-services", service);
    const flow = await create({ definition: usesService, publish: true });
    const refused = await tenant.client.send("delete", `/v1/tool-services/${id}`);
    expect(refused).toMatchObject({ status: 409, json: { error: { code: "service_referenced" } } });
    expect(refused.json.error.references).toEqual([
      {
        kind: "flow",
        id: flow.id,
        name: "customers",
        field: "versions.1.nodes.each.body.nodes.list.uri",
        value: "api://crm/customer_list?timeout=5000",
      },
    ]);
    expect(await tenant.client.send("delete", `/v1/tool-services/${id}?force=true`)).toMatchObject({ status: 204 });
  });

  test("a flow that another one calls is deleted only when that is confirmed", async () => {
    const child = await create({ definition: definition(), publish: true });
    const parent = definition({ name: "parent", start: "sub", nodes: { sub: { kind: "flow", name: "orders" } } });
    await create({ definition: parent });
    const { data } = await tenant.client.get(`/v1/flows/${child.id}/references`);
    expect(data).toEqual([
      expect.objectContaining({ kind: "flow", name: "parent", field: "draft.nodes.sub.name", value: "flow://orders" }),
    ]);
    expect(await tenant.client.send("delete", `/v1/flows/${child.id}`)).toMatchObject({ status: 409 });
    expect(await tenant.client.send("delete", `/v1/flows/${child.id}?force=true`)).toMatchObject({ status: 204 });
    expect(await tenant.client.send("get", `/v1/flows/${child.id}`)).toMatchObject({ status: 404 });
  });
});
