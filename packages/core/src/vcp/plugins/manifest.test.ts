import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { GatewayError } from "../../errors/gateway-error.ts";
import type { JsonObject } from "../../json.ts";
import { compileArguments } from "../../tools/arguments.ts";
import { verifies } from "../../../../../test/support/verifies.ts";
import { parseManifest } from "./manifest.ts";
import { readManifest } from "./manifest-file.ts";
import { describeTool } from "./parameters.ts";

const least = { name: "P", pluginType: "synchronous", entryPoint: { command: "node p.js" } };

/** Manifests of others, which are not ours to bring along. */
const corpus = process.env["VCP_MANIFESTS"] ?? join(import.meta.dirname, "../../../../../../shared/corpus");
const found = ["vcp-manifests", "vcp-manifests-store"].flatMap((folder) => {
  const path = join(corpus, folder);
  return existsSync(path) ? readdirSync(path).map((name) => join(path, name)) : [];
});
const manifests = found.filter((path) => path.endsWith(".json"));
if (manifests.length === 0) console.log(`Skipped: the manifests of others; there are none below ${corpus}.`);

describe(`manifests ${verifies("VCP-1")}`, () => {
  test.runIf(manifests.length > 0)("of every author load, and tell models of their arguments", () => {
    for (const path of manifests) {
      const manifest = readManifest(readFileSync(path));
      const { description, parameters } = describeTool(manifest);
      expect(description, path).not.toBe("");
      expect(compileArguments(parameters).validate({ anything: "else", command: "Unheard" }).ok, path).toBe(true);
    }
    expect(manifests).toHaveLength(141);
  });

  test.for<readonly [string, JsonObject, JsonObject]>([
    ["without version and communication", {}, { protocol: "stdio", timeoutMs: 60_000, displayName: "P" }],
    [
      "of a static plugin over 'process_stdio'",
      { pluginType: "static", communication: { protocol: "process_stdio" } },
      { protocol: "stdio" },
    ],
    ["of an asynchronous plugin without a time limit", { pluginType: "asynchronous" }, { timeoutMs: 1_800_000 }],
    [
      "with a time limit of the entry point, which counts nowhere",
      { entryPoint: { command: "x", timeout: 5 } },
      { timeoutMs: 60_000 },
    ],
    [
      "with script and command",
      {
        pluginType: "hybridservice",
        entryPoint: { script: "a.js", command: "node a.js" },
        communication: { protocol: "direct", encoding: "utf-8" },
      },
      { entryPoint: { script: "a.js", command: "node a.js" } },
    ],
    [
      "with a path of Windows",
      { entryPoint: { command: "bin\\cli.exe" } },
      { entryPoint: { command: "bin\\cli.exe" } },
    ],
    ["with a dot in its name", { name: "Wan2.1Gen" }, { name: "Wan2.1Gen" }],
    [
      "with empty lists",
      { capabilities: { invocationCommands: [], systemPromptPlaceholders: [] } },
      { commands: [], placeholders: [] },
    ],
    [
      "with a placeholder without braces, or alone",
      {
        capabilities: {
          systemPromptPlaceholders: [
            { placeholder: "Next" },
            { placeholder: "{{Other}}", isDynamic: true },
            "{{Alone}}",
          ],
        },
      },
      { placeholders: [{ placeholder: "{{Next}}" }, { placeholder: "{{Other}}" }, { placeholder: "{{Alone}}" }] },
    ],
    [
      "with a cron expression of six fields",
      { refreshIntervalCron: "0 */5 * * * *" },
      { refreshIntervalCron: "0 */5 * * * *" },
    ],
    [
      "with parts of other shapes",
      { dependencies: ["a"], lifecycle: { x: 1 }, permissions: "all", configSchema: {} },
      { configSchema: [] },
    ],
    [
      "with a push to clients of a kind that nobody is",
      { webSocketPush: { enabled: true, targetClientType: "UserNotification" } },
      { webSocketPush: { enabled: true, usePluginResultAsMessage: false, targetClientType: "UserNotification" } },
    ],
  ])("%s load", ([, change, expected]) => {
    expect(parseManifest({ ...least, ...change })).toMatchObject(expected);
  });

  test("have configuration in four shapes, mixed as well", () => {
    const keys = (configSchema: JsonObject[string]): unknown => parseManifest({ ...least, configSchema }).configSchema;
    expect(
      keys({
        A: { type: "integer", default: 3, required: true },
        B: "boolean",
        C: "string(必需)，the key",
        D: { type: "boolean", default: "true" },
      }),
    ).toEqual([
      { key: "A", type: "integer", required: true, default: "3" },
      { key: "B", type: "boolean", required: false },
      { key: "C", type: "text", required: true, description: "string(必需)，the key" },
      { key: "D", type: "boolean", required: false, default: "true" },
    ]);
    expect(keys([{ key: "E", type: "string", defaultValue: "", description: "of a list" }])).toEqual([
      { key: "E", type: "text", required: false, default: "", description: "of a list" },
    ]);
  });

  test.for<readonly [string, JsonObject, string]>([
    ["no name", { name: "" }, "name"],
    ["a name that leads elsewhere", { name: "../x" }, "name"],
    ["no type", { pluginType: "" }, "pluginType"],
    ["an unknown type", { pluginType: "daemon" }, "pluginType"],
    ["an unknown protocol", { communication: { protocol: "fax" } }, "communication.protocol"],
    ["a protocol that its type does not speak", { communication: { protocol: "direct" } }, "communication.protocol"],
    ["no command", { entryPoint: {} }, "entryPoint.command"],
    ["no module", { pluginType: "service", entryPoint: { command: "x" } }, "entryPoint.script"],
    ["a cron expression that is none", { refreshIntervalCron: "every day" }, "refreshIntervalCron"],
    ["a part that is no object", { capabilities: [] }, "capabilities"],
  ])(`with %s are refused, naming the field ${verifies("VCP-24")}`, ([, change, param]) => {
    const error = errorOf(() => readManifest(JSON.stringify({ ...least, ...change })));
    expect([error.code, error.details.param]).toEqual(["invalid_definition", param]);
    expect(error.message).toContain(`'${param}'`);
  });

  test("may begin with a byte order mark, and must be JSON in UTF-8", () => {
    expect(readManifest(Buffer.from(`\uFEFF${JSON.stringify(least)}`)).name).toBe("P");
    expect(errorOf(() => readManifest(Buffer.from([0x7b, 0xff]))).message).toContain("is not UTF-8");
    expect(errorOf(() => readManifest('{"name":')).message).toContain("is not valid JSON");
    expect(errorOf(() => readManifest(`"${"x".repeat(600_000)}"`)).message).toContain("has more than");
  });
});

function errorOf(work: () => unknown): GatewayError {
  try {
    work();
  } catch (error) {
    if (error instanceof GatewayError) return error;
  }
  throw new Error("nothing was refused");
}
