/** The clients that docs/clients ships, run against a gateway (CHAT-17). */
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { complete, streamEvents, streamText, ToolyardError } from "../../docs/clients/toolyard.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { TestTenant } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { calls, chunk, startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { verifies } from "../support/verifies.ts";

const run = promisify(execFile);
const guides = new URL("../../docs/clients/", import.meta.url).pathname;
const python = await run("python3", ["-c", "import sys; assert sys.version_info >= (3, 9)"]).then(
  () => true,
  () => false,
);

let gateway: Gateway;
let llm: LlmStub;
let backEnd: HttpStub;
let tenant: TestTenant;

beforeAll(async () => {
  [gateway, llm, backEnd] = await Promise.all([
    startGateway(),
    startLlmStub(),
    startHttpStub(() => ({ body: '{"城市":"北京"}' })),
  ]);
  tenant = await gateway.newTenant();
  await tenant.addProvider(llm.url);
  await tenant.addPlugin({
    name: "look",
    execution: {
      method: "GET",
      base_url: `${backEnd.url}/x`,
      content_type: "application/json",
      param_placement: "query",
    },
  });
});

afterAll(async () => {
  await Promise.all([gateway.close(), llm.close(), backEnd.close()]);
});

beforeEach(() => llm.script(calls({ name: "look", arguments: {} }), text("你好 😀 done")));

const request = { messages: [{ role: "user", content: "look" }] };
const connection = () => ({ baseUrl: gateway.url, key: tenant.key });

describe(`the TypeScript client ${verifies("CHAT-17")}`, () => {
  test("reads typed events", async () => {
    const events = [];
    for await (const event of streamEvents(connection(), request)) events.push(event);
    expect(events.map(({ type }) => type).filter((type) => type !== "content")).toEqual([
      "tool_call",
      "tool_call",
      "tool_result",
      "done",
    ]);
    expect(events.map((event) => (event.type === "content" ? event.delta.content : "")).join("")).toBe("你好 😀 done");
    expect(events.find((event) => event.type === "tool_result")).toMatchObject({
      result: { success: true, content: '{"城市":"北京"}' },
    });
  });

  test("reads OpenAI's stream and whole answers", async () => {
    let said = "";
    for await (const piece of streamText(connection(), request)) said += piece;
    expect(said).toBe("你好 😀 done");
    llm.script(text("whole"));
    expect((await complete(connection(), request)).choices[0].message.content).toBe("whole");
  });

  test("throws the error with its code, before and within a stream", async () => {
    await expect(complete({ ...connection(), key: "ty_wrong" }, request)).rejects.toMatchObject({
      status: 401,
      code: "invalid_api_key",
    });
    llm.script({ writes: [chunk({ content: "half" })], cut: true });
    const reading = (async () => {
      for await (const _piece of streamText(connection(), request));
    })();
    await expect(reading).rejects.toBeInstanceOf(ToolyardError);
  });
});

describe.skipIf(!python)(
  `the Python client ${verifies("CHAT-17")}${python ? "" : " (skipped: no python3 of 3.9 or newer)"}`,
  () => {
    async function inPython(lines: readonly string[], key = tenant.key): Promise<unknown> {
      const program = [
        "import json, sys",
        `sys.path.insert(0, ${JSON.stringify(guides)})`,
        "from toolyard import Toolyard, ToolyardError",
        "toolyard = Toolyard(sys.argv[1], sys.argv[2])",
        `request = json.loads(${JSON.stringify(JSON.stringify(request))})`,
        ...lines,
      ].join("\n");
      const { stdout } = await run("python3", ["-c", program, gateway.url, key], {
        env: { ...process.env, PYTHONDONTWRITEBYTECODE: "1" },
      });
      return JSON.parse(stdout);
    }

    test("reads typed events", async () => {
      const events = (await inPython(["print(json.dumps(list(toolyard.events(request))))"])) as {
        type: string;
        delta?: { content: string };
      }[];
      expect(events.map(({ type }) => type).filter((type) => type !== "content")).toEqual([
        "tool_call",
        "tool_call",
        "tool_result",
        "done",
      ]);
      expect(events.map((event) => (event.type === "content" ? event.delta?.content : "")).join("")).toBe(
        "你好 😀 done",
      );
    });

    test("reads OpenAI's stream and whole answers", async () => {
      expect(await inPython(['print(json.dumps("".join(toolyard.text(request))))'])).toBe("你好 😀 done");
      llm.script(text("whole"));
      expect(
        await inPython(['print(json.dumps(toolyard.complete(request)["choices"][0]["message"]["content"]))']),
      ).toBe("whole");
    });

    test("raises the error with its code", async () => {
      const lines = [
        "try:",
        "    toolyard.complete(request)",
        "except ToolyardError as error:",
        "    print(json.dumps([error.status, error.code]))",
      ];
      expect(await inPython(lines, "ty_wrong")).toEqual([401, "invalid_api_key"]);
    });
  },
);
