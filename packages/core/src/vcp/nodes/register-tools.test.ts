import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { nodeNameSchema, nodeToolsSchema } from "../../nodes/node.ts";
import { verifies } from "../../../../../test/support/verifies.ts";
import { readRegistration, toNodeName } from "./register-tools.ts";

const manifest = (name: string, change: object = {}) => ({
  name,
  pluginType: "synchronous",
  entryPoint: { command: "x" },
  ...change,
});
const read = (...tools: readonly object[]) => readRegistration({ serverName: "lab", tools: tools as never });

describe(`what a node registers ${verifies("VCP-15")}`, () => {
  test("is what its manifests say", () => {
    const tool = manifest("Paint", {
      displayName: "画画",
      description: "Paints.",
      communication: { timeout: "9000" },
      capabilities: {
        invocationCommands: [
          { commandIdentifier: "paint", description: "d", example: "e" },
          { description: "more" },
          7,
        ],
      },
    });
    expect(read(tool)?.tools).toEqual([
      {
        name: "Paint",
        description: "Paints.",
        parameters: { type: "object", properties: {}, additionalProperties: true },
        effect: "write",
        sensitive: false,
        timeout_ms: 9_000,
        concurrency: 16,
        vcp: {
          name: "Paint",
          display_name: "画画",
          commands: [{ command: "paint", description: "d", example: "e" }, { description: "more" }],
        },
      },
    ]);
  });

  test("is held for a person, and told to clients, where its manifest says so", () => {
    const webSocketPush = { enabled: true, messageType: "m", targetClientType: "" };
    const [held, quiet] =
      read(
        manifest("A", { sensitive: true, webSocketPush }),
        manifest("B", { sensitive: "yes", webSocketPush: { ...webSocketPush, enabled: false } }),
      )?.tools ?? [];
    const push = { usePluginResultAsMessage: false, messageType: "m", targetClientType: null };
    expect(held).toMatchObject({ sensitive: true, vcp: { push } });
    expect(quiet?.sensitive).toBe(false);
    expect(quiet?.vcp).not.toHaveProperty("push");
  });

  test.each([undefined, null, 3, [], {}, { serverName: "lab" }, { tools: [] }, { serverName: " ", tools: [] }])(
    "is nothing where the frame is none: %j",
    (data) => {
      expect(readRegistration(data as never)).toBeUndefined();
    },
  );

  test("leaves out what cannot be a tool, says why, and takes the rest", () => {
    const huge = manifest("Huge", { capabilities: { invocationCommands: [{ description: "x".repeat(60_000) }] } });
    const given = [manifest("A"), manifest("A"), manifest(""), huge, manifest("B", { entryPoint: null })];
    const { tools, left } = read(...given) ?? { tools: [], left: [] };
    expect(tools.map(({ name }) => name)).toEqual(["A"]);
    expect(left.map(({ name }) => name)).toEqual(["A", "", "Huge", "B"]);
    expect(read(manifest("x".repeat(1_000), { entryPoint: null }))?.left[0]?.name).toHaveLength(200);
    const many = Array.from({ length: 70 }, (_, at) => manifest(`T${at}`));
    expect(read(...many)?.tools).toHaveLength(63);
    const long = Array.from({ length: 9 }, (_, at) =>
      manifest(`L${at}`, { capabilities: { invocationCommands: [{ description: "y".repeat(20_000) }] } }),
    );
    const size = Buffer.byteLength(JSON.stringify(read(...long)?.tools));
    expect(size).toBeLessThan(120_000);
  });

  test("says of many that are left out what the first are, and how many there are more", () => {
    const { tools, left } = readRegistration({ serverName: "lab", tools: Array(200_000).fill(0) }) ?? {};
    expect(tools).toEqual([]);
    expect(left).toHaveLength(21);
    expect(left?.[0]).toEqual({ name: "", why: "it is no manifest" });
    expect(left?.[20]).toEqual({ name: "…", why: "and so are 199980 others" });
  });

  test("is looked at no further than a node can have meant it", () => {
    let looks = 0;
    const looked = manifest("A", {
      get description() {
        looks += 1;
        return "d";
      },
    });
    expect(read(...Array<object>(5_000).fill(looked))?.left.at(-1)).toEqual({
      name: "…",
      why: "and so are 4979 others",
    });
    expect(looks).toBeLessThan(1_000);
  });

  test("never lists what gives files", () => {
    expect(read(manifest("internal_request_file"), manifest("A"))?.tools.map(({ name }) => name)).toEqual(["A"]);
  });

  test("keeps names apart that are one for models", () => {
    const names = ["Wan2.1", "Wan2_1x", "天气", "新闻", "with blank"];
    const tools = read(...names.map((name) => manifest(name)))?.tools ?? [];
    expect(tools.map(({ vcp }) => vcp?.name)).toEqual(names);
    expect(new Set(tools.map(({ name }) => name)).size).toBe(names.length);
  });

  test("is always something that a node can offer", () => {
    fc.assert(
      fc.property(
        fc.string({ unit: "binary", minLength: 1 }),
        fc.array(
          fc.oneof(
            fc.jsonValue(),
            fc.string().map((name) => manifest(name)),
          ),
        ),
        (serverName, tools) => {
          const given = readRegistration({ serverName, tools: tools as never });
          if (given === undefined) return;
          expect(nodeToolsSchema().safeParse(given.tools).success).toBe(true);
          expect(nodeNameSchema.safeParse(given.node).success).toBe(true);
        },
      ),
    );
  });

  test("comes from a node that is called the same again", () => {
    expect(toNodeName("lab-pc")).toBe("lab-pc");
    expect(toNodeName("我的电脑")).toMatch(/^vcp-[0-9a-f]{8}$/);
    expect(toNodeName("我的电脑")).not.toBe(toNodeName("你的电脑"));
    expect(toNodeName("My PC")).toMatch(/^My-PC-[0-9a-f]{8}$/);
  });
});
