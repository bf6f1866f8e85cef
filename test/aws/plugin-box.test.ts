/**
 * The plugin box as it is built, under the runtime client, in environments like Lambda's: what it claims in
 * docs/plugin-box.md. Plugins here do what they like; the table of processes and the files are compared.
 */
import { join } from "node:path";
import { readBoxAnswer, toBoxRequest } from "@toolyard/core/boxes/box-protocol";
import type { PluginExit, PluginRun, PluginRunner } from "@toolyard/core/ports/plugin-runner";
import { createLambdaPluginRunner } from "@toolyard/platform/aws/lambda-plugin-runner";
import { afterAll, afterEach, beforeAll, describe, expect, inject, test } from "vitest";
import { commandLines, describePluginRunner, expectNoneRuns, uniqueSeconds } from "../contract/plugin-runner.ts";
import type { AwsServer } from "../support/aws/aws-server.ts";
import { startLambdaServer } from "../support/aws/lambda-server.ts";
import {
  createLambdaFunction,
  passOn,
  type Environment,
  type FunctionOptions,
  type LambdaFunction,
} from "./runtime-api.ts";
import { createSandboxes, sandboxMissing, type Sandbox, type SandboxOptions, type Sandboxes } from "./sandbox.ts";

/** As the service puts them into the environment of every function. */
const credentials = {
  AWS_ACCESS_KEY_ID: "AKIA-of-the-role",
  AWS_SECRET_ACCESS_KEY: "secret-of-the-role",
  AWS_SESSION_TOKEN: "session-of-the-role",
};

const missing = [inject("runtimeClientMissing"), sandboxMissing() ?? ""].find((reason) => reason !== "");
if (missing !== undefined) console.log(`Skipped: the plugin box; ${missing}`);

function start(
  sandboxes: Sandboxes,
  sandbox: SandboxOptions = {},
  options: Partial<FunctionOptions> = {},
): LambdaFunction {
  return createLambdaFunction({
    name: "plugin-box",
    taskRoot: join(import.meta.dirname, "../../functions/dist"),
    handler: "plugin-box.handler",
    timeoutMs: 60_000,
    memoryMb: 2_048,
    perTenant: true,
    env: credentials,
    launch: sandboxes.launcher(sandbox),
    ...options,
  });
}

function runnerOf(box: LambdaFunction, invokeOptions?: { readonly tenantId?: string }): PluginRunner {
  return {
    async run(run) {
      const answer = await box.invoke(JSON.parse(toBoxRequest(run)), invokeOptions ?? { tenantId: run.tenant });
      if (answer.kind !== "streamed") throw new Error(`not streamed: ${JSON.stringify(answer)}`);
      return readBoxAnswer(answer.body, run);
    },
  };
}

function runOf(command: PluginRun["command"], more: Partial<PluginRun> = {}): PluginRun {
  return {
    tenant: "ten_1",
    command,
    environment: {},
    stdin: "",
    timeoutMs: 20_000,
    maxOutputBytes: 100_000,
    ...more,
  };
}

/** Leaves the group, the session and its parents behind, with an environment that names nothing. */
const escapes = {
  sh: (nap: string) => ["sh", "-c", `setsid sh -c 'setsid env -i ${nap} </dev/null >/dev/null 2>&1 &' &`],
  python3: (nap: string) => [
    "python3",
    "-c",
    `import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        for fd in range(3): os.close(fd)
        os.execve("/bin/sh", ["sh", "-c", "exec ${nap}"], {})
    os._exit(0)
os.wait()`,
  ],
  node: (nap: string) => [
    "node",
    "-e",
    `const { spawn } = require("node:child_process");
     const again = 'require("node:child_process").spawn("sh", ["-c", "exec ${nap}"], { detached: true, stdio: "ignore", env: {} }).unref()';
     spawn(process.execPath, ["-e", again], { detached: true, stdio: "ignore" }).unref();`,
  ],
} as const;

/** Everything at once: what it can write, it writes; what it is told by signals, it ignores. */
const vandal = (escape: readonly string[]): string => `
  trap "" TERM HUP INT QUIT
  ${escape.map(quoted).join(" ")}
  for place in /tmp /var/tmp /dev/shm /run/lock; do
    mkdir -p $place/planted/shut/deep; echo x > $place/planted/shut/deep/file; echo x > $place/.hidden
    ln -s /etc $place/link; mkfifo $place/fifo; chmod 000 $place/planted/shut/deep $place/planted/shut
  done
  ipcmk -M 4096 >/dev/null; ipcmk -S 1 >/dev/null; ipcmk -Q >/dev/null
  echo x > /etc/planted; echo x > /usr/planted; echo x > /var/task/plugin-box.mjs; echo x > /planted
  env; cat /proc/*/environ; cat /proc/*/cmdline
  echo ready
`;

function quoted(word: string): string {
  return `'${word.replaceAll("'", `'\\''`)}'`;
}

describe.skipIf(missing !== undefined)("the plugin box", () => {
  const sandboxes = createSandboxes();
  const shared = start(sandboxes);
  let lambda: AwsServer;
  beforeAll(async () => {
    lambda = await startLambdaServer("plugin-box", (invocation) => passOn(shared, invocation));
  });
  const started: LambdaFunction[] = [];
  afterEach(async () => void (await Promise.all(started.splice(0).map((box) => box.close()))));
  afterAll(async () => {
    await lambda.close();
    await shared.close();
    sandboxes.close();
  });

  function startOwn(sandbox: SandboxOptions, options: Partial<FunctionOptions> = {}): LambdaFunction {
    const box = start(sandboxes, sandbox, options);
    started.push(box);
    return box;
  }

  /** A box of its own, with its first environment. */
  async function own(
    options: Partial<FunctionOptions> = {},
    sandbox: SandboxOptions = {},
  ): Promise<{
    readonly box: LambdaFunction;
    readonly runner: PluginRunner;
    readonly environment: Environment;
    readonly sandbox: Sandbox;
  }> {
    const box = startOwn(sandbox, options);
    const runner = runnerOf(box);
    await runner.run(runOf(["true"]));
    const [environment] = box.environments;
    if (environment === undefined) throw new Error(`no environment is left: ${box.output()}`);
    return { box, runner, environment, sandbox: sandboxes.of(environment) };
  }

  /** As the gateway reaches it: by the client of Lambda. */
  const client = (): PluginRunner => createLambdaPluginRunner({ functionName: "plugin-box", client: lambda.client });

  describePluginRunner("the plugin box, by the client of Lambda", async () => client(), { endsAbandoned: false });

  test("is lost to the client with a plugin that kills the runtime, and there again for the next", async () => {
    for (const before of ["echo half; ", "", "sleep 0.2; "]) {
      const lost = client().run(runOf(["sh", "-c", `${before}kill -KILL $PPID; sleep 1000`]));
      await expect(lost).rejects.toMatchObject({ code: "outcome_unknown" });
      expect(await client().run(runOf(["echo", "next"]))).toMatchObject({ stdout: "next\n" });
    }
  });

  describe.for(["sh", "python3", "node"] as const)("with a plugin that escapes by %s", (language) => {
    test.for(["exit", "output", "timeout"] as const)(
      "leaves no process and no file behind, whichever way it ends: %s",
      async (end) => {
        const { runner, environment, sandbox } = await own();
        const processes = sandbox.processes();
        expect(processes).toHaveLength(1);
        expect(sandbox.files()).toEqual([]);
        const nap = `sleep ${uniqueSeconds()}`;
        const ends = {
          exit: "sleep 0.3",
          output: "yes flood >&2 & yes flood",
          timeout: "while :; do sleep 1000; done",
        };
        const exit = await runner.run(
          runOf(["sh", "-c", vandal(escapes[language](nap)) + ends[end]], {
            timeoutMs: end === "timeout" ? 2_500 : 20_000,
          }),
        );
        expect(exit.ended).toBe(end);
        expect(exit.stdout).toContain("ready");
        expect(sandbox.processes()).toEqual(processes);
        expect(sandbox.files()).toEqual([]);
        await expectNoneRuns(nap);
        const ipc = await runner.run(runOf(["sh", "-c", "cat /proc/sysvipc/*"]));
        expect(ipc.stdout.trimEnd().split("\n")).toHaveLength(3);
        expect(sandbox.pid).toBe(environment.pid);
      },
    );

    test("had it running at all", async () => {
      const nap = `sleep ${uniqueSeconds()}`;
      const { runner } = await own();
      const running = runner.run(
        runOf(["sh", "-c", `${escapes[language](nap).map(quoted).join(" ")}; sleep 1000`], { timeoutMs: 1_500 }),
      );
      await expect.poll(commandLines).toMatch(new RegExp(`^(/.*/)?${nap}`, "m"));
      await running;
      await expectNoneRuns(nap);
    });
  });

  test("shows a plugin neither the credentials of the role nor anything else of the runtime", async () => {
    const { runner, sandbox } = await own();
    const look = `import os, sys
runtime = str(os.getppid())
for name in ["environ", "mem", "maps", "fd", "cwd", "auxv", "stack"]:
    path = "/proc/" + runtime + "/" + name
    try:
        print(name, os.listdir(path) if name == "fd" else os.readlink(path) if name == "cwd" else open(path, "rb").read(1))
    except OSError as error:
        print(name, error.strerror)
print(open("/proc/" + runtime + "/cmdline").read().split(chr(0))[0])
for pid in os.listdir("/proc"):
    try: print(open("/proc/" + pid + "/environ").read())
    except (OSError, ValueError): pass
print(dict(os.environ))`;
    const { stdout, stderr } = await runner.run(runOf(["python3", "-c", look], { environment: { OWN: "its own" } }));
    expect(stderr).toBe("");
    const refused = stdout.split("\n").slice(0, 7);
    expect(refused.filter((line) => /denied|not permitted/.test(line))).toHaveLength(7);
    // It was the runtime that it looked at.
    expect(stdout.split("\n")[7]).toBe("/var/lang/bin/node");
    expect(stdout).toContain("its own");
    for (const ours of ["of-the-role", "AWS_", "_HANDLER", "LAMBDA", "TOOLYARD", "127.0.0.1"]) {
      expect(stdout).not.toContain(ours);
    }
    // Nor could anyone else find them there, the system's root included.
    expect(sandbox.environment()).not.toContain("of-the-role");
    expect(sandbox.environment()).toContain("AWS_LAMBDA_RUNTIME_API");
  });

  test("gives a plugin limits and no rights", async () => {
    const { runner } = await own();
    const script =
      "for l in c u f d; do ulimit -$l 2>/dev/null || ulimit -p; done; grep -E 'NoNewPrivs|CapBnd|CapEff' /proc/self/status; cat /proc/self/oom_score_adj";
    const { stdout } = await runner.run(runOf(["sh", "-c", script]));
    expect(stdout.split("\n").slice(0, 4)).toEqual(["0", "512", "2097152", String((2_048 - 256) * 1_024)]);
    expect(stdout).toMatch(/CapEff:\s+0+\n/);
    expect(stdout).toMatch(/NoNewPrivs:\s+1\n/);
    expect(stdout).toMatch(/\n1000\n$/);
  });

  describe.for([
    ["alone", false],
    ["with a parent of its own user", true],
  ] as const)("whose runtime is %s", ([, hasParent]) => {
    test("outlives a plugin that starts processes without end", async () => {
      const { runner, environment, sandbox } = await own({}, { hasParent });
      const processes = sandbox.processes();
      const bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass";
      const exit = await runner.run(runOf(["python3", "-c", bomb], { timeoutMs: 1_500 }));
      expect(exit).toMatchObject({ ended: "timeout" });
      expect(sandbox.processes()).toEqual(processes);
      expect(await runner.run(runOf(["echo", "well"]))).toMatchObject({ stdout: "well\n" });
      expect(sandbox.pid).toBe(environment.pid);
    });

    test("outlives a plugin whose processes end as soon as they have started the next", async () => {
      const { runner, sandbox } = await own({}, { hasParent });
      const processes = sandbox.processes();
      const comet = "import os\nos.setsid()\nwhile True:\n    if os.fork(): os._exit(0)";
      expect((await runner.run(runOf(["python3", "-c", comet]))).ended).toBe("exit");
      expect(sandbox.processes()).toEqual(processes);
    });
  });

  test("starts clean although an earlier runtime ended in the middle of a call", async () => {
    const nap = `sleep ${uniqueSeconds()}`;
    const box = startOwn({
      before: `mkdir -p /tmp/left/shut; chmod 0 /tmp/left/shut; setsid ${nap} >/dev/null 2>&1 & sleep 0.2`,
    });
    const { stdout } = await runnerOf(box).run(runOf(["sh", "-c", "ls -A /tmp; cat /proc/*/cmdline | tr '\\0' ' '"]));
    expect(stdout).toMatch(/^toolyard-plugin-\w+\n/);
    expect(stdout.split("\n")[1]).not.toContain(nap);
    await expectNoneRuns(nap);
  });

  test("serves each tenant in an environment of its own, where nothing of another one can be seen", async () => {
    const { box } = await own();
    const runner = runnerOf(box);
    const nap = `sleep ${uniqueSeconds()}`;
    const first = Promise.withResolvers<string>();
    const secret = runner.run(
      runOf(["sh", "-c", `echo secret > /tmp/of-ten-1; pwd; exec ${nap}`], {
        timeoutMs: 4_000,
        onStdout: first.resolve,
      }),
    );
    const directory = (await first.promise).trim();
    const look = `ls -A /tmp /var/tmp /dev/shm; cat ${directory}/* /tmp/of-ten-1; cat /proc/*/cmdline | tr '\\0' ' '; id -u`;
    const other = await runner.run(runOf(["sh", "-c", look], { tenant: "ten_2" }));
    expect(other.stdout).not.toContain("of-ten-1\n");
    expect(other.stdout).not.toContain("secret");
    expect(other.stdout).not.toContain(`${nap} `);
    expect(await commandLines()).toContain(nap);
    expect(box.environments.map(({ tenantId }) => tenantId)).toEqual(["ten_1", "ten_2"]);
    expect((await secret).ended).toBe("timeout");
  });

  test("runs nothing for another tenant than the one it was invoked for", async () => {
    const { box, sandbox } = await own();
    const run = runOf(["sh", "-c", "echo ran > /tmp/ran; sleep 1000"], { tenant: "ten_2" });
    await expect(runnerOf(box, { tenantId: "ten_1" }).run(run)).rejects.toMatchObject({ code: "permission_denied" });
    expect(sandbox.files()).toEqual([]);
  });

  test("runs nothing in a function without tenant isolation", async () => {
    const box = startOwn({}, { perTenant: false });
    await expect(runnerOf(box, {}).run(runOf(["echo", "ran"]))).rejects.toMatchObject({
      code: "permission_denied",
      message: expect.stringContaining("TenantId"),
    });
  });

  test("refuses what is no run", async () => {
    const { box } = await own();
    const answer = await box.invoke({ tenant: "ten_1" }, { tenantId: "ten_1" });
    if (answer.kind !== "streamed") throw new Error("not streamed");
    await expect(readBoxAnswer(answer.body)).rejects.toMatchObject({ code: "invalid_request" });
  });

  test("does not start where it is not said to be alone", async () => {
    const box = startOwn({ isBare: true });
    expect(await box.invoke(JSON.parse(toBoxRequest(runOf(["true"]))), { tenantId: "ten_1" })).toMatchObject({
      kind: "failed",
      error: { errorMessage: expect.stringMatching(/TOOLYARD_BOX_IS_ALONE[^]*AWS_SECRET_ACCESS_KEY/) },
    });
    expect(box.output()).not.toContain("of-the-role");
  });

  test.for([
    [
      "python3",
      `import sys, time, json; print(json.dumps({"status": "success", "result": {"requestId": "r1"}})); sys.stdout.flush(); time.sleep(1); print("worked on")`,
    ],
    [
      "node",
      `console.log(JSON.stringify({ status: "success", result: { requestId: "r1" } })); setTimeout(() => console.log("worked on"), 1000)`,
    ],
    ["sh", `echo '{"status": "success", "result": {"requestId": "r1"}}'; sleep 1; echo worked on`],
  ] as const)(
    "hands on what an asynchronous plugin answers first, and lets it work on: %s",
    async ([language, program]) => {
      const { runner } = await own();
      const first = Promise.withResolvers<string>();
      let end: PluginExit | undefined;
      const running = runner
        .run(runOf([language, language === "node" ? "-e" : "-c", program], { onStdout: first.resolve }))
        .then((exit) => (end = exit));
      expect(JSON.parse(await first.promise)).toMatchObject({ status: "success", result: { requestId: "r1" } });
      expect(end).toBeUndefined();
      expect(await running).toMatchObject({
        ended: "exit",
        exitCode: 0,
        stdout: expect.stringMatching(/^\{.*\}\nworked on\n$/),
      });
    },
  );

  test("ends a plugin before the function's own time limit, and goes on", async () => {
    const { runner, environment, sandbox } = await own({ timeoutMs: 7_000 });
    const exit = await runner.run(runOf(["sh", "-c", "echo so far; sleep 1000"], { timeoutMs: 600_000 }));
    expect(exit).toMatchObject({ ended: "timeout", stdout: "so far\n" });
    expect(await runner.run(runOf(["echo", "next"]))).toMatchObject({ stdout: "next\n" });
    expect(sandbox.pid).toBe(environment.pid);
  });

  test("has no time for a plugin where its own is nearly over", async () => {
    const box = startOwn({}, { timeoutMs: 3_000 });
    await expect(runnerOf(box).run(runOf(["true"]))).rejects.toMatchObject({ code: "tool_timeout" });
  });

  test.for([
    ["kills", "KILL"],
    ["stops", "STOP"],
  ] as const)("loses one call to a plugin that %s the runtime, and serves the next", async ([, name]) => {
    const { box, runner, environment } = await own({ timeoutMs: 8_000 });
    const nap = `sleep ${uniqueSeconds()}`;
    const lost = runner.run(runOf(["sh", "-c", `kill -${name} $PPID; exec ${nap}`]));
    await expect(lost).rejects.toMatchObject({ code: "outcome_unknown" });
    await environment.ended;
    expect(await runner.run(runOf(["echo", "next"]))).toMatchObject({ stdout: "next\n" });
    expect(box.started).toBe(2);
    await expectNoneRuns(nap);
  });

  test("stands still between calls with nothing in it, and is not surprised by the time that has passed", async () => {
    const { runner, environment, sandbox } = await own();
    await runner.run(runOf(["sh", "-c", "sleep 1000 & echo x > /tmp/x"], { timeoutMs: 1_000 }));
    await expect.poll(() => environment.isFrozen()).toBe(true);
    expect(sandbox.processes()).toHaveLength(1);
    await new Promise((done) => setTimeout(done, 2_500));
    expect(sandbox.files()).toEqual([]);
    expect(await runner.run(runOf(["sh", "-c", "sleep 0.5; echo next"], { timeoutMs: 2_000 }))).toMatchObject({
      stdout: "next\n",
      ended: "exit",
    });
  });

  test("frozen in the middle of a call goes on where it was", async () => {
    const { runner, environment } = await own();
    const first = Promise.withResolvers<string>();
    const running = runner.run(runOf(["sh", "-c", "echo one; sleep 0.5; echo two"], { onStdout: first.resolve }));
    await first.promise;
    environment.freeze();
    await new Promise((done) => setTimeout(done, 1_000));
    environment.thaw();
    expect(await running).toMatchObject({ stdout: "one\ntwo\n", ended: "exit" });
  });
});
