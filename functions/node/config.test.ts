import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { NodeConfigError, readNodeConfig, toMcpOffer, toOffer, type NodeConfig } from "./config.ts";

async function read(config: unknown): Promise<NodeConfig> {
  const directory = await mkdtemp(join(tmpdir(), "toolyard-config-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const path = join(directory, "node.json");
  await writeFile(path, typeof config === "string" ? config : JSON.stringify(config));
  return readNodeConfig(path);
}

const tool = { name: "measure", description: "Measures.", command: ["python3", "./measure.py", "./", "x/./y"] };

describe("node.json", () => {
  test("places what begins with ./ beside itself, and leaves the rest to its defaults", async () => {
    const { directory, programs } = await read({ name: "lab", tools: [tool] });
    expect(programs).toEqual([
      {
        ...tool,
        command: ["python3", join(directory, "measure.py"), directory, "x/./y"],
        parameters: { type: "object", properties: {} },
        environment: {},
        effect: "write",
        sensitive: false,
        timeout_ms: 60_000,
        concurrency: 1,
        resident: false,
        max_output_bytes: 10_485_760,
      },
    ]);
  });

  test("keeps how tools are run from the gateway", async () => {
    const { programs } = await read({ name: "lab", tools: [{ ...tool, environment: { PASSWORD: "p" } }] });
    expect(programs.map((program) => Object.keys(toOffer(program)).toSorted())).toEqual([
      ["concurrency", "description", "effect", "name", "parameters", "sensitive", "timeout_ms"],
    ]);
  });

  test.for([
    ["{", "the file is no JSON"],
    ['{"name": "lab", "tools": [{', "the file is no JSON"],
    [[tool], "the file is not valid: expected object"],
    [
      { name: "lab", tools: [{ ...tool, command: "python3 ./measure.py" }] },
      `'tools.0.command' must be a list of words, like ["python3", "./measure.py"]`,
    ],
    [{ name: "lab", tools: [{ ...tool, command: undefined }] }, "'tools.0.command' is required"],
    [{ name: "lab", mcp_servers: { a: { command: "x" } } }, "'mcp_servers.a.command' must be a list of words"],
    [{ name: "lab", tools: [] }, "tools"],
    [{ name: "la/b", tools: [tool] }, "name"],
    [{ name: "lab", mcp_servers: { "a b": { command: ["x"] } } }, "mcp_servers"],
    [{ name: "lab", mcp_servers: { a: { command: ["x"], variables: ["A-B"] } } }, "mcp_servers.a.variables"],
    [{ name: "lab", tools: [tool], mcp_servers: { measure: { command: ["x"] } } }, "mcp_servers.measure"],
    [{ name: "lab", tools: [{ ...tool, command: [] }] }, "tools.0.command"],
    [{ name: "lab", tools: [{ ...tool, timeout_ms: 0 }] }, "tools.0.timeout_ms"],
    [{ name: "lab", tools: [{ ...tool, extra: 1 }] }, "extra"],
  ] as const)("that cannot be used says where: %j", async ([config, where]) => {
    const failed = read(config);
    await expect(failed).rejects.toThrow(NodeConfigError);
    await expect(failed).rejects.toThrow(where);
  });

  test("that offers more than fits into a message says how much it is", async () => {
    const parameters = { type: "object", description: "x".repeat(15_000) };
    const tools = Array.from({ length: 10 }, (_, at) => ({ ...tool, name: `measure_${at}`, parameters }));
    const failed = read({ name: "lab", tools });
    await expect(failed).rejects.toThrow(NodeConfigError);
    await expect(failed).rejects.toThrow(/have 15\d{4} bytes together, more than the 122880/);
    await expect(read({ name: "lab", tools: tools.slice(0, 7) })).resolves.toMatchObject({ name: "lab" });
  });

  test("lists servers that are held, of which the gateway learns the name and the variables", async () => {
    const { directory, mcpServers, programs } = await read({
      name: "lab",
      mcp_servers: { memory: { command: ["node", "./memory.mjs"], environment: { A: "b" }, variables: ["FILE"] } },
    });
    expect(programs).toEqual([]);
    expect(mcpServers).toEqual([
      {
        name: "memory",
        command: ["node", join(directory, "memory.mjs")],
        environment: { A: "b" },
        variables: ["FILE"],
        concurrency: 16,
        max_message_bytes: 10_485_760,
      },
    ]);
    expect(mcpServers.map(toMcpOffer)).toEqual([
      expect.objectContaining({
        name: "memory",
        kind: "mcp",
        variables: ["FILE"],
        timeout_ms: 86_400_000,
        concurrency: 16,
      }),
    ]);
    expect(JSON.stringify(mcpServers.map(toMcpOffer))).not.toMatch(/memory\.mjs|"A"/);
  });

  test("that is not there is named", async () => {
    await expect(readNodeConfig("/nowhere/node.json")).rejects.toThrow("'/nowhere/node.json' cannot be read");
  });
});
