/** Whole numbers that a double cannot hold are often somebody's ids: none of them becomes another one on its way. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { callIn, publishFlow } from "../support/flows.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Reply, TestTenant } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { readingTool, writingTool } from "../support/http-tools.ts";
import { verifies } from "../support/verifies.ts";

const id = "1234567890123456789";

let gateway: Gateway;
let backEnd: HttpStub;
let tenant: TestTenant;

beforeAll(async () => {
  [gateway, backEnd] = await Promise.all([startGateway(), startHttpStub()]);
  tenant = await gateway.newTenant();
  const byId = { method: "DELETE", base_url: `${backEnd.url}/orders/{id}`, param_placement: "path" };
  const parameters = (type: unknown) => ({ type: "object", properties: { id: { type } }, required: ["id"] });
  await tenant.addPlugin({
    ...writingTool(backEnd, "delete_order", byId),
    parameters: parameters(["integer", "string"]),
  });
  await tenant.addPlugin({ ...writingTool(backEnd, "delete_number", byId), parameters: parameters("integer") });
  await tenant.addPlugin(readingTool(backEnd));
  const remove = { kind: "tool", name: "delete_order", arguments: { id: { $: "input.id" } } };
  await publishFlow(tenant, { name: "remove", start: "remove", nodes: { remove } });
});

afterAll(async () => {
  await Promise.all([gateway.close(), backEnd.close()]);
});

beforeEach(() => {
  backEnd.requests.length = 0;
  backEnd.answer = () => ({ body: "{}" });
});

function post(path: string, body: string): Promise<Reply> {
  return tenant.client.send("post", path, undefined, { raw: body, headers: { "content-type": "application/json" } });
}

const sent = (): string[] => backEnd.requests.map(({ method, target }) => `${method} ${target}`);

describe(`a whole number of more digits than can be carried ${verifies("BLIND-8", "CHAT-18")}`, () => {
  test.each([
    ["a call", "/v1/tools/invoke", `{"name":"delete_order","arguments":{"id":${id}}}`],
    ["a call for later", "/v1/tools/invoke", `{"name":"delete_order","async":true,"arguments":{"id":${id}}}`],
    ["an explanation", "/v1/tools/explain", `{"name":"delete_order","arguments":{"id":${id}}}`],
    ["a run of a flow", "/v1/run_workflow", `{"workflow_id":"remove","stream":false,"input":{"id":${id}}}`],
    ["a schedule", "/v1/schedule_task", `{"delay_ms":1,"task":{"uri":"delete_order","arguments":{"id":${id}}}}`],
  ])("is refused in %s, with what to send instead", async (_what, path, body) => {
    const { status, json } = await post(path, body);
    expect([status, json.error.code]).toEqual([400, "invalid_request"]);
    expect(json.error.message).toContain(
      `${id}, which cannot be carried exactly; send it as a string where its schema takes strings`,
    );
    expect(sent()).toEqual([]);
  });

  test("is refused as well where a double holds it exactly, which would be written with other digits", async () => {
    const odd = "175928847299117056";
    const { status, json } = await post("/v1/tools/invoke", `{"name":"delete_order","arguments":{"id":${odd}}}`);
    expect([status, json.error?.code, sent()]).toEqual([400, "invalid_request", []]);
    expect(json.error.message).toContain(odd);
  });

  test("is sent as it is where it is given as a string", async () => {
    expect((await post("/v1/tools/invoke", `{"name":"delete_order","arguments":{"id":"${id}"}}`)).status).toBe(200);
    expect(sent()).toEqual([`DELETE /orders/${id}`]);
  });

  test("is sent as it is where an OpenAPI document says that it has 64 bits and it is written as text", async () => {
    const schema = { type: "integer", format: "int64", minimum: 1 };
    const parameter = (name: string, place: string) => ({ name, in: place, required: place === "path", schema });
    const content = (type: string, properties: unknown) => ({ [type]: { schema: { type: "object", properties } } });
    const operation = (operationId: string, more: unknown) => ({ operationId, ...(more as object), responses: {} });
    const fields = { id: schema, ids: { type: "array", items: { ...schema, nullable: true } } };
    await tenant.client.post("/v1/plugins/import", {
      openapi: {
        openapi: "3.0.3",
        info: { title: "Posts", version: "1" },
        servers: [{ url: backEnd.url }],
        paths: {
          "/posts/{post}": {
            get: operation("readPost", {
              parameters: [
                parameter("post", "path"),
                parameter("after", "query"),
                parameter("X-Owner", "header"),
                { name: "ids", in: "query", schema: { type: "array", items: schema } },
                {
                  name: "by",
                  in: "query",
                  style: "deepObject",
                  schema: { type: "object", properties: { id: schema } },
                },
              ],
            }),
          },
          "/form": {
            post: operation("sendForm", {
              requestBody: { content: content("application/x-www-form-urlencoded", fields) },
            }),
          },
          "/parts": {
            post: operation("sendParts", { requestBody: { content: content("multipart/form-data", fields) } }),
          },
          "/xml": { post: operation("sendXml", { requestBody: { content: content("application/xml", fields) } }) },
          "/json": { post: operation("sendJson", { requestBody: { content: content("application/json", fields) } }) },
        },
      },
    });
    const call = (name: string, args: unknown): Promise<Reply> =>
      post("/v1/tools/invoke", JSON.stringify({ name, arguments: args }));
    const args = { post: id, after: `-${id}`, "X-Owner": id, ids: [id, 7], by: { id } };
    expect((await call("readPost", args)).status).toBe(200);
    expect(sent()).toEqual([`GET /posts/${id}?after=-${id}&ids=${id}&ids=7&by%5Bid%5D=${id}`]);
    expect(backEnd.requests[0]?.headers["x-owner"]).toBe(id);
    for (const name of ["sendForm", "sendParts", "sendXml"]) {
      expect((await call(name, { id, ids: [id, 7] })).status).toBe(200);
      expect(backEnd.requests.at(-1)?.body.toString().split(id)).toHaveLength(3);
    }
    for (const [name, wrong] of [
      ["readPost", { post: "7a" }],
      ["readPost", { post: 0 }],
      ["sendForm", { id: "" }],
      ["sendJson", { id }],
    ] as const) {
      expect((await call(name, wrong)).json.error.code).toBe("invalid_arguments");
    }
  });

  test("is a bound like any other in a definition, as where it is the largest of 64 bits", async () => {
    const look = (name: string): string =>
      JSON.stringify({ schema_version: "v1", description: "Looks.", ...readingTool(backEnd, name) }).replace(
        '"type":"string"',
        '"type":"string","maxLength":9223372036854775807',
      );
    expect((await post("/v1/plugins", look("bounded"))).status).toBe(201);
    const brought = `{"name":"own","arguments":{"q":"x"},"runtime_config":{"plugins":[${look("own")}]}}`;
    expect((await post("/v1/tools/invoke", brought)).status).toBe(200);
    expect(sent()).toEqual(["GET /own?q=x"]);
  });

  test("is the text of its digits in a call of MCP, which fits the tool or is an error that a model can read", async () => {
    const call = (name: string): Promise<Reply> =>
      post(
        "/mcp",
        `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"${name}","arguments":{"id":${id}}}}`,
      );
    expect((await call("delete_number")).json.result).toMatchObject({
      isError: true,
      content: [{ text: expect.stringContaining(id) }],
    });
    expect(sent()).toEqual([]);
    await call("delete_order");
    expect(sent()).toEqual([`DELETE /orders/${id}`]);
  });

  test("that a tool answers keeps its digits from one step of a flow to the next", async () => {
    backEnd.answer = ({ method }) => ({ body: method === "GET" ? `{"order":{"id":${id}},"n":12}` : "{}" });
    await publishFlow(tenant, {
      name: "find_and_remove",
      start: "find",
      nodes: {
        find: { kind: "tool", name: "lookup", arguments: { q: "x" }, next: "remove" },
        remove: {
          kind: "tool",
          name: "delete_order",
          arguments: { id: { $: "steps.find.output.order.id" } },
          next: "end",
        },
        end: { kind: "end", output: { $: "steps.find.output" } },
      },
    });
    const { json } = await post("/v1/run_workflow", '{"workflow_id":"find_and_remove","stream":false}');
    expect([json.state, json.output]).toEqual(["completed", { order: { id }, n: 12 }]);
    expect(sent()).toEqual(["GET /lookup?q=x", `DELETE /orders/${id}`]);
  });

  test("that a hook is sent keeps its digits", async () => {
    const flows = (await tenant.client.get("/v1/flows")).data as { readonly id: string; readonly name: string }[];
    const flow = flows.find(({ name }) => name === "remove");
    const { url } = await tenant.client.post(`/v1/flows/${flow?.id}/hooks`, { name: "shop" });
    const headers = { "content-type": "application/json" };
    const started = await fetch(url, { method: "POST", headers, body: `{"id":${id}}` });
    const run = (await started.json()) as { readonly run_id: string };
    expect(await callIn(tenant, run.run_id)).toMatchObject({ state: "completed" });
    expect(sent()).toEqual([`DELETE /orders/${id}`]);
  });
});

describe(`null from a tool ${verifies("BLIND-8", "FLOW-1")}`, () => {
  test("is null in a flow, and in what the run comes to", async () => {
    backEnd.answer = () => ({ body: "null" });
    await publishFlow(tenant, {
      name: "finds_nothing",
      start: "find",
      nodes: { find: { kind: "tool", name: "lookup", arguments: { q: "x" } } },
    });
    const whole = await post("/v1/run_workflow", '{"workflow_id":"finds_nothing","stream":false}');
    expect([whole.json.state, whole.json.output, whole.json.steps[0].output]).toEqual(["completed", null, null]);
    const streamed = await post("/v1/run_workflow", '{"workflow_id":"finds_nothing"}');
    expect(streamed.text).toMatch(/event: done\n.*\n.*"output":null/);
  });
});
