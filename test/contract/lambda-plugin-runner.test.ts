/** Plugins in the plugin box, by the real client of Lambda, against a server that invokes as Lambda does. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { PassThrough } from "node:stream";
import { setTimeout as pause } from "node:timers/promises";
import { toGatewayError } from "@toolyard/core/errors/gateway-error";
import { encodeBoxFrame, readBoxRequest, type BoxFrame } from "@toolyard/core/boxes/box-protocol";
import type { PluginRun, PluginRunner } from "@toolyard/core/ports/plugin-runner";
import { createLambdaPluginRunner } from "@toolyard/platform/aws/lambda-plugin-runner";
import { createProcessPluginRunner } from "@toolyard/platform/local/process-plugin-runner";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { AwsFault, AwsServer } from "../support/aws/aws-server.ts";
import { startLambdaServer, type Invocation } from "../support/aws/lambda-server.ts";
import { startTcpProxy } from "../support/tcp-proxy.ts";
import { describePluginRunner } from "./plugin-runner.ts";

const functionName = "toolyard-test-plugin-box";
const path = `${dirname(process.execPath)}:${process.env["PATH"] ?? ""}`;

let temporaryDirectory: string;
let lambda: AwsServer;
/** What the function does instead of running plugins. */
let instead: ((invocation: Invocation) => AsyncIterable<string>) | undefined;
const invocations: Invocation[] = [];

beforeAll(async () => {
  temporaryDirectory = await mkdtemp(join(tmpdir(), "toolyard-box-"));
  lambda = await startLambdaServer(functionName, (invocation) => {
    invocations.push(invocation);
    return (instead ?? serve)(invocation);
  });
});
afterAll(async () => {
  await lambda.close();
  await rm(temporaryDirectory, { recursive: true, force: true });
});

/** As the box does, without being alone on its machine. */
async function* serve({ tenantId, payload }: Invocation): AsyncGenerator<string> {
  const frames = new PassThrough({ encoding: "utf8" });
  const send = (frame: BoxFrame): void => void frames.write(encodeBoxFrame(frame));
  const running = (async () => {
    try {
      const run = readBoxRequest(payload);
      if (run.tenant !== tenantId) throw new Error("the tenants differ");
      send({ type: "started" });
      const runner = createProcessPluginRunner({ path, temporaryDirectory });
      const exit = await runner.run({ ...run, onStdout: (data) => send({ type: "stdout", data }) });
      send({ type: "stderr", data: exit.stderr });
      send({ type: "exit", exitCode: exit.exitCode, ended: exit.ended, durationMs: exit.durationMs });
    } catch (thrown) {
      const { code, message, details } = toGatewayError(thrown);
      send({ type: "refused", code, message, ...(details.param === undefined ? {} : { param: details.param }) });
    }
    frames.end();
  })();
  for await (const part of frames) yield part as string;
  await running;
}

const runner = (name = functionName): PluginRunner =>
  createLambdaPluginRunner({ functionName: name, client: lambda.client });

const echo: PluginRun = {
  tenant: "ten_1",
  command: ["sh", "-c", "echo done"],
  environment: {},
  stdin: "",
  timeoutMs: 15_000,
  maxOutputBytes: 100_000,
};

const frames = (...all: readonly BoxFrame[]): (() => AsyncIterable<string>) =>
  async function* () {
    yield all.map(encodeBoxFrame).join("");
  };

describePluginRunner("the plugin box", async () => runner(), { endsAbandoned: false });

describe("the plugin box", () => {
  test("is invoked for the tenant whose plugin it is, and named where it is not there", async () => {
    await runner().run({ ...echo, tenant: "ten_42" });
    expect(invocations.at(-1)).toMatchObject({ tenantId: "ten_42", payload: { tenant: "ten_42" } });
    const gone = runner("another-function").run(echo);
    await expect(gone).rejects.toMatchObject({
      code: "tool_unreachable",
      message: expect.stringMatching(/ResourceNotFoundException.*PLUGIN_BOX_FUNCTION/),
    });
  });

  test("is asked again where Lambda has no environment free, and not for ever", async () => {
    const busy: AwsFault = {
      kind: "reply",
      reply: { status: 429, headers: { "x-amzn-errortype": "TooManyRequestsException" } },
    };
    lambda.faults.push(busy, busy);
    expect(await runner().run(echo)).toMatchObject({ stdout: "done\n", exitCode: 0 });
    for (let times = 0; times < 5; times += 1) lambda.faults.push(busy);
    const before = invocations.length;
    await expect(runner().run(echo)).rejects.toMatchObject({ code: "tool_unreachable" });
    expect(lambda.faults).toEqual([]);
    expect(invocations.length).toBe(before);
  });

  test.for([
    ["refuses", { kind: "reply", reply: { status: 403, headers: { "x-amzn-errortype": "AccessDeniedException" } } }],
    ["fails inside", { kind: "reply", reply: { status: 500, headers: { "x-amzn-errortype": "ServiceException" } } }],
  ] as const)("was not reached where Lambda %s", async ([, fault]) => {
    lambda.faults.push(fault);
    await expect(runner().run(echo)).rejects.toMatchObject({ code: "tool_unreachable" });
  });

  test("may have run the plugin where the connection broke, and is not asked again", async () => {
    const before = invocations.length;
    lambda.faults.push({ kind: "lost" });
    await expect(runner().run(echo)).rejects.toMatchObject({ code: "outcome_unknown" });
    expect(invocations.length).toBe(before + 1);
  });

  test("is asked over a connection of its own: one that rested may be gone, and nobody would know what was run", async () => {
    const proxy = await startTcpProxy(lambda.url);
    const behind = createLambdaPluginRunner({ functionName, client: { ...lambda.client, endpoint: proxy.url } });
    for (let times = 0; times < 2; times += 1) {
      expect(await behind.run(echo)).toMatchObject({ stdout: "done\n" });
      // By then a connection that is kept would be free again.
      await pause(300);
    }
    expect(proxy.connections()).toBe(2);
    await proxy.close();
  });

  test("cannot be reached where nobody listens", async () => {
    const client = { ...lambda.client, endpoint: "http://127.0.0.1:9" };
    const nowhere = createLambdaPluginRunner({ functionName, client });
    await expect(nowhere.run(echo)).rejects.toMatchObject({ code: "tool_unreachable" });
  });

  test("that crashes has an unknown outcome once the plugin was started, and none before", async () => {
    instead = frames({ type: "started" }, { type: "stdout", data: "half" });
    await expect(runner().run(echo)).rejects.toMatchObject({ code: "outcome_unknown" });
    instead = async function* () {
      yield* [];
      throw new Error("out of memory");
    };
    await expect(runner().run(echo)).rejects.toMatchObject({ code: "tool_unreachable" });
    instead = undefined;
  });

  test("is not sent what does not fit into an invocation", async () => {
    const files = [{ path: "model.bin", body: Buffer.alloc(5 * 1024 ** 2) }];
    const before = invocations.length;
    await expect(runner().run({ ...echo, files })).rejects.toMatchObject({ code: "payload_too_large" });
    expect(invocations.length).toBe(before);
    const fits = [{ path: "model.bin", body: Buffer.alloc(4 * 1024 ** 2) }];
    expect(await runner().run({ ...echo, command: ["wc", "-c", "model.bin"], files: fits })).toMatchObject({
      stdout: "4194304 model.bin\n",
    });
  });
});
