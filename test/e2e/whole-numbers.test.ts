/** Whole numbers that a double cannot hold are often somebody's ids: none of them becomes another one on its way. */
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { callIn, publishFlow } from "../support/flows.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Reply, TestTenant } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { readingTool, writingTool } from "../support/http-tools.ts";
import { anyTool, startMcpStub } from "../support/mcp-stub.ts";
import { verifies } from "../support/verifies.ts";

const id = "1234567890123456789";

const parameters = (type: unknown) => ({ type: "object", properties: { id: { type } }, required: ["id"] });

let gateway: Gateway;
let backEnd: HttpStub;
let tenant: TestTenant;

beforeAll(async () => {
  [gateway, backEnd] = await Promise.all([startGateway(), startHttpStub()]);
  tenant = await gateway.newTenant();
  const byId = { method: "DELETE", base_url: `${backEnd.url}/orders/{id}`, param_placement: "path" };
  await tenant.addPlugin({
    ...writingTool(backEnd, "delete_order", byId),
    parameters: parameters(["integer", "string"]),
  });
  await tenant.addPlugin({ ...writingTool(backEnd, "delete_number", byId), parameters: parameters("integer") });
  const number = { type: "integer" };
  const other = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };
  await tenant.addPlugin({
    ...writingTool(backEnd, "put_number"),
    parameters: {
      type: "object",
      properties: {
        id: number,
        ids: { type: "array", items: number },
        owner: { anyOf: [other, { type: "object", properties: { id: { $ref: "#/$defs/id" } } }] },
        maybe: { anyOf: [number, { type: "null" }] },
        name: { type: ["string", "integer"] },
        most: { type: "integer", maximum: 1e18 },
      },
      $defs: { id: { type: "number" } },
    },
  });
  const holding = (type: string) => ({ type: "object", properties: { id: { type } }, required: ["id"] });
  await tenant.addPlugin({
    ...writingTool(backEnd, "put_either"),
    parameters: {
      type: "object",
      properties: {
        id: number,
        either: { oneOf: [number, { type: "string" }] },
        owner: { anyOf: [holding("integer"), holding("string")] },
        since: { anyOf: [{ type: "string", pattern: "^[a-z]+$" }, number] },
      },
    },
  });
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

describe(`a whole number of more digits than a double holds ${verifies("BLIND-8", "CHAT-18")}`, () => {
  test.each([
    ["a call", "/v1/tools/invoke", `{"name":"delete_number","arguments":{"id":${id}}}`],
    ["a call for later", "/v1/tools/invoke", `{"name":"delete_number","async":true,"arguments":{"id":${id}}}`],
    ["a schedule", "/v1/schedule_task", `{"delay_ms":1,"task":{"uri":"delete_number","arguments":{"id":${id}}}}`],
  ])("arrives with all of them in %s", async (_what, path, body) => {
    expect((await post(path, body)).status).toBeLessThan(300);
    await vi.waitFor(() => expect(sent()).toEqual([`DELETE /orders/${id}`]), 10_000);
  });

  test.each([id, "175928847299117056", `-${id}`, "1764452000123000000"])(
    "is the same number in a body of JSON, given as one or as a text: %s",
    async (digits) => {
      for (const given of [digits, `"${digits}"`]) {
        const args = `{"id":${given},"ids":[${given},7],"owner":{"id":${given}},"maybe":${given},"name":${given}}`;
        expect((await post("/v1/tools/invoke", `{"name":"put_number","arguments":${args}}`)).status).toBe(200);
        const name = given === "1764452000123000000" ? undefined : `"${digits}"`;
        expect(backEnd.requests.at(-1)?.body.toString()).toBe(
          `{"id":${digits},"ids":[${digits},7],"owner":{"id":${digits}},"maybe":${digits},"name":${name ?? digits}}`,
        );
      }
    },
  );

  test.each([
    ["a list that is given as its text", "put_number", { ids: `[${id}]` }, `{"ids":[${id}]}`],
    ["an object that is given as its text", "put_number", { owner: `{"id":${id}}` }, `{"owner":{"id":${id}}}`],
    ["a text, where objects with either are taken", "put_either", { owner: { id } }, `{"owner":{"id":"${id}"}}`],
    ["a text beside one, where either is taken", "put_either", { id, either: id }, `{"id":${id},"either":"${id}"}`],
    ["one where texts have another form", "put_either", { since: id }, `{"since":${id}}`],
  ])("is sent as what it is in %s", async (_what, name, args, body) => {
    expect((await post("/v1/tools/invoke", JSON.stringify({ name, arguments: args }))).status).toBe(200);
    expect(backEnd.requests.at(-1)?.body.toString()).toBe(body);
  });

  test("is explained as it would be sent", async () => {
    const { json } = await post("/v1/tools/explain", `{"name":"put_number","arguments":{"id":${id}}}`);
    expect(json.request.body).toBe(`{"id":${id}}`);
  });

  test("is held to the bounds of its schema", async () => {
    const { status, json } = await post("/v1/tools/invoke", `{"name":"put_number","arguments":{"most":${id}}}`);
    expect([status, json.error.code]).toEqual([400, "invalid_arguments"]);
    expect(json.error.message).toContain(`must be at most 1000000000000000000, got ${id}`);
  });

  test("is refused in a run of a flow, with what to send instead", async () => {
    const body = `{"workflow_id":"remove","stream":false,"input":{"id":${id}}}`;
    const { status, json } = await post("/v1/run_workflow", body);
    expect([status, json.error.code]).toEqual([400, "invalid_request"]);
    expect(json.error.message).toContain(
      `${id}, which cannot be carried exactly; send it as a string where its schema takes strings`,
    );
    expect(sent()).toEqual([]);
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
                { ...parameter("after", "query"), schema: { type: "integer", format: "int64" } },
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
      ["readPost", { post: "0" }],
      ["readPost", { post: `-${id}` }],
      ["sendForm", { id: "" }],
      ["sendJson", { id: `-${id}` }],
    ] as const) {
      expect((await call(name, wrong)).json.error.code).toBe("invalid_arguments");
    }
    expect((await call("sendJson", { id, ids: [id, 7] })).status).toBe(200);
    expect(backEnd.requests.at(-1)?.body.toString()).toBe(`{"id":${id},"ids":[${id},7]}`);
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

  test("arrives so from a client of MCP, at a server of MCP and at a back end of a service", async () => {
    const server = await startMcpStub({ tools: [anyTool("get", { inputSchema: parameters("integer") })] });
    await tenant.client.post("/v1/tool-services", { scheme: "mcp", service_id: "far", config: { url: server.url } });
    const orders = { description: "Orders.", endpoint: "/orders", method: "POST", parameters: parameters("integer") };
    await tenant.client.post("/v1/tool-services", {
      scheme: "api",
      service_id: "shop",
      config: { base_url: backEnd.url, tools: { order: orders } },
    });
    const names = (await tenant.client.get("/v1/tools")).data as { readonly uri: string; readonly name: string }[];
    const call = (uri: string): Promise<Reply> => {
      const params = `{"name":"${names.find((tool) => tool.uri === uri)?.name}","arguments":{"id":${id}}}`;
      return post("/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":${params}}`);
    };
    expect((await call("plugin://delete_number")).json.result.isError).toBeUndefined();
    expect(sent()).toEqual([`DELETE /orders/${id}`]);
    await call("mcp://far/get");
    expect(server.http.requests.at(-1)?.body.toString()).toContain(`"arguments":{"id":${id}}`);
    await call("api://shop/order");
    expect(backEnd.requests.at(-1)?.body.toString()).toBe(`{"id":${id}}`);
    await server.close();
  });

  test.each([
    ["as it came", `{"jsonrpc":"2.0","id":${id},"method":"ping"}`, [`"id":${id},"result"`]],
    ["as the text that it is", `{"jsonrpc":"2.0","id":"${id}","method":"ping"}`, [`"id":"${id}","result"`]],
    ["with an error", `{"jsonrpc":"2.0","id":${id},"method":"tools/none"}`, [`"id":${id},"error"`]],
    [
      "of each message in a batch",
      `[{"jsonrpc":"2.0","id":-${id},"method":"ping"},{"jsonrpc":"2.0","id":7,"method":"ping"}]`,
      [`"id":-${id},"result"`, '"id":7,"result"'],
    ],
  ])(`is the id of a message of JSON-RPC that is given back %s ${verifies("CHAT-11")}`, async (_what, body, parts) => {
    const { text } = await post("/mcp", body);
    for (const part of parts) expect(text).toContain(part);
  });

  test("is an error that a model can read where the tool takes numbers that cannot be so long", async () => {
    const call = `{"name":"read_result","arguments":{"call_id":"call_x","offset":${id}}}`;
    const { json } = await post("/v1/tools/invoke", call);
    expect(json.error.code).toBe("invalid_arguments");
    expect(json.error.message).toContain(`"${id}", whose digits cannot be carried as a number`);
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
