/** Variables of prompts through the whole gateway: their routes, and what messages come to with them (VCP-19, VCP-11). */
import { packZip } from "@toolyard/core/zip";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let tenant: TestTenant;

beforeAll(async () => {
  gateway = await startGateway();
  tenant = await gateway.newTenant();
});
afterAll(() => gateway.close());

async function define(owner: TestTenant, variable: Json): Promise<Json> {
  return owner.client.post("/v1/vcp/variables", variable);
}

async function preview(from: TestTenant, ...messages: readonly Json[]): Promise<readonly string[]> {
  const reply = await from.client.post("/v1/vcp/variables/preview", { messages, model: "gpt-x" });
  return (reply["messages"] as readonly Json[]).map((message) => String(message["content"]));
}

const system = (content: string): Json => ({ role: "system", content });

describe(`variables ${verifies("VCP-19")}`, () => {
  test("are defined, read, changed and deleted", async () => {
    const made = await define(tenant, { kind: "var", name: "VarCity", content: "杭州", description: "where" });
    expect(made).toMatchObject({
      id: expect.stringMatching(/^var_/),
      object: "vcp_variable",
      kind: "var",
      name: "VarCity",
      content: "杭州",
      description: "where",
      bytes: 6,
      version: 1,
    });
    expect(await preview(tenant, system("in {{VarCity}}"))).toEqual(["in 杭州"]);
    const path = `/v1/vcp/variables/${String(made["id"])}`;
    expect(await tenant.client.get(path)).toEqual(made);
    const changed = await tenant.client.send("patch", path, { content: "宁波", version: 1 });
    expect(changed).toMatchObject({ status: 200, json: { content: "宁波", description: "where", version: 2 } });
    expect(await preview(tenant, system("in {{VarCity}}"))).toEqual(["in 宁波"]);
    expect(await tenant.client.send("patch", path, { content: "x", version: 1 })).toMatchObject({
      status: 412,
      json: { error: { code: "version_conflict" } },
    });
    expect((await tenant.client.send("delete", path)).status).toBe(204);
    expect((await tenant.client.send("get", path)).status).toBe(404);
    expect(await preview(tenant, system("in {{VarCity}}"))).toEqual(["in {{VarCity}}"]);
  });

  test("are shown to the model that a chat would reach under the name", async () => {
    const owner = await gateway.newTenant();
    const models = { smart: "gpt-nova" };
    await owner.client.post("/v1/providers", { name: "up", kind: "openai", base_url: "http://127.0.0.1:9", models });
    await define(owner, { kind: "sar", name: "SarPrompt1", content: "for nova", models: ["gpt-nova"] });
    const shown = async (model: string): Promise<Json> =>
      owner.client.post("/v1/vcp/variables/preview", { messages: [system("{{SarPrompt1}}.")], model });
    expect(await shown("smart")).toMatchObject({ messages: [{ content: "for nova." }] });
    expect(await shown("gpt-nova")).toMatchObject({ messages: [{ content: "for nova." }] });
    expect(await shown("other")).toMatchObject({ messages: [{ content: "." }] });
  });

  test("is not looked for in what is no message", async () => {
    for (const message of [{ content: "{{VarCity}}" }, { role: {}, content: "{{VarCity}}" }]) {
      const answer = await tenant.client.send("post", "/v1/vcp/variables/preview", { messages: [message] });
      expect(answer).toMatchObject({ status: 400, json: { error: { code: "invalid_request", param: "messages.0" } } });
      expect(answer.json.error.message).toContain("'role'");
    }
  });

  test.each([
    [{ kind: "var", name: "City", content: "x" }, "name", "must begin with 'Var'"],
    [{ kind: "var", name: "VCP_ASYNC_RESULT::P::1", content: "x" }, "name", "but for 'VCP_ASYNC_RESULT::'"],
    [{ kind: "tar", name: "VarX", content: "x" }, "name", "must begin with 'Tar'"],
    [{ kind: "text", name: "../a.sh", content: "x" }, "name", ".txt or .md"],
    [{ kind: "emoji", name: "cats", content: "x" }, "name", "表情包"],
    [{ kind: "sar", name: "SarPrompt1", content: "x" }, "models", "models"],
    [{ kind: "var", name: "VarX", content: "x", models: ["m"] }, "models", "nothing that"],
    [{ kind: "detector", name: "Detector1", content: "x" }, "output", "put in place"],
    [{ kind: "spell", name: "x", content: "x" }, "kind", ""],
  ])("%j is refused, naming '%s'", async (body, param, reason) => {
    const reply = await tenant.client.send("post", "/v1/vcp/variables", body);
    expect(reply).toMatchObject({ status: 400, json: { error: { param, message: expect.stringContaining(reason) } } });
  });

  test("may be as large as a text, and are listed without it", async () => {
    const long = `${"长".repeat(300_000)} {{VarEnd}}`;
    await define(tenant, { kind: "text", name: "long.txt", content: long });
    await define(tenant, { kind: "var", name: "VarLong", content: "long.txt" });
    await define(tenant, { kind: "var", name: "VarEnd", content: "end" });
    const [text = ""] = await preview(tenant, system("{{VarLong}}"));
    expect({ length: text.length, end: text.slice(-4) }).toEqual({ length: 300_004, end: " end" });
    const listed = await tenant.client.get("/v1/vcp/variables?kind=text");
    expect(listed).toMatchObject({ object: "list", data: [{ name: "long.txt", bytes: 900_011 }] });
    expect(JSON.stringify(listed).length).toBeLessThan(2_000);
  });

  test("tell the time in the tenant's zone, which is a setting with a clear error", async () => {
    expect(await tenant.client.send("patch", "/v1/settings", { time_zone: "Mars/Base" })).toMatchObject({
      status: 400,
      json: { error: { param: "time_zone", message: expect.stringContaining("name of a time zone") } },
    });
    await tenant.client.send("patch", "/v1/settings", { time_zone: "Pacific/Kiritimati" });
    const [there] = await preview(tenant, system("{{Date}} {{Time}} {{Today}} {{Festival}}"));
    expect(there).toMatch(
      /^\d{4}\/\d{1,2}\/\d{1,2} \d\d:\d\d:\d\d 星期[一二三四五六日] \S{2}[鼠牛虎兔龙蛇马羊猴鸡狗猪]年\S+月\S+( \S\S)?$/,
    );
    await tenant.client.send("patch", "/v1/settings", { time_zone: "Pacific/Pago_Pago" });
    const [here] = await preview(tenant, system("{{Date}}"));
    expect(there?.startsWith(`${here} `)).toBe(false);
  });

  test("that come to too much are refused, naming the variable and the setting", async () => {
    const bomber = await gateway.newTenant();
    for (let at = 0; at < 20; at += 1) {
      const content = at === 0 ? "boom" : `{{VarBomb${at - 1}}}`.repeat(10);
      await define(bomber, { kind: "var", name: `VarBomb${at}`, content, position: 100 - at });
    }
    const messages = [system("{{VarBomb19}}")];
    const reply = await bomber.client.send("post", "/v1/vcp/variables/preview", { messages });
    expect(reply).toMatchObject({
      status: 422,
      json: {
        error: {
          code: "placeholder_limit",
          param: expect.stringMatching(/^VarBomb/),
          message: expect.stringContaining("placeholder_chars_max"),
        },
      },
    });
  });
});

describe(`files of a VCPToolBox ${verifies("VCP-19")}`, () => {
  const files = [
    { path: "TVStxt/city.txt", content: "杭州" },
    { path: "Agent/Nova.txt", content: "I am Nova in {{VarCity}}." },
    { path: "agent_map.json", content: '{"Nova": "Nova.txt"}' },
    { path: "sarprompt.json", content: '[{"promptKey": "SarPrompt1", "models": ["gpt-x"], "content": "for you"}]' },
    { path: "config.env", content: "Key=do-not-read\nTarHello=hello {{VarCity}}\nVarCity=city.txt\n" },
    { path: "server.js", content: "code" },
  ];

  test.each(["zip", "json"])("are imported as %s, once", async (form) => {
    const owner = await gateway.newTenant();
    const send = async (): Promise<Json> => {
      if (form === "json") return owner.client.post("/v1/vcp/variables/import", { files });
      const raw = new Uint8Array(
        await packZip(files.map(({ path, content }) => ({ path: `VCP/${path}`, body: Buffer.from(content) }))),
      );
      const headers = { "content-type": "application/zip" };
      return owner.client.expect("post", "/v1/vcp/variables/import", undefined, { raw, headers });
    };
    const skipped = [{ path: expect.stringContaining("server.js"), reason: expect.stringContaining("nothing that") }];
    expect(await send()).toEqual({ object: "vcp_variables_import", created: 5, updated: 0, unchanged: 0, skipped });
    expect(await send()).toMatchObject({ created: 0, updated: 0, unchanged: 5 });
    const text = "{{Nova}}|{{TarHello}}|{{SarPrompt1}}|{{Key}}";
    expect(await preview(owner, system(text))).toEqual(["I am Nova in 杭州.|hello 杭州|for you|{{Key}}"]);
  });

  test.each([
    ["application/zip", "no zip", "is no zip archive"],
    ["application/json", '{"files": [{"path": "../x.txt", "content": ""}]}', "'../x.txt'"],
    ["application/json", '{"files": 1}', "files"],
  ])("that are %s %s are refused", async (type, raw, reason) => {
    const headers = { "content-type": type };
    const reply = await tenant.client.send("post", "/v1/vcp/variables/import", undefined, { raw, headers });
    expect(reply).toMatchObject({ status: 400, json: { error: { message: expect.stringContaining(reason) } } });
  });
});

describe(`two instances ${verifies("VCP-19")}`, () => {
  test("have a change with their next request", async () => {
    const second = await startGateway({ sharedWith: gateway, requestsOnly: true });
    try {
      const owner = await gateway.newTenant();
      const there = { ...owner, client: second.client(owner.key) };
      const made = await define(owner, { kind: "agent", name: "Nova", content: "I am {{VarName}}." });
      await define(owner, { kind: "var", name: "VarName", content: "n.txt" });
      const file = await define(owner, { kind: "text", name: "n.txt", content: "Nova" });
      expect(await preview(there, system("{{agent:Nova}}"))).toEqual(["I am Nova."]);
      await owner.client.send("patch", `/v1/vcp/variables/${String(file["id"])}`, { content: "nobody" });
      expect(await preview(there, system("{{Nova}}"))).toEqual(["I am nobody."]);
      await there.client.send("delete", `/v1/vcp/variables/${String(made["id"])}`);
      expect(await preview(owner, system("{{Nova}}"))).toEqual(["{{Nova}}"]);
    } finally {
      await second.close();
    }
  });
});
