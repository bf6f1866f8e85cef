/** VCP plugins from their import to their answer, through every door that leads to a tool. */
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { packZip, type ZipFile } from "@toolyard/core/zip";
import { findBubblewrap } from "@toolyard/platform/local/plugin-wall";
import { readPluginDirectory } from "@toolyard/platform/local/plugin-directory";
import type { Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { calls, startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { rawClient } from "../support/mcp-clients.ts";
import { expectNoneRuns } from "../contract/plugin-runner.ts";
import { importVcp, printing, vcpManifest } from "../support/vcp-plugins.ts";
import { verifies } from "../support/verifies.ts";

const { program: bubblewrap, missing } = await findBubblewrap(process.env["PATH"] ?? "");
if (missing !== undefined) console.log(`Skipped: the wall around plugins; ${missing}.`);

const samples = join(import.meta.dirname, "../../plugins");

/** A picture of one dot. */
const dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

let gateway: Gateway;
let tenant: TestTenant;
beforeAll(async () => {
  gateway = await startGateway();
});
afterAll(async () => {
  await gateway.close();
});
beforeEach(async () => {
  tenant = await gateway.newTenant();
});

const invoke = (uri: string, args: Json = {}): Promise<Reply> =>
  tenant.client.send("post", "/v1/tools/invoke", { uri, arguments: args });
/** What a call of this tool gave, as JSON. */
async function resultOf(uri: string, args: Json = {}): Promise<Json> {
  const { status, json, text } = await invoke(uri, args);
  expect(status, text).toBe(200);
  return JSON.parse(json.content);
}
async function errorOf(uri: string, args: Json = {}): Promise<Json> {
  const { status, json } = await invoke(uri, args);
  return { status, ...json.error };
}
async function sampleFiles(): Promise<readonly ZipFile[]> {
  const files = await readPluginDirectory(samples, ["plugin-manifest.json"]);
  return files ?? [];
}
async function importSamples(): Promise<Json> {
  const zip = Buffer.from(await packZip(await sampleFiles())).toString("base64");
  return tenant.client.post("/v1/plugins/import", { vcp: { zip } });
}

describe(`the manifest of the specification ${verifies("VCP-4", "VCP-1")}`, () => {
  test("loads verbatim and answers 3 to its own example", async () => {
    const imported = await importSamples();
    expect(imported.operations.map(({ action }: Json) => action)).toEqual(imported.operations.map(() => "added"));
    const manifest = JSON.parse(await readFile(join(samples, "SciCalculator/plugin-manifest.json"), "utf8"));
    const example: string = manifest.capabilities.invocationCommands[0].example;
    const [, expression] = /expression:「始」(.*?)「末」/.exec(example) ?? [];
    expect(expression).toBe("1+2");
    expect((await resultOf("vcp://SciCalculator", { expression })).original_plugin_output).toBe(3);
    expect((await resultOf("vcp://SciCalculator/eval", { expression: "2**10" })).original_plugin_output).toBe(1024);
  });

  test("answers in Node and in a shell as well", async () => {
    await importSamples();
    const counted = await resultOf("vcp://TextStatistics/count", { text: "one two\nthree" });
    expect(counted).toMatchObject({ words: 3, lines: 2 });
    const told = await resultOf("vcp://ServerClock");
    expect(told.utc).toMatch(/^\d{4}-\d\d-\d\dT/);
    const refused = await errorOf("vcp://SciCalculator", { expression: "__import__('os').system('id')" });
    expect(refused).toMatchObject({ status: 502, code: "tool_failed" });
    expect(refused.message).toContain("cannot be computed");
  });
});

describe(`one plugin at every door ${verifies("VCP-3")}`, () => {
  test("is listed with what its manifest says, for people, functions, MCP and VCP", async () => {
    await importSamples();
    const { data } = await tenant.client.get("/v1/plugins?limit=100");
    expect(data.find(({ name }: Json) => name === "TextStatistics")).toMatchObject({
      type: "VCP",
      displayName: "Text statistics",
      version: "1.0.0",
      description: "Counts characters, words and lines of a text, or names its most frequent words.",
      communication: { protocol: "stdio", timeout: 10_000 },
      enabled: true,
    });
    await importVcp(tenant.client, printing("Wan2.1VideoGen", '{"status":"success","result":"made"}'));
    const { alias } = (await tenant.client.get("/v1/tools")).data.find((each: Json) => each.name === "Wan2.1VideoGen");
    const openai = await tenant.client.get("/v1/tools?format=openai");
    const names = openai.data.map((each: Json) => each.function.name);
    expect(names).toContain(alias);
    // One name that a model's back end does not take has it refuse the whole request.
    expect(names.filter((name: string) => !/^[a-zA-Z_][a-zA-Z0-9_-]{0,63}$/.test(name))).toEqual([]);
    const before = await tenant.client.get("/v1/tools?format=openai&after=Wan2.1&limit=1");
    expect([before.data[0].function.name, before.last_id]).toEqual([alias, "Wan2.1VideoGen"]);
    expect(await tenant.client.post("/v1/tools/invoke", { name: alias, arguments: {} })).toMatchObject({
      status: "completed",
    });
    const offered = openai.data.find((each: Json) => each.function.name === "TextStatistics").function;
    expect(offered.description).toContain("Counts characters, words and lines.");
    expect(offered.parameters.properties.command.anyOf[0].enum).toEqual(["count", "frequent"]);
    expect(offered.parameters.properties.text.description).toContain("the text to count");
    const mcp = await tenant.client.get("/v1/tools?format=mcp");
    expect(mcp.tools.map(({ name }: Json) => name)).toContain("SciCalculator");
    const vcp = await tenant.client.get("/v1/tools?format=vcp");
    expect(vcp.data.find(({ name }: Json) => name === "SciCalculator").text).toBe(
      "- 科学计算器 (SciCalculator) - 命令: eval:\n    输入表达式并返回计算结果\n  调用示例:\n    <<<[TOOL_REQUEST]>>>\n    tool_name:「始」SciCalculator「末」, expression:「始」1+2「末」\n    <<<[END_TOOL_REQUEST]>>>",
    );
  });

  test("runs for a model and for an MCP client", async () => {
    await importSamples();
    const llm: LlmStub = await startLlmStub();
    try {
      await tenant.addProvider(llm.url);
      llm.script(calls({ name: "SciCalculator", arguments: { expression: "6*7" } }), text("It is 42."));
      const answer = await tenant.client.post("/v1/chat/completions", {
        model: "stub-1",
        messages: [{ role: "user", content: "What is 6*7?" }],
      });
      expect(answer.choices[0].message.content).toBe("It is 42.");
    } finally {
      await llm.close();
    }
    const mcp = rawClient(`${gateway.url}/mcp`, tenant.key);
    const called = await mcp.ask("tools/call", { name: "SciCalculator", arguments: { expression: "6*7" } });
    expect(called.text).toContain("original_plugin_output");
    expect(called.text).toContain("42");
  });
});

describe(`what a tenant decides about a plugin ${verifies("CHAT-11", "VCP-1")}`, () => {
  const idOf = async (name: string): Promise<string> =>
    (await tenant.client.get("/v1/plugins?limit=100")).data.find((each: Json) => each.name === name).id;

  test("holds its calls for a person and keeps it to roles, and stays when the folder comes again", async () => {
    await importVcp(tenant.client, printing("Shell", '{"status":"success","result":"done"}'));
    const id = await idOf("Shell");
    const change = (body: Json): Promise<Json> => tenant.client.expect("patch", `/v1/plugins/${id}`, body);
    expect(await change({ sensitive: true, roles: ["admin"] })).toMatchObject({ sensitive: true, roles: ["admin"] });
    const again = {
      ...printing("Shell", '{"status":"success","result":"newer"}'),
      manifest: { description: "Newer." },
    };
    expect(await importVcp(tenant.client, again)).toMatchObject({ action: "changed" });
    const asked = await invoke("vcp://Shell");
    expect(asked).toMatchObject({ status: 202, json: { status: "input_required" } });
    const member = await tenant.newKey();
    const refused = await member.client.send("post", "/v1/tools/invoke", { uri: "vcp://Shell" });
    expect(refused.json.error.code).toMatch(/permission_denied|tool_not_found/);
    await tenant.client.post(`/v1/calls/${asked.json.id}/approve`);
    await expect.poll(async () => (await tenant.client.get(`/v1/calls/${asked.json.id}`)).state).toBe("completed");
    await change({ sensitive: false, roles: [], enabled: true });
    expect((await member.client.send("post", "/v1/tools/invoke", { uri: "vcp://Shell" })).status).toBe(200);
  });

  test("is part of the definition of other tools", async () => {
    const id = await tenant.addPlugin({
      name: "look",
      execution: { method: "GET", base_url: "https://crm.example.com/look", param_placement: "query" },
    });
    const { status, json } = await tenant.client.send("patch", `/v1/plugins/${id}`, { sensitive: true });
    expect(status).toBe(400);
    expect(json.error).toMatchObject({ param: "sensitive", message: expect.stringContaining("PUT /v1/plugins/{id}") });
  });
});

describe.skipIf(bubblewrap === undefined)(`the wall around a process ${verifies("VCP-4")}`, () => {
  test("is not opened for a program that the manifest names and that the machine has elsewhere", async () => {
    const outside = await mkdtemp(join(tmpdir(), "toolyard-outside-"));
    const script = join(outside, "deploy.sh");
    await writeFile(script, "#!/bin/bash\n# of-the-operator\n", { mode: 0o755 });
    for (const [name, command] of [
      ["Absolute", script],
      ["Relative", `../../../../../..${script}`],
    ] as const) {
      // Where the script were run, its own words would be what is said of it.
      const files = { "says.sh": 'cat "$0"; exit 0', "config.env": "BASH_ENV=./says.sh\n" };
      await importVcp(tenant.client, { name, manifest: { entryPoint: { command } }, files });
      const { status, json, text } = await invoke(`vcp://${name}`);
      expect(status, text).toBe(502);
      expect(text).not.toContain("of-the-operator");
      expect(json.error.message).toMatch(/not found|No such file/);
    }
    await rm(outside, { recursive: true });
  });

  test("leaves programs of the system where manifests name them by their paths", async () => {
    const answer = printing("Path", '{"status":"success","result":"ran"}');
    await importVcp(tenant.client, { ...answer, manifest: { entryPoint: { command: "/bin/sh ./plugin.sh" } } });
    expect(await resultOf("vcp://Path")).toMatchObject({ original_plugin_output: "ran" });
  });
});

describe(`what a process can do wrong ${verifies("VCP-4")}`, () => {
  const sh = (name: string, script: string, manifest: Json = {}): Promise<Json> =>
    importVcp(tenant.client, { name, manifest, files: { "plugin.sh": script } });

  test("noise around the answer is an error that quotes what was seen", async () => {
    await importVcp(tenant.client, printing("Noisy", 'log line\n{"status":"success","result":"x"}\n'));
    const error = await errorOf("vcp://Noisy");
    expect(error).toMatchObject({ status: 502, code: "tool_failed", tool_name: "Noisy" });
    expect(error.vcp_error.plugin_execution_error).toBe(
      'Plugin "Noisy" exited successfully but did not provide a valid initial JSON response. Stdout: log line\n{"status":"success","result":"x"}',
    );
  });

  test("ids that are numbers come back digit by digit", async () => {
    const id = "1234567890123456789";
    await importVcp(tenant.client, printing("Orders", `{"status":"success","result":{"id":${id},"count":2}}`));
    expect(await resultOf("vcp://Orders")).toMatchObject({ id, count: 2 });
    await importVcp(tenant.client, printing("Order", `{"status":"success","result":"${id}"}`));
    expect((await resultOf("vcp://Order")).original_plugin_output).toBe(id);
  });

  test("an answer counts whatever the exit code, with or without a line break at its end, in any length", async () => {
    await sh("Loud", `cat >/dev/null; printf '{"status":"success","result":"ok"}'; echo warned >&2; exit 1`);
    expect((await resultOf("vcp://Loud")).original_plugin_output).toBe("ok");
    await sh("Long", `head -c 3000000 /dev/zero | tr '\\0' a | sed 's/^/{"status":"success","result":"/; s/$/"}/'`);
    const { json } = await invoke("vcp://Long");
    expect(json.handle.bytes).toBeGreaterThan(3_000_000);
  });

  test("characters that come in two pieces stay whole", async () => {
    await sh("Split", `cat >/dev/null; printf '{"status":"success","result":"\\346'; sleep 0.2; printf '\\200\\250"}'`);
    expect((await resultOf("vcp://Split")).original_plugin_output).toBe("怨");
  });

  test("a process that dies before it reads its input fails alone, with what it said", async () => {
    const script = "process.stderr.write('bad config');process.exit(3)";
    await importVcp(tenant.client, {
      name: "Dying",
      manifest: { entryPoint: { command: "node die.cjs" } },
      files: { "die.cjs": script },
    });
    const [died, lives] = await Promise.all([
      errorOf("vcp://Dying", { text: "a".repeat(1_000_000) }),
      tenant.client.get("/v1/models"),
    ]);
    expect(died.vcp_error.plugin_execution_error).toBe('Plugin "Dying" exited with code 3. Stderr: bad config');
    expect(lives.object).toBe("list");
  });

  test("of a long complaint the end is quoted, too, where a trace says why", async () => {
    const script = "cat >/dev/null; yes frame | head -n 400 >&2; echo 'ValueError: no such city' >&2; exit 1";
    await sh("Tracing", script);
    const { plugin_execution_error: said } = (await errorOf("vcp://Tracing")).vcp_error;
    expect(said).toMatch(/^Plugin "Tracing" exited with code 1\. Stderr: frame\n/);
    expect(said).toMatch(/frame\nValueError: no such city$/);
    expect(said.length).toBeLessThan(1_000);
  });

  test.for<[string, string]>([
    ["a crash", `printf '%0197d%s' 0 "$API_KEY" >&2; printf '%0900d' 0 >&2; exit 1`],
    ["the end of a crash", `printf '%0900d%s' 0 "$API_KEY" >&2; printf '%0490d' 0 >&2; exit 1`],
    ["noise", `printf '%0197d%s' 0 "$API_KEY"; printf '%0900d' 0`],
    ["too much", `printf '%0197d%s' 0 "$API_KEY"; head -c 20000000 /dev/zero`],
    ["a time limit", `printf '%0197d%s%0900d' 0 "$API_KEY" 0; sleep 60`],
    ["an error of its own", `printf '{"status":"error","error":"%016370d%s%0100d"}' 0 "$API_KEY" 0`],
  ])("no piece of a secret is left where %s is cut", async ([what, script]) => {
    await importVcp(tenant.client, {
      name: "Telling",
      manifest: { communication: { protocol: "stdio", timeout: 1_500 }, configSchema: { API_KEY: "string" } },
      files: { "plugin.sh": `cat >/dev/null; ${script}`, "config.env": "API_KEY=sk-verysecretvalue-0123456789\n" },
    });
    await tenant.client.expect("patch", "/v1/settings", { result_max_bytes: 100_000 });
    const error = await errorOf("vcp://Telling");
    expect(error.status, what).toBeGreaterThanOrEqual(500);
    expect(JSON.stringify(error)).not.toMatch(/sk-|secretv|0123456/);
    expect(JSON.stringify(await tenant.client.get(`/v1/calls/${error.call_id}`))).not.toMatch(/sk-|secretv|0123456/);
  });

  test.for([
    ["nothing", "", "did not provide a valid initial JSON response"],
    ["two answers", `echo '{"status":"success"}'; echo '{"status":"success"}'`, "did not provide a valid"],
    ["a status that there is not", `echo '{"status":"ok"}'`, "did not provide a valid initial JSON response"],
  ] as const)("%s is a clear error", async ([what, script, words]) => {
    const name = what.replaceAll(" ", "_");
    await sh(name, `cat >/dev/null; ${script}`);
    expect((await errorOf(`vcp://${name}`)).vcp_error.plugin_execution_error).toContain(words);
  });

  test("a program that is not there, and one that says too much, are clear errors", async () => {
    await sh("Nowhere", "", { entryPoint: { command: "no-such-program-anywhere" } });
    expect((await errorOf("vcp://Nowhere")).message).toContain("could not be started");
    await tenant.client.expect("patch", "/v1/settings", { result_max_bytes: 100_000 });
    await sh("Flood", "yes | head -c 20000000");
    expect(await errorOf("vcp://Flood")).toMatchObject({ code: "tool_output_too_large" });
  });

  test("a child that holds the output open neither delays an answer nor outlives a time limit", async () => {
    const early = `sleep 661 & echo '{"status":"success","result":"early"}'`;
    await sh("Waits", `${early}; wait`, { communication: { protocol: "stdio", timeout: 1_500 } });
    await sh("Leaves", early, { communication: { protocol: "stdio", timeout: 10_000 } });
    const since = performance.now();
    const [waited, left] = await Promise.all([errorOf("vcp://Waits"), resultOf("vcp://Leaves")]);
    expect(waited).toMatchObject({ status: 504, code: "tool_timeout" });
    expect(waited.vcp_error.plugin_execution_error).toBe(
      'Plugin "Waits" execution timed out. Stdout: {"status":"success","result":"early"}',
    );
    expect(waited.message).toContain("It had 1500 ms");
    expect(left.original_plugin_output).toBe("early");
    expect(performance.now() - since).toBeLessThan(8_000);
    await expectNoneRuns("sleep 661");
  });

  test("an address may shorten the time, and the tenant's cap holds", async () => {
    await sh("Slow", "sleep 662");
    expect(await errorOf("vcp://Slow?timeout=300")).toMatchObject({ code: "tool_timeout" });
    expect(await errorOf("vcp://Slow?timeout=9999999")).toMatchObject({ status: 400, code: "invalid_uri" });
  });
});

describe(`what a plugin says ${verifies("VCP-4")}`, () => {
  test("beside its result is for the model: words instead of it, and a picture", async () => {
    const said = { status: "success", result: { x: 1 }, messageForAI: "Look at the dot.", base64: dot };
    await importVcp(tenant.client, printing("Painter", JSON.stringify(said)));
    const { json } = await invoke("vcp://Painter");
    expect(json.content).toContain("Look at the dot.");
    expect(json.content).toContain("[image: image/png, ");
    const whole = await tenant.client.get(`/v1/calls/${json.handle.call_id}/result`);
    expect(whole).toMatchObject({ x: 1, messageForAI: "Look at the dot." });
    expect(whole.content[1].image_url.url).toBe(`data:image/png;base64,${dot}`);
  });

  test("as an error is an error with its own words, and with what else it gave", async () => {
    const said = { status: "error", error: { code: "X", message: "M" }, result: { hint: "h" } };
    await importVcp(tenant.client, printing("Refusing", JSON.stringify(said)));
    const error = await errorOf("vcp://Refusing", { maid: "Nova" });
    expect(error).toMatchObject({ status: 502, code: "tool_failed" });
    expect(error.vcp_error).toMatchObject({ result: { hint: "h" }, plugin_error: said.error, MaidName: "Nova" });
    await importVcp(tenant.client, printing("Wordy", '{"status":"error","message":"no such file"}'));
    expect(await errorOf("vcp://Wordy")).toMatchObject({ message: "'Wordy' failed: no such file" });
  });
});

describe(`configuration ${verifies("VCP-2")}`, () => {
  const configSchema = {
    FROM_DEFAULT: { type: "integer", default: 7 },
    FROM_GLOBAL: "string",
    FROM_FILE: { type: "string", default: "lost" },
    FROM_DOTENV: "string",
    FROM_TENANT: { type: "boolean", default: "true" },
    API_KEY: { type: "string", required: true },
  };
  const script = 'console.log(JSON.stringify({ status: "success", result: { ...process.env, cwd: process.cwd() } }));';
  const plugin = {
    name: "Configured",
    manifest: { configSchema, entryPoint: { command: "node show.cjs" } },
    files: {
      "show.cjs": script,
      "config.env": "FROM_FILE=file # note\nFROM_DOTENV=lost\nFROM_TENANT=true\nBESIDE=yes\n",
      ".env": 'FROM_DOTENV="dot env"\n',
    },
  };

  test("lacks a required key that a file leaves empty, or gives no value of its type", async () => {
    const needed = { type: "string", required: true };
    const lacking = {
      ...printing("Lacking", '{"status":"success"}'),
      manifest: { configSchema: { API_KEY: needed, COUNT: { ...needed, type: "integer" } } },
    };
    const files = { ...lacking.files, "config.env": "API_KEY=\nCOUNT=many\n" };
    const { plugin_id: id } = await importVcp(tenant.client, { ...lacking, files });
    const reason = `it needs a value for 'API_KEY', 'COUNT'; set it with PUT /v1/plugins/${id}/config`;
    expect(await tenant.client.get(`/v1/plugins/${id}`)).toMatchObject({ enabled: false, reason });
    await importVcp(tenant.client, { ...lacking, files: { ...files, "config.env": "API_KEY=k\nCOUNT=3\n" } });
    expect(await tenant.client.get(`/v1/plugins/${id}`)).toMatchObject({ enabled: true, reason: null });
  });

  test("comes in layers, typed; a missing required key switches off, saying which", async () => {
    const imported = await importVcp(tenant.client, plugin);
    expect(imported).toMatchObject({ action: "added", name: "Configured" });
    const path = `/v1/plugins/${imported.plugin_id}`;
    expect(await tenant.client.get(path)).toMatchObject({
      enabled: false,
      reason: `it needs a value for 'API_KEY'; set it with PUT ${path}/config`,
    });
    expect(await errorOf("vcp://Configured")).toMatchObject({ status: 403, code: "service_disabled" });
    await tenant.client.expect("put", "/v1/vcp/config", { values: { FROM_GLOBAL: "global", FROM_FILE: "lost" } });
    const config = await tenant.client.expect("put", `${path}/config`, {
      values: { API_KEY: "sk-very-secret", FROM_TENANT: false },
    });
    expect(config.enabled).toBe(true);
    const sources = Object.fromEntries(config.keys.map(({ key, source }: Json) => [key, source]));
    expect(sources).toEqual({
      FROM_DEFAULT: "default",
      FROM_GLOBAL: "global",
      FROM_FILE: "config.env",
      FROM_DOTENV: ".env",
      FROM_TENANT: "tenant",
      API_KEY: "tenant",
      DebugMode: "default",
      BESIDE: "config.env",
    });
    const seen = await resultOf("vcp://Configured");
    expect(seen).toMatchObject({
      FROM_DEFAULT: "7",
      FROM_GLOBAL: "global",
      FROM_FILE: "file",
      FROM_DOTENV: "dot env",
      FROM_TENANT: "false",
      BESIDE: "yes",
      DebugMode: "false",
      PYTHONIOENCODING: "utf-8",
      API_KEY: "[redacted]",
    });
    expect(seen.PROJECT_BASE_PATH).toBe(seen.cwd);
    expect(Object.keys(seen).join(" ")).not.toMatch(/TOOLYARD|MASTER|ADMIN/);
  });

  test("takes keys of the schema only, with values of their type", async () => {
    const { plugin_id } = await importVcp(tenant.client, plugin);
    const put = (values: Json): Promise<Reply> =>
      tenant.client.send("put", `/v1/plugins/${plugin_id}/config`, { values });
    const unknown = await put({ LD_PRELOAD: "/tmp/x.so" });
    expect([unknown.status, unknown.json.error.param]).toEqual([400, "values.LD_PRELOAD"]);
    expect(unknown.json.error.message).toContain("known: FROM_DEFAULT");
    expect((await put({ FROM_DEFAULT: "many" })).json.error.message).toContain("must be a whole number");
    expect((await put({ FROM_TENANT: "perhaps" })).json.error.message).toContain("must be true or false");
    // Refused before anything of the request is kept.
    const blank = await put({ FROM_DEFAULT: 9, API_KEY: "  " });
    expect([blank.status, blank.json.error.param]).toEqual([400, "values.API_KEY"]);
    const { keys } = await tenant.client.get(`/v1/plugins/${plugin_id}/config`);
    expect(keys.find(({ key }: Json) => key === "FROM_DEFAULT").source).toBe("default");
  });

  test("is never shown, goes with the plugin, and is another tenant's not at all", async () => {
    const { plugin_id } = await importVcp(tenant.client, plugin);
    await tenant.client.expect("put", `/v1/plugins/${plugin_id}/config`, { values: { API_KEY: "sk-hidden-one" } });
    const listed = [
      await tenant.client.send("get", `/v1/plugins/${plugin_id}`),
      await tenant.client.send("get", `/v1/plugins/${plugin_id}/config`),
      await tenant.client.send("get", "/v1/credentials?limit=100"),
    ];
    expect(listed.map(({ text: body }) => body).join("")).not.toMatch(/sk-hidden-one|dot env/);
    const names = async (): Promise<string[]> =>
      (await tenant.client.get("/v1/credentials?limit=100")).data.map(({ name }: Json) => name);
    expect(await names()).toEqual(expect.arrayContaining(["vcp:Configured:config.env", "vcp:Configured:API_KEY"]));
    const other = await gateway.newTenant();
    await importVcp(other.client, plugin);
    expect((await other.client.send("post", "/v1/tools/invoke", { uri: "vcp://Configured" })).status).toBe(403);
    await tenant.client.expect("delete", `/v1/plugins/${plugin_id}`);
    expect(await names()).toEqual([]);
  });
});

describe(`an import ${verifies("VCP-24", "VCP-1")}`, () => {
  const upload = async (files: readonly ZipFile[]): Promise<Reply> =>
    tenant.client.send("post", "/v1/plugins/import", {
      vcp: { zip: Buffer.from(await packZip(files)).toString("base64") },
    });
  const file = (path: string, content: unknown): ZipFile => ({
    path,
    body: Buffer.from(typeof content === "string" ? content : JSON.stringify(content)),
  });
  const answering = (name: string, result: string): ZipFile[] => [
    file(`${name}/plugin-manifest.json`, vcpManifest({ name })),
    file(`${name}/plugin.sh`, `cat >/dev/null; echo '{"status":"success","result":"${result}"}'`),
  ];

  test("reports what it cannot take, logs it, takes the rest, and leaves what runs as it was", async () => {
    await upload(answering("Good", "first"));
    const { json } = await upload([
      ...answering("Good", "second"),
      file("broken/plugin-manifest.json", '{"name": "Broken",'),
      file("twice/plugin-manifest.json", vcpManifest({ name: "Good" })),
      file("type/plugin-manifest.json", vcpManifest({ name: "T", manifest: { pluginType: "daemon" } })),
      file(
        "protocol/plugin-manifest.json",
        vcpManifest({ name: "P", manifest: { communication: { protocol: "fax" } } }),
      ),
      file("cron/plugin-manifest.json", vcpManifest({ name: "C", manifest: { refreshIntervalCron: "61 * * * *" } })),
      file("native/plugin-manifest.json", vcpManifest({ name: "read_file" })),
      file("README.md", "belongs to nobody"),
    ]);
    const told = Object.fromEntries(json.operations.map((each: Json) => [each.operation, [each.action, each.reason]]));
    expect(told.Good).toEqual(["changed", null]);
    expect(told.broken).toEqual([
      "skipped",
      expect.stringMatching(/^'plugin-manifest.json' is not valid JSON \(.*position 18.*\)\.$/),
    ]);
    expect(told.twice[1]).toBe("its name 'Good' is that of the plugin in 'Good', which was taken");
    expect(told.type[1]).toContain("'pluginType' is 'daemon'; known: static,");
    expect(told.protocol[1]).toContain("'communication.protocol' is");
    expect(told.cron[1]).toContain("'refreshIntervalCron' is '61 * * * *'");
    expect(told.native[1]).toContain("'native://read_file'");
    expect(json.warnings).toEqual(["'README.md' belongs to no plugin and was left out."]);
    const logged = gateway.logged.filter(({ message }) => message === "a VCP plugin was not imported");
    expect(logged.map(({ fields }) => fields["folder"])).toEqual(expect.arrayContaining(["broken", "twice", "cron"]));
    expect((await resultOf("vcp://Good")).original_plugin_output).toBe("second");

    const worse = await upload([file("Good/plugin-manifest.json", "no json")]);
    expect([worse.status, worse.json.error.code]).toEqual([400, "invalid_definition"]);
    expect((await resultOf("vcp://Good")).original_plugin_output).toBe("second");
  });

  test("of the same again changes nothing, and a dry run never does", async () => {
    await upload(answering("Steady", "one"));
    const again = await upload(answering("Steady", "one"));
    expect(again.json.operations[0].action).toBe("unchanged");
    const dry = await tenant.client.post("/v1/plugins/import", {
      dry_run: true,
      vcp: { manifest: vcpManifest({ name: "Other" }) },
    });
    expect(dry.operations[0]).toMatchObject({ action: "added", name: "Other", plugin_id: null });
    expect((await tenant.client.send("post", "/v1/tools/invoke", { uri: "vcp://Other" })).status).toBe(404);
  });

  test("takes over that a plugin is blocked, and one can be switched on and off", async () => {
    const [manifest, script] = answering("Blocked", "on") as [ZipFile, ZipFile];
    await upload([{ ...manifest, path: `${manifest.path}.block` }, script]);
    expect(await errorOf("vcp://Blocked")).toMatchObject({ status: 403, code: "service_disabled" });
    const { data } = await tenant.client.get("/v1/plugins?limit=100");
    const { id } = data.find(({ name }: Json) => name === "Blocked");
    expect(await tenant.client.expect("patch", `/v1/plugins/${id}`, { enabled: true })).toMatchObject({
      enabled: true,
    });
    expect((await resultOf("vcp://Blocked")).original_plugin_output).toBe("on");
    await tenant.client.expect("patch", `/v1/plugins/${id}`, { enabled: false });
    expect((await errorOf("vcp://Blocked")).code).toBe("service_disabled");
  });

  test.for([
    ["a path that leads out", [{ path: "a/../../etc/x", body: Buffer.from("x") }]],
    ["an absolute path", [{ path: "/etc/x", body: Buffer.from("x") }]],
    ["no plugin", [{ path: "readme.txt", body: Buffer.from("x") }]],
  ] as const)("refuses an archive with %s", async ([, files]) => {
    const reply = await upload(files);
    expect([reply.status, reply.json.error.code, reply.json.error.param]).toEqual([400, "invalid_request", "vcp.zip"]);
  });

  test("is used by another instance from its next request on", async () => {
    const beside = await startGateway({ sharedWith: gateway });
    try {
      const client = beside.client(tenant.key);
      expect((await client.send("post", "/v1/tools/invoke", { uri: "vcp://Shared" })).status).toBe(404);
      const { operations } = (await upload(answering("Shared", "here"))).json;
      const called = await client.post("/v1/tools/invoke", { uri: "vcp://Shared" });
      expect(JSON.parse(called.content).original_plugin_output).toBe("here");
      await tenant.client.expect("patch", `/v1/plugins/${operations[0].plugin_id}`, { enabled: false });
      expect((await client.send("post", "/v1/tools/invoke", { uri: "vcp://Shared" })).status).toBe(403);
    } finally {
      await beside.close();
    }
  });
});

describe(`addresses ${verifies("VCP-3")}`, () => {
  test("name a command, which the arguments need not; another one is refused, an unknown one is not found", async () => {
    await importSamples();
    expect((await resultOf("vcp://TextStatistics/frequent", { text: "a b a" })).a).toBe(2);
    const contradicting = await errorOf("vcp://TextStatistics/frequent", { text: "a", command: "count" });
    expect(contradicting).toMatchObject({ status: 400, code: "invalid_arguments" });
    const unknown = await errorOf("vcp://TextStatistics/vanish", { text: "a" });
    expect(unknown).toMatchObject({ status: 404, code: "tool_not_found" });
    expect(unknown.message).toContain("known: count, frequent");
  });
});

describe(`a directory of plugins ${verifies("VCP-1")}`, () => {
  test("is imported when a server starts, for its default tenant alone", async () => {
    const own = await startGateway({ env: { TOOLYARD_PLUGIN_DIR: samples } });
    try {
      const called = await own.operator.post("/v1/tools/invoke", {
        uri: "vcp://SciCalculator",
        arguments: { expression: "1+2" },
      });
      expect(JSON.parse(called.content).original_plugin_output).toBe(3);
      const told = own.logged.find(({ message }) => message.startsWith("VCP plugins of the plugin directory"));
      expect(told?.fields).toMatchObject({ tenant: "ten_default", changed: 0, skipped: 0 });
      const other = await own.newTenant();
      const { status } = await other.client.send("post", "/v1/tools/invoke", { uri: "vcp://SciCalculator" });
      expect(status).toBe(404);
    } finally {
      await own.close();
    }
  });

  test.for(["not-there", "a-file"])("that is named and is none ends the start: %s", async (name) => {
    const directory = await mkdtemp(join(tmpdir(), "toolyard-plugins-"));
    await writeFile(join(directory, "a-file"), "");
    const path = join(directory, name);
    await expect(startGateway({ env: { TOOLYARD_PLUGIN_DIR: path } })).rejects.toThrow(
      `TOOLYARD_PLUGIN_DIR: '${path}' cannot be read as a directory`,
    );
    await rm(directory, { recursive: true });
  });
});
