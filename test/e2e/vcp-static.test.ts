/** Static VCP plugins: their values in prompts, who refreshes them, and what they say where they fail. */
import { refreshSource } from "@toolyard/core/vcp/static/refresh";
import { pluginSource } from "@toolyard/core/vcp/static/source-message";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { startHits, type Hits } from "../support/hits.ts";
import { startVcpNode } from "../support/vcp-node.ts";
import { importVcp, type TestPlugin } from "../support/vcp-plugins.ts";
import { verifies } from "../support/verifies.ts";

let first: Gateway;
let second: Gateway;
let llm: LlmStub;
let hits: Hits;
let tenant: TestTenant;
beforeAll(async () => {
  hits = await startHits();
  llm = await startLlmStub();
  first = await startGateway();
  second = await startGateway({ sharedWith: first });
});
afterAll(async () => {
  await second.close();
  await first.close();
  await llm.close();
  await hits.close();
});
beforeEach(async () => {
  tenant = await first.newTenant();
  await tenant.addProvider(llm.url);
});

/** Counts its runs, then does what its script says. */
function staticPlugin(name: string, script: string, manifest: Json = {}): TestPlugin {
  const counting = `await fetch(${JSON.stringify(hits.urlOf(name))});\n${script}`;
  return {
    name,
    manifest: {
      displayName: `${name} of a test`,
      pluginType: "static",
      entryPoint: { command: "node plugin.mjs" },
      capabilities: { systemPromptPlaceholders: [{ placeholder: `{{VCP${name}}}` }, { placeholder: `Plain${name}` }] },
      ...manifest,
    },
    files: { "plugin.mjs": counting },
  };
}

/** What a system prompt becomes on its way to the model. */
async function prompt(content: string, gateway = first): Promise<string> {
  llm.script(text("ok"));
  await gateway.client(tenant.key).post("/v1/chat/completions", {
    model: "stub-1",
    tool_protocol: "vcp",
    messages: [
      { role: "system", content },
      { role: "user", content: "hello" },
    ],
  });
  const [system] = (llm.requests.at(-1) as Json).messages;
  return system.content;
}

describe(`a static plugin ${verifies("VCP-20")}`, () => {
  test("fills all of its placeholders with what it prints, run once by whoever of all instances", async () => {
    const name = "Weather";
    const config = { configSchema: { CITY: { type: "string", default: "Berlin" } } };
    await importVcp(tenant.client, staticPlugin(name, "console.log(`sunny $& in ${process.env.CITY}\\n`)", config));
    const asked = Array.from({ length: 6 }, (_none, at) =>
      prompt("{{VCPWeather}} | {{PlainWeather}}", at % 2 === 0 ? first : second),
    );
    for (const answer of await Promise.all(asked)) expect(answer).toBe("sunny $& in Berlin | sunny $& in Berlin");
    expect(hits.of(name)).toBe(1);
  });

  test("that is slow stands for itself until it has run, and that changes is run again", async () => {
    const name = "Slow";
    await importVcp(
      tenant.client,
      staticPlugin(name, "await new Promise((done) => setTimeout(done, 4000)); console.log('one')"),
    );
    expect(await prompt("{{VCPSlow}}")).toBe("[Slow of a test a-zheng-zai-jia-zai-zhong... ]");
    await expect.poll(() => prompt("{{VCPSlow}}"), { timeout: 20_000, interval: 500 }).toBe("one");
    await importVcp(tenant.client, staticPlugin(name, "console.log('two')"));
    await expect.poll(() => prompt("{{VCPSlow}}"), { timeout: 20_000 }).toBe("two");
  });

  test("that fails says so, and where it has worked before keeps its value", async () => {
    const failing = "console.error('no key'); process.exit(3)";
    await importVcp(tenant.client, staticPlugin("Broken", failing));
    expect(await prompt("{{VCPBroken}}")).toBe("[Error updating Broken: it exited with code 3: no key]");
    await importVcp(tenant.client, staticPlugin("Empty", ""));
    expect(await prompt("{{VCPEmpty}}")).toBe("[Empty data currently unavailable]");
    await importVcp(tenant.client, staticPlugin("Once", "console.log('fine')"));
    expect(await prompt("{{VCPOnce}}")).toBe("fine");
    await importVcp(tenant.client, staticPlugin("Once", failing));
    expect(await prompt("{{VCPOnce}}")).toBe("fine");
    await expect.poll(() => hits.of("Once"), { timeout: 10_000 }).toBe(2);
    expect(await prompt("{{VCPOnce}}")).toBe("fine");
  });

  test("is refreshed by its schedule when it is used, and without use where it is eager", async () => {
    const counting = "console.log(`at ${Date.now()}`)";
    const everySecond = { refreshIntervalCron: "* * * * * *" };
    await importVcp(tenant.client, staticPlugin("Used", counting, everySecond));
    const before = await prompt("{{VCPUsed}}");
    expect(before).toMatch(/^at \d+$/);
    await expect.poll(() => prompt("{{VCPUsed}}"), { timeout: 15_000 }).not.toBe(before);
    await importVcp(tenant.client, staticPlugin("Eager", counting, { ...everySecond, eager: true }));
    await first.tick();
    await expect.poll(() => hits.of("Eager"), { timeout: 10_000 }).toBe(1);
    await expect
      .poll(
        async () => {
          await Promise.all([first.tick(), second.tick()]);
          return hits.of("Eager");
        },
        { timeout: 15_000 },
      )
      .toBeGreaterThan(1);
  });

  test("may print much, and is gone with its plugin", async () => {
    const imported = await importVcp(tenant.client, staticPlugin("Long", "console.log('长'.repeat(40000))"));
    expect(await prompt("{{VCPLong}}")).toBe("长".repeat(40_000));
    expect((await first.core.repos.vcpStaticValues.list(tenant.id)).values).toMatchObject([{ value: null }]);
    await tenant.client.send("delete", `/v1/plugins/${imported.plugin_id ?? imported.id}`);
    expect(await prompt("{{VCPLong}}")).toBe("{{VCPLong}}");
    const kept = async (): Promise<unknown> => (await first.core.repos.vcpStaticValues.list(tenant.id)).values;
    await expect.poll(kept, { timeout: 10_000 }).toEqual([]);
    // Another one of the name does not speak with its words.
    await importVcp(tenant.client, staticPlugin("Long", "process.exit(3)"));
    const told = (): Promise<string> => prompt("{{VCPLong}}");
    await expect.poll(told, { timeout: 10_000 }).toBe("[Error updating Long: it exited with code 3]");
  });

  test("keeps its placeholder, whatever a node has said of it before", async () => {
    const url = `${second.url.replace("http", "ws")}/vcp-distributed-server`;
    const node = await startVcpNode({ url, key: tenant.key });
    const nodes = async (): Promise<number> => (await tenant.client.get("/v1/nodes")).data.length;
    await expect.poll(nodes, { timeout: 10_000 }).toBe(1);
    const placeholders = { VCPMine: "the node's", VCPTheirs: "the node's" };
    const say = (): void =>
      node.client.say({ type: "update_static_placeholders", data: { serverName: "lab", placeholders } });
    say();
    await expect.poll(() => prompt("{{VCPMine}}"), { timeout: 10_000 }).toBe("the node's");
    const { plugin_id: id } = await importVcp(tenant.client, staticPlugin("Mine", "console.log('own')"));
    await expect.poll(() => prompt("{{VCPMine}} {{VCPTheirs}}"), { timeout: 20_000 }).toBe("own the node's");
    say();
    const refused = (): Json[] => node.client.of("error").map(({ data }) => data.message);
    await expect.poll(refused, { timeout: 10_000 }).toMatchObject([expect.stringContaining("'VCPMine' is a plugin's")]);
    await tenant.client.expect("patch", `/v1/plugins/${id}`, { enabled: false });
    say();
    await expect.poll(() => prompt("{{VCPMine}}"), { timeout: 10_000 }).toBe("the node's");
    await node.close();
  });

  test("of a suspended tenant is not run", async () => {
    await importVcp(tenant.client, staticPlugin("Idle", "console.log('ran')"));
    await first.operator.expect("patch", `/v1/tenants/${tenant.id}`, { status: "suspended" });
    await refreshSource(first.core, tenant.id, pluginSource("Idle"));
    expect(hits.of("Idle")).toBe(0);
    await first.operator.expect("patch", `/v1/tenants/${tenant.id}`, { status: "active" });
    await refreshSource(first.core, tenant.id, pluginSource("Idle"));
    expect(hits.of("Idle")).toBe(1);
  });

  test("of another tenant gives nothing here", async () => {
    await importVcp(tenant.client, staticPlugin("Mine", "console.log('secret')"));
    expect(await prompt("{{VCPMine}}")).toBe("secret");
    tenant = await first.newTenant();
    await tenant.addProvider(llm.url);
    expect(await prompt("{{VCPMine}}")).toBe("{{VCPMine}}");
  });
});
