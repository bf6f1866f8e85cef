/** What is kept and says something twice, as a merge of two branches may leave it, is refused: one of the two would be lost. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { apply, definition, flow, path } from "../support/configuration.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Client, Json } from "../support/gateway-client.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let client: Client;

beforeAll(async () => {
  gateway = await startGateway({ requestsOnly: true });
  ({ client } = await gateway.newTenant());
});
afterAll(() => gateway.close());

const sendText = async (method: "post" | "put" | "patch", to: string, text: string) =>
  client.send(method, to, undefined, {
    raw: Buffer.from(text),
    headers: { "content-type": "application/json" },
  });
/** The value with one of its members said once more behind it. */
const twice = (value: Json, member: string): string => `${JSON.stringify(value).slice(0, -1)},${member}}`;

describe(`a name that stands twice in an object ${verifies("CFG-1", "CFG-3")}`, () => {
  test.each(["plan", "apply"])("of a document is refused by %s, each by its place", async (what) => {
    const agents = `[{"name":"one"},{"name":"two","tools":["a"],"limits":{"rounds":1,"rounds":2},"tools":["b"]}]`;
    const { status, json } = await sendText("post", `${path}/${what}`, `{"configuration":{"agents":${agents}}}`);
    expect([status, json.error]).toMatchObject([
      400,
      {
        code: "invalid_request",
        param: "configuration.agents.1.limits.rounds",
        message:
          "Body field 'configuration.agents.1.limits.rounds' stands twice in its object, and one of the two would be lost; leave one of them out.",
        problems: [
          { param: "configuration.agents.1.limits.rounds" },
          { param: "configuration.agents.1.tools", message: "stands twice in its object" },
        ],
      },
    ]);
    expect((await client.get("/v1/agents")).data).toEqual([]);
  });

  test("of a document is a whole kind as well", async () => {
    const { json } = await sendText("post", `${path}/apply`, `{"configuration":{"agents":[{"name":"a"}],"agents":[]}}`);
    expect(json.error).toMatchObject({ param: "configuration.agents" });
  });

  test.each([
    ["/v1/plugins", twice(definition("look"), '"description":"Other."'), "description"],
    ["/v1/agents", '{"name":"a","tools":[],"t\\u006fols":["x"]}', "tools"],
    ["/v1/flows", `{"definition":${twice(flow("look"), '"nodes":{}')}}`, "definition.nodes"],
    ["/v1/flows/validate", `{"definition":${twice(flow("look"), '"nodes":{}')}}`, "definition.nodes"],
    ["/v1/group_chats", '{"name":"a","members":[],"limits":{"rounds":1,"rounds":2}}', "limits.rounds"],
    ["/v1/plugins/import", '{"definitions":[{"name":"a","name":"b"}]}', "definitions.0.name"],
    ["/v1/plugins/import", JSON.stringify({ openapi: '{"openapi":"3.1.0","paths":{"/a":{},"/a":{}}}' }), "openapi"],
    ["/v1/plugins/import", JSON.stringify({ openapi: "openapi: 3.1.0\npaths:\n  /a: {}\n  /a: {}\n" }), "openapi"],
    ["/v1/schedule_task", '{"rate":"1 day","task":{"uri":"look","uri":"other"}}', "task.uri"],
  ])("of what %s takes is refused", async (to, text, param) => {
    const { status, json } = await sendText("post", to, text);
    expect([status, json.error]).toMatchObject([400, { code: "invalid_request", param }]);
  });

  test("of a change of a room is refused", async () => {
    const { id } = await client.post("/v1/group_chats", { name: "a" });
    const { status, json } = await sendText("patch", `/v1/group_chats/${id}`, '{"name":"b","name":"c"}');
    expect([status, json.error]).toMatchObject([400, { code: "invalid_request", param: "name" }]);
    expect((await client.get(`/v1/group_chats/${id}`)).name).toBe("a");
  });

  test("of settings is refused", async () => {
    const { json } = await sendText("patch", "/v1/settings", '{"rounds":3,"rounds":4}');
    expect(json.error).toMatchObject({ param: "rounds" });
  });

  test("below a long name is told with the name's beginning, so that the answer is not many times the request", async () => {
    const within = Array.from({ length: 200 }, () => '"a":1').join(",");
    const answer = await sendText("post", "/v1/flows/validate", `{"${"n".repeat(100_000)}":{${within}}}`);
    expect([answer.status, answer.json.error]).toMatchObject([400, { param: `${"n".repeat(200)}….a` }]);
    expect(JSON.stringify(answer.json).length).toBeLessThan(10_000);
  });

  test("in two objects, or in texts, is none", async () => {
    const said = { agents: [{ name: "a", instructions: '{"name":1,"name":2}' }, { name: "b" }] };
    expect(await apply(client, said)).toMatchObject({ complete: true });
  });

  test("of a request for an answer stays what it is elsewhere: the last holds", async () => {
    const { status, json } = await sendText(
      "post",
      "/v1/chat/completions",
      '{"model":"x","model":"toolyard/scripted","messages":[{"role":"user","content":"Hi."}]}',
    );
    expect([status, json.model]).toEqual([200, "toolyard/scripted"]);
  });
});
