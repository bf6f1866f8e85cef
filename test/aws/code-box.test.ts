/**
 * The code box on Lambda: the plugin box's program as it is built, under the runtime client, told that it runs code. Its
 * network is the function's (test/infra); here it is seen that files come back, limits hold and nothing is left.
 */
import { join } from "node:path";
import { readBoxAnswer, toBoxRequest } from "@toolyard/core/boxes/box-protocol";
import type { PluginExit, PluginRun } from "@toolyard/core/ports/plugin-runner";
import { afterAll, describe, expect, inject, test } from "vitest";
import { verifies } from "../support/verifies.ts";
import { createLambdaFunction } from "./runtime-api.ts";
import { createSandboxes, sandboxMissing } from "./sandbox.ts";

const missing = [inject("runtimeClientMissing"), sandboxMissing() ?? ""].find((reason) => reason !== "");
if (missing !== undefined) console.log(`Skipped: the code box; ${missing}`);

describe.skipIf(missing !== undefined)(`the code box ${verifies("NATIVE-2")}`, () => {
  const sandboxes = createSandboxes();
  const boxOf = (env: Readonly<Record<string, string>>) =>
    createLambdaFunction({
      name: "code-box",
      taskRoot: join(import.meta.dirname, "../../functions/dist"),
      handler: "plugin-box.handler",
      timeoutMs: 60_000,
      memoryMb: 2_048,
      perTenant: true,
      env,
      launch: sandboxes.launcher({}),
    });
  const codeBox = boxOf({ TOOLYARD_BOX_RUNS: "code" });
  const pluginBox = boxOf({});
  afterAll(async () => {
    await Promise.all([codeBox.close(), pluginBox.close()]);
    sandboxes.close();
  });

  async function run(box: typeof codeBox, stdin: string, more: Partial<PluginRun> = {}): Promise<PluginExit> {
    const request = toBoxRequest({
      tenant: "ten_1",
      command: ["python3", "-u", "-"],
      environment: {},
      stdin,
      timeoutMs: 15_000,
      maxOutputBytes: 100_000,
      confined: {
        memoryBytes: 268_435_456,
        diskBytes: 67_108_864,
        maxProcesses: 32,
        maxFiles: 10,
        maxFileBytes: 1_048_576,
      },
      ...more,
    });
    const answer = await box.invoke(JSON.parse(request), { tenantId: "ten_1" });
    if (answer.kind !== "streamed") throw new Error(`not streamed: ${JSON.stringify(answer)}`);
    return readBoxAnswer(answer.body, {});
  }

  test("hands back what code has written, no links, and nothing of the run before", async () => {
    const files = [{ path: "in/a.txt", body: Buffer.from("a") }];
    const code = `import os
print(open("in/a.txt").read(), os.getcwd().endswith("/work"))
open("in/b.txt", "w").write("b"); os.symlink("/etc/passwd", "link")`;
    const first = await run(codeBox, code, { files });
    expect(first).toMatchObject({ stdout: "a True\n", exitCode: 0, ended: "exit" });
    expect(first.left?.files.map(({ path, body }) => [path, Buffer.from(body).toString()])).toEqual([
      ["in/b.txt", "b"],
    ]);
    expect(first.left?.passedOver).toEqual([{ path: "link", reason: "it is a link" }]);
    const second = await run(codeBox, 'import os\nprint(os.listdir("."), os.listdir("/tmp"))');
    expect(second.stdout).toMatch(/^\[\] \['toolyard-plugin-\w+'\]\n$/);
  });

  test("holds code to its memory and its processes", async () => {
    const memory = await run(codeBox, "a = []\nwhile True: a.append(bytearray(20 * 2**20))");
    expect(memory).toMatchObject({ exitCode: 1, stderr: expect.stringContaining("MemoryError") });
    const forks = await run(codeBox, "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass", {
      timeoutMs: 3_000,
    });
    expect(forks.ended).toBe("timeout");
    expect((await run(codeBox, "print(1)")).stdout).toBe("1\n");
  });

  test("runs no plugins, and the plugin box runs no code", async () => {
    await expect(run(pluginBox, "print(1)")).rejects.toMatchObject({
      code: "code_box_unavailable",
      message: expect.stringContaining("CODE_BOX_FUNCTION"),
    });
    const request = toBoxRequest({
      tenant: "ten_1",
      command: ["sh", "-c", "echo x"],
      environment: {},
      stdin: "",
      timeoutMs: 5_000,
      maxOutputBytes: 1_000,
    });
    const answer = await codeBox.invoke(JSON.parse(request), { tenantId: "ten_1" });
    if (answer.kind !== "streamed") throw new Error("not streamed");
    await expect(readBoxAnswer(answer.body, {})).rejects.toMatchObject({ code: "code_box_unavailable" });
  });
});
