import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type { PluginRun } from "@toolyard/core/ports/plugin-runner";
import { createLocalPlugins } from "@toolyard/platform/local/local-plugins";
import { findBubblewrap, findProgram } from "@toolyard/platform/local/plugin-wall";
import { createProcessPluginRunner } from "@toolyard/platform/local/process-plugin-runner";
import { afterAll, describe, expect, test } from "vitest";
import { startHttpStub } from "../support/http-stub.ts";
import { commandLines, describePluginRunner, expectNoneRuns, uniqueSeconds } from "./plugin-runner.ts";

// The `node` of plugins is the one that runs this suite.
const path = `${dirname(process.execPath)}:${process.env["PATH"] ?? ""}`;
const { program: bubblewrap, missing } = await findBubblewrap(path);
const setpriv = findProgram("setpriv", path, "/");
const temporaryDirectory = await mkdtemp(join(tmpdir(), "toolyard-runner-"));
afterAll(() => rm(temporaryDirectory, { recursive: true, force: true }));

const runOf = (command: PluginRun["command"], environment: Readonly<Record<string, string>> = {}): PluginRun => ({
  tenant: "ten_1",
  command,
  environment,
  stdin: "",
  timeoutMs: 15_000,
  maxOutputBytes: 100_000,
});

if (missing !== undefined) console.log(`Skipped: the wall around plugins; ${missing}.`);

const openHelper = createLocalPlugins({ path, temporaryDirectory, wall: "never" });
const walledHelper = createLocalPlugins({ path, temporaryDirectory });

describePluginRunner("processes that a helper starts", async () => openHelper);
if (bubblewrap !== undefined) describePluginRunner("walled processes that a helper starts", async () => walledHelper);

describePluginRunner("processes", async () => createProcessPluginRunner({ path, temporaryDirectory }));

describe("plugin processes", () => {
  /** Another process like ours runs a plugin, and ends in one way or the other while that runs. */
  async function endWhilePluginRuns(command: readonly string[], mark: string, end: "exit" | "kill"): Promise<void> {
    const options = JSON.stringify({ path, temporaryDirectory });
    const source = `
      import { createProcessPluginRunner } from "@toolyard/platform/local/process-plugin-runner";
      const run = { tenant: "t", environment: {}, stdin: "", timeoutMs: 60000, maxOutputBytes: 1000 };
      void createProcessPluginRunner(${options}).run({ ...run, command: ${JSON.stringify(command)} });
      process.stdin.on("data", () => process.exit(0));`;
    const other = spawn(process.execPath, ["--input-type=module", "--eval", source], {
      stdio: ["pipe", "inherit", "inherit"],
    });
    // The last process of the plugin, not one whose command line only speaks of it.
    await expect.poll(commandLines, { timeout: 10_000 }).toMatch(new RegExp(`^(/.*/)?${mark}`, "m"));
    if (end === "kill") other.kill("SIGKILL");
    else other.stdin.write("exit\n");
    await once(other, "exit");
  }

  test("end with us when we exit, and so do their children", async () => {
    const nap = `sleep ${uniqueSeconds()}`;
    await endWhilePluginRuns(["sh", "-c", `${nap} & wait`], nap, "exit");
    await expectNoneRuns(nap);
  });

  test.runIf(setpriv !== undefined)("end with us when we are killed", async () => {
    const nap = `sleep ${uniqueSeconds()}`;
    await endWhilePluginRuns(nap.split(" "), nap, "kill");
    await expectNoneRuns(nap);
  });

  test("leave no directory behind", async () => {
    const own = await mkdtemp(join(temporaryDirectory, "own-"));
    const runner = createProcessPluginRunner({ path, temporaryDirectory: own });
    await runner.run(runOf(["sh", "-c", "touch file; exit 1"]));
    await runner.run(runOf(["no-such-program"]));
    await runner.run({ ...runOf(["sleep", "600"]), timeoutMs: 100 });
    await runner.run({ ...runOf(["true"]), files: [{ path: "../x", body: Buffer.from("x") }] }).catch(() => undefined);
    expect(await readdir(own)).toEqual([]);
  });

  test("are not started where no directory can be made for them, and it is said why", async () => {
    const runner = createProcessPluginRunner({ path, temporaryDirectory: join(temporaryDirectory, "nowhere") });
    expect(await runner.run(runOf(["true"]))).toMatchObject({
      ended: "spawn",
      stderr: expect.stringMatching(/TMPDIR.*ENOENT/),
    });
  });

  test("have no wall where bubblewrap is not installed or does not work", async () => {
    const folder = await mkdtemp(join(temporaryDirectory, "bin-"));
    expect(await findBubblewrap(folder)).toEqual({ missing: expect.stringContaining("Install the package") });
    const complaints = [
      ["bwrap: No permissions to create new namespace", "containers/seccomp.json"],
      ["bwrap: Can't mount proc on /newroot/proc: Operation not permitted", "systempaths=unconfined"],
      ["bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", "apparmor_restrict_unprivileged_userns"],
      ["bwrap: setting up uid map: Permission denied", "apparmor=unconfined"],
      ["", "user.max_user_namespaces"],
    ];
    for (const [complaint, advice] of complaints) {
      await writeFile(join(folder, "bwrap"), `#!/bin/sh\necho "${complaint}" >&2; exit 1\n`, { mode: 0o755 });
      expect(await findBubblewrap(folder)).toEqual({ missing: expect.stringContaining(advice ?? "") });
    }
  });
});

describe.runIf(bubblewrap !== undefined)("the wall around plugin processes", () => {
  const program = bubblewrap ?? "";
  const wall = { program, network: false };
  const walled = createProcessPluginRunner({ path, temporaryDirectory, wall });

  describePluginRunner("processes behind a wall", async () => walled);

  test("hides the rest of the disk and lets nothing be written to it", async () => {
    const secret = join(temporaryDirectory, "master.key");
    await writeFile(secret, "ours alone");
    const script = `cat ${secret} /etc/shadow; ls -A /root /home /work; echo x > /usr/planted; echo x > ${secret}; echo x > in-home && cat in-home`;
    const exit = await walled.run(runOf(["sh", "-c", script]));
    expect(exit.stdout).toBe("x\n");
    expect(await readFile(secret, "utf8")).toBe("ours alone");
  });

  test("lets a plugin read what it is told it may", async () => {
    const library = await mkdtemp(join(temporaryDirectory, "library-"));
    await writeFile(join(library, "module"), "shared");
    const runner = createProcessPluginRunner({ path, temporaryDirectory, wall: { ...wall, readOnly: [library] } });
    const exit = await runner.run(runOf(["sh", "-c", `cat ${library}/module; echo x > ${library}/module`]));
    expect(exit.stdout).toBe("shared");
    expect(await readFile(join(library, "module"), "utf8")).toBe("shared");
  });

  test("closes the network, or leaves it open where plugins may use it", async () => {
    const stub = await startHttpStub();
    const call = `fetch("${stub.url}").then((answer) => console.log(answer.status), () => console.log("no way out"))`;
    const open = createProcessPluginRunner({ path, temporaryDirectory, wall: { program, network: true } });
    expect((await walled.run(runOf(["node", "-e", call]))).stdout).toBe("no way out\n");
    expect((await open.run(runOf(["node", "-e", call]))).stdout).toBe("200\n");
    await stub.close();
  });

  test("shows a plugin's configuration neither on a command line nor in the environment of the wall itself", async () => {
    const command = ["sh", "-c", 'sleep 1; echo "$PLUGIN_KEY"'] as const;
    const running = walled.run(runOf(command, { PLUGIN_KEY: "configured-881003" }));
    let lines = "";
    let environments = "";
    for (let turn = 0; turn < 10; turn += 1) {
      for (const pid of await readdir("/proc")) {
        const line = await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "");
        lines += line;
        if (line.includes(program)) environments += await readFile(`/proc/${pid}/environ`, "utf8").catch(() => "");
      }
      await new Promise((done) => setTimeout(done, 30));
    }
    expect((await running).stdout).toBe("configured-881003\n");
    expect(lines).toContain(program);
    expect(lines).not.toContain("configured-881003");
    expect(environments).toContain("LANG=C.UTF-8");
    expect(environments).not.toContain("configured-881003");
  });
});

describe("the helper", () => {
  test("is lost with what it runs, says so, and is there again for the next run", async () => {
    const nap = `sleep ${uniqueSeconds()}`;
    const runner = createLocalPlugins({ path, temporaryDirectory: join(temporaryDirectory, ".."), wall: "never" });
    // The helper is its parent: everything in between has become the plugin.
    const lost = runner.run(runOf(["sh", "-c", `kill -9 $PPID; ${nap}`]));
    await expect(lost).rejects.toMatchObject({ code: "outcome_unknown" });
    await expectNoneRuns(nap);
    expect(await runner.run(runOf(["sh", "-c", "echo again"]))).toMatchObject({ stdout: "again\n" });
  });

  test("is sent a large file once, and lays it for every run", async () => {
    const body = Buffer.alloc(1_000_000, "a");
    const files = [{ path: "large.txt", body }];
    const sizes = await Promise.all(
      [1, 2, 3].map(async () =>
        (await openHelper.run({ ...runOf(["sh", "-c", "wc -c <large.txt"]), files })).stdout.trim(),
      ),
    );
    expect(sizes).toEqual(["1000000", "1000000", "1000000"]);
  });

  test("ends with the process that forked it, and so does what it runs", async () => {
    const nap = `sleep ${uniqueSeconds()}`;
    const options = JSON.stringify({ path, temporaryDirectory, wall: "never" });
    const source = `
      import { createLocalPlugins } from "@toolyard/platform/local/local-plugins";
      const run = { tenant: "t", environment: {}, stdin: "", timeoutMs: 60000, maxOutputBytes: 1000 };
      void createLocalPlugins(${options}).run({ ...run, command: ["sh", "-c", ${JSON.stringify(`${nap} & wait`)}] });`;
    const other = spawn(process.execPath, ["--input-type=module", "--eval", source], { stdio: "inherit" });
    await expect.poll(commandLines, { timeout: 10_000 }).toMatch(new RegExp(`^(/.*/)?${nap}`, "m"));
    other.kill("SIGKILL");
    await once(other, "exit");
    await expectNoneRuns(nap);
  });
});
