import { describe, expect, it } from "vitest";
import { callContext } from "../../../../../test/support/call-context.ts";
import { createFakeCore } from "../../../../../test/support/fake-core.ts";
import { verifies } from "../../../../../test/support/verifies.ts";
import { compileArguments } from "../arguments.ts";
import { findTool } from "../catalog.ts";
import { nativePlugins, nativeTools } from "../native/index.ts";
import type { NativeTool } from "../native/native-tool.ts";
import { parseToolUri } from "../uri.ts";
import { createNativeAdapter } from "./native.ts";

const core = createFakeCore();
const adapter = createNativeAdapter(() => core);

describe(`native tools as the dispatcher sees them ${verifies("NATIVE-1", "NATIVE-2")}`, () => {
  it("say how one that is not enabled can be", () => {
    const context = callContext({ settings: { native_tools: [] } });
    const why = (name: string): string | undefined => adapter.whyMissing?.(parseToolUri(`native://${name}`), context);
    expect(why("knowledge_search")).toMatch(/'knowledge_search' to the setting 'native_tools'/);
    expect(why("no_such_tool")).toBeUndefined();
    const manager = callContext({ settings: { native_tools: [] }, caller: { scopes: ["manage"] } });
    expect(() => findTool({ native: adapter }, manager, "run_code")).toThrow(
      "Tool 'run_code' not found: it is not enabled for this tenant; add 'run_code' to the setting 'native_tools'",
    );
    expect(() => findTool({ native: adapter }, manager, "no_such_tool")).toThrow(/^Tool 'no_such_tool' not found$/);
    expect(() => findTool({ native: adapter }, context, "run_code")).toThrow(/^Tool 'run_code' not found$/);
  });

  it("are those that the tenant has enabled", () => {
    const context = callContext({ settings: { native_tools: ["fetch", "read_file", "no_such_tool", "constructor"] } });
    expect(adapter.list(context).map((tool) => tool.name)).toEqual(["fetch", "read_file"]);
    expect(adapter.resolve(parseToolUri("native://read_file"), context)?.uri).toBe("native://read_file");
    for (const name of ["write_file", "no_such_tool", "constructor", "__proto__"]) {
      expect(adapter.resolve(parseToolUri(`native://${name}`), context)).toBeUndefined();
    }
    expect(adapter.resolve(parseToolUri("plugin://read_file"), context)).toBeUndefined();
  });

  it("are those of the settings by default, which search no knowledge", () => {
    const names = adapter.list(callContext()).map((tool) => tool.name);
    expect(names.toSorted()).toEqual(callContext().config.settings.native_tools.toSorted());
    expect(names).not.toContain("knowledge_search");
  });

  it("say what they do: reads, writes, and what leaves the tenant", () => {
    const effects = Object.fromEntries(
      adapter.list(callContext()).map((tool) => [tool.name, [tool.effect, tool.outward, tool.outputTrust]]),
    );
    expect(effects).toEqual({
      delete_file: ["write", false, "own"],
      fetch: ["write", true, "outside"],
      list_files: ["read", false, "own"],
      read_file: ["read", false, "own"],
      read_result: ["read", false, "outside"],
      write_file: ["write", false, "own"],
    });
  });

  it("of one session's files form one line for writers", () => {
    const serviceIn = (name: string, sessionId: string): string | undefined => {
      const context = callContext({ sessionId });
      return adapter.resolve(parseToolUri(`native://${name}`), context)?.serviceOf?.(context);
    };
    expect(serviceIn("write_file", "s1")).toBe("workspace:s1");
    expect(serviceIn("delete_file", "s1")).toBe("workspace:s1");
    expect(serviceIn("write_file", "s2")).not.toBe(serviceIn("write_file", "s1"));
    expect(serviceIn("fetch", "s1")).toBeUndefined();
  });
});

describe(`the schema of a native tool ${verifies("NATIVE-1", "CHAT-9")}`, () => {
  it("gives read_file the specified parameters", () => {
    expect(nativeTools.read_file.parameters).toMatchObject({
      type: "object",
      properties: {
        path: { type: "string", description: expect.any(String) as string },
        encoding: {
          type: "string",
          enum: ["utf-8", "gbk", "ascii"],
          default: "utf-8",
          description: expect.any(String) as string,
        },
      },
      required: ["path"],
    });
  });

  it("takes the calls of the specification's examples", () => {
    const fits = (tool: NativeTool, args: Record<string, string>): boolean =>
      compileArguments(tool.parameters).validate(args).ok;
    expect(fits(nativeTools.read_file, { path: "/tmp/config.json" })).toBe(true);
    expect(fits(nativeTools.fetch, { url: "https://api.weather.com/v1/beijing" })).toBe(true);
    expect(fits(nativeTools.write_file, { path: "weather.txt", content: "北京天气：晴，温度25°C" })).toBe(true);
    expect(fits(nativeTools.read_file, { path: "x", encoding: "latin1" })).toBe(false);
    expect(fits(nativeTools.write_file, { path: "x" })).toBe(false);
    expect(fits(nativeTools.delete_file, { path: "x", recursive: "true" })).toBe(false);
  });

  it("is checked by zod, too, where JSON Schema could be gone round", async () => {
    const read = nativeTools.read_file.invoke({ path: 5 }, {} as never);
    await expect(read).rejects.toMatchObject({
      code: "invalid_arguments",
      details: { extra: { errors: [{ pointer: "/path" }] } },
    });
  });
});

describe(`the mirror in sys_ai_plugin ${verifies("NATIVE-1", "BLIND-4")}`, () => {
  it("has one row a tool, with its class and its schema", () => {
    const rows = nativePlugins();
    expect(rows.map((row) => row.name)).toEqual(Object.keys(nativeTools));
    for (const row of rows) {
      expect(row).toMatchObject({ type: "NATIVE", enabled: true, iconUrl: null, requiredCredentials: [] });
      expect(row.executionConfig).toEqual({ class_name: expect.stringMatching(/^[A-Z]\w+Tool$/) as string });
      expect(row.parameterSchema).toMatchObject({ type: "object", additionalProperties: false });
      expect(row.hash).toMatch(/^[0-9a-f]{64}$/);
    }
    expect(new Set(rows.map((row) => row.hash)).size).toBe(rows.length);
  });

  it("is equal each time, so that migrations change nothing by themselves", () => {
    expect(JSON.stringify(nativePlugins())).toBe(JSON.stringify(nativePlugins()));
  });
});
