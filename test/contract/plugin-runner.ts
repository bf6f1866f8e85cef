/** What every plugin runner promises: an answer in time, and nothing of the call left behind. */
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { promisify } from "node:util";
import type { PluginExit, PluginRun, PluginRunner } from "@toolyard/core/ports/plugin-runner";
import { describe, expect, test } from "vitest";

const sh = (script: string): PluginRun["command"] => ["sh", "-c", script];
const node = (script: string, ...parameters: readonly string[]): PluginRun["command"] => [
  "node",
  "-e",
  script,
  ...parameters,
];

let last = Math.floor(Math.random() * 1_000_000);
/** A number of seconds that no other process sleeps. */
export function uniqueSeconds(): string {
  last += 1;
  return `77${last}`;
}

/** The command lines of all processes that run now. */
export async function commandLines(): Promise<string> {
  const pids = await readdir("/proc").catch(() => undefined);
  if (pids === undefined) return (await promisify(execFile)("ps", ["-A", "-o", "command"])).stdout;
  // A process that has ended and only waits to be buried has no command line.
  const lines = pids.map((pid) => readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => ""));
  return (await Promise.all(lines)).join("\n").replaceAll("\0", " ");
}

export async function expectNoneRuns(mark: string): Promise<void> {
  const runs = async (): Promise<boolean> => (await commandLines()).includes(mark);
  await expect.poll(runs, { timeout: 5000, message: `a process of "${mark}" is left` }).toBe(false);
}

export interface PluginRunnerTraits {
  /**
   * Whether a plugin ends when its caller goes. Where the caller cannot be seen to go, it has its answer at
   * once all the same, and the plugin ends at its own time limit.
   */
  readonly endsAbandoned?: boolean;
}

export function describePluginRunner(
  name: string,
  make: () => Promise<PluginRunner>,
  { endsAbandoned = true }: PluginRunnerTraits = {},
): void {
  const run = async (command: PluginRun["command"], more: Partial<PluginRun> = {}): Promise<PluginExit> => {
    const runner = await make();
    return runner.run({
      tenant: "ten_1",
      command,
      environment: {},
      stdin: "",
      timeoutMs: 15_000,
      maxOutputBytes: 1024 * 1024,
      ...more,
    });
  };

  describe(`plugin runner: ${name}`, () => {
    test("hands over stdin, and gives back stdout, stderr and the exit code", async () => {
      const exit = await run(sh("cat; echo 怨 >&2; exit 3"), { stdin: '{"文":"本"}\n' });
      expect(exit).toMatchObject({ stdout: '{"文":"本"}\n', stderr: "怨\n", exitCode: 3, ended: "exit" });
      expect(exit.durationMs).toBeGreaterThanOrEqual(0);
    });

    test("passes the words of the command as they are, through no shell", async () => {
      const words = ["$HOME", "a b", "`id`", "'\"", "*", "; exit 9", "--", "-n"];
      const exit = await run(node("console.log(JSON.stringify(process.argv.slice(1)))", "--", ...words));
      expect(JSON.parse(exit.stdout)).toEqual(words);
    });

    test("shows the plugin its own environment and nothing of ours", async () => {
      process.env["TOOLYARD_TEST_SECRET"] = "ours-alone";
      const exit = await run(sh("env"), {
        environment: { PLUGIN_KEY: "its own = value", HOME: "/root", PATH: "/nowhere" },
      });
      delete process.env["TOOLYARD_TEST_SECRET"];
      const lines = exit.stdout.trimEnd().split("\n");
      const names = lines.map((line) => line.slice(0, line.indexOf("=")));
      expect(lines).toContain("PLUGIN_KEY=its own = value");
      expect(names.filter((each) => !["PWD", "SHLVL", "_", "OLDPWD"].includes(each)).sort()).toEqual([
        "HOME",
        "LANG",
        "PATH",
        "PLUGIN_KEY",
        "TMPDIR",
      ]);
      expect(exit.stdout).not.toContain("ours-alone");
      expect(lines).not.toContain("HOME=/root");
      expect(lines).not.toContain("PATH=/nowhere");
    });

    test("gives each run an empty directory of its own, which is home, and removes it", async () => {
      const look = sh('pwd; echo "$HOME"; echo "$TMPDIR"; ls -A; mkdir deep; echo x > deep/file; chmod 500 deep');
      const [first, second] = await Promise.all([run(look), run(look)]);
      const [pwd = "", ...rest] = first.stdout.trimEnd().split("\n");
      expect(rest).toEqual([pwd, pwd]);
      expect(second.stdout).not.toBe(first.stdout);
      await expect(readFile(`${pwd}/deep/file`)).rejects.toMatchObject({ code: "ENOENT" });
    });

    test("lays files into the directory, which can be run", async () => {
      const script = Buffer.from('#!/bin/sh\ncat "$(dirname "$0")/data/图.txt"\n');
      const files = [
        { path: "bin/tool", body: script },
        { path: "bin/data/图.txt", body: Buffer.from("laid") },
      ];
      expect(await run(["bin/tool"], { files })).toMatchObject({ stdout: "laid", exitCode: 0 });
      expect(await run(["./bin/tool"], { files })).toMatchObject({ stdout: "laid", exitCode: 0 });
    });

    test.for(["../out", "/etc/out", "a/../../out", "a//b", "./a", "", "a\\b", "a\0b"])(
      "refuses to lay a file at %j",
      async (path) => {
        const refused = run(sh("echo ran"), { files: [{ path, body: Buffer.from("x") }] });
        await expect(refused).rejects.toMatchObject({ code: "invalid_definition", details: { param: "files" } });
      },
    );

    test("refuses two files in one place", async () => {
      const body = Buffer.from("x");
      for (const other of ["a", "a/b"]) {
        await expect(
          run(sh("true"), {
            files: [
              { path: "a", body },
              { path: other, body },
            ],
          }),
        ).rejects.toMatchObject({
          code: "invalid_definition",
        });
      }
    });

    test("survives a plugin that dies before it reads a large input", async () => {
      const exit = await run(node("process.stderr.write('bad config'); process.exit(3)"), {
        stdin: "a".repeat(5_000_000),
      });
      expect(exit).toMatchObject({ stdout: "", stderr: "bad config", exitCode: 3, ended: "exit" });
    });

    test("survives a plugin that closes its input and goes on", async () => {
      const exit = await run(sh("exec 0<&-; sleep 0.1; echo answered"), { stdin: "a".repeat(5_000_000) });
      expect(exit).toMatchObject({ stdout: "answered\n", exitCode: 0, ended: "exit" });
    });

    test.for(["no-such-program-here", "./not-laid", "/no/such/program", "/"])(
      "says that %s cannot be started",
      async (program) => {
        const exit = await run([program, "x"], { stdin: "a".repeat(1_000_000) });
        expect(exit).toMatchObject({ stdout: "", exitCode: null, ended: "spawn" });
        expect(exit.stderr).toContain(`"${program}"`);
      },
    );

    test("says that a command with a byte 0 cannot be started", async () => {
      expect(await run(["sh", "-c", "echo\0x"])).toMatchObject({ ended: "spawn", exitCode: null });
      expect(await run(sh("env"), { environment: { A: "1\0B=2" } })).toMatchObject({ ended: "spawn", exitCode: null });
    });

    test("ends a plugin at its time limit with what it said so far, although it ignores being asked", async () => {
      const nap = `sleep ${uniqueSeconds()}`;
      const stubborn = sh(`trap "" TERM INT HUP; echo partial; while :; do ${nap}; done`);
      const exit = await run(stubborn, { timeoutMs: 300 });
      expect(exit).toMatchObject({ stdout: "partial\n", exitCode: null, ended: "timeout" });
      await expectNoneRuns(nap);
    });

    test("ends the children of a plugin at its time limit although they hold the pipe", async () => {
      const nap = `sleep ${uniqueSeconds()}`;
      const exit = await run(sh(`${nap} & echo early; wait`), { timeoutMs: 300 });
      expect(exit).toMatchObject({ stdout: "early\n", exitCode: null, ended: "timeout" });
      await expectNoneRuns(nap);
    });

    test("answers when the plugin has ended although a grandchild holds the pipe, and ends that too", async () => {
      const nap = `sleep ${uniqueSeconds()}`;
      const exit = await run(sh(`${nap} & echo early`));
      expect(exit).toMatchObject({ stdout: "early\n", exitCode: 0, ended: "exit" });
      await expectNoneRuns(nap);
    });

    test.for(["inherit", "ignore"])("ends a child that left the process group (its output: %s)", async (stdio) => {
      const seconds = uniqueSeconds();
      const detach = `const { spawn } = require("node:child_process");
        spawn("sleep", ["${seconds}"], { detached: true, stdio: "${stdio}" }).unref(); console.log("left");`;
      const exit = await run(node(detach));
      expect(exit).toMatchObject({ stdout: "left\n", exitCode: 0, ended: "exit" });
      await expectNoneRuns(`sleep ${seconds}`);
    });

    test("ends a plugin whose caller is gone, and does not start one for a caller gone before", async () => {
      const nap = `sleep ${uniqueSeconds()}`;
      const controller = new AbortController();
      const slow = sh(`${nap} & echo started; wait`);
      const running = run(slow, { signal: controller.signal, ...(endsAbandoned ? {} : { timeoutMs: 2_000 }) });
      setTimeout(() => controller.abort(), 200);
      expect(await running).toMatchObject({ exitCode: null, ended: "aborted" });
      await expectNoneRuns(nap);
      expect(await run(sh("echo ran"), { signal: controller.signal })).toMatchObject({ stdout: "", ended: "aborted" });
    });

    test("stops a plugin that floods its output, and keeps what fits", async () => {
      const line = `字字${uniqueSeconds()}`;
      const exit = await run(["yes", line], { maxOutputBytes: 100_000 });
      expect(exit).toMatchObject({ exitCode: null, ended: "output" });
      expect(Buffer.byteLength(exit.stdout)).toBeGreaterThan(99_990);
      expect(Buffer.byteLength(exit.stdout)).toBeLessThanOrEqual(100_000);
      expect(exit.stdout).not.toContain("\uFFFD");
      await expectNoneRuns(`yes ${line}`);
    });

    test("takes an output of exactly the limit for whole", async () => {
      const exit = await run(node("process.stdout.write('x'.repeat(1000))"), { maxOutputBytes: 1000 });
      expect(exit).toMatchObject({ stdout: "x".repeat(1000), exitCode: 0, ended: "exit" });
    });

    test("keeps the end of a flooded stderr and lets the plugin finish", async () => {
      const flood =
        "process.stderr.write('w'.repeat(500_000)); process.stderr.write('the reason'); console.log('done')";
      const exit = await run(node(flood));
      expect(exit).toMatchObject({ stdout: "done\n", exitCode: 0, ended: "exit" });
      expect(exit.stderr.endsWith("the reason")).toBe(true);
      expect(exit.stderr.length).toBeLessThanOrEqual(64 * 1024);
    });

    test("gives back one huge line without a final newline, no character broken", async () => {
      const line = "汉字🙂".repeat(150_000);
      const exit = await run(node("process.stdout.write('汉字🙂'.repeat(150_000))"), { maxOutputBytes: 4_000_000 });
      expect(exit.ended).toBe("exit");
      expect(exit.stdout === line).toBe(true);
    });

    test("joins characters that arrive byte by byte", async () => {
      const slowly = `const bytes = Buffer.from("温度🙂");
        (async () => { for (const byte of bytes) { process.stdout.write(Buffer.of(byte)); await new Promise((done) => setTimeout(done, 3)); } })()`;
      expect((await run(node(slowly))).stdout).toBe("温度🙂");
    });

    test("hands on what a plugin says first while it still works, and all of it once", async () => {
      const parts: string[] = [];
      const first = Promise.withResolvers<string>();
      let ended = false;
      const work = node(`console.log('{"status":"success","怨":1}');
        process.stdin.once("end", () => undefined).resume();
        setTimeout(() => console.log("background work done"), 1_000);`);
      const running = run(work, {
        onStdout(part) {
          parts.push(part);
          first.resolve(parts.join(""));
        },
      }).finally(() => (ended = true));
      expect(await first.promise).toBe('{"status":"success","怨":1}\n');
      expect(ended).toBe(false);
      const exit = await running;
      expect(exit).toMatchObject({ exitCode: 0, ended: "exit" });
      expect(exit.stdout).toBe('{"status":"success","怨":1}\nbackground work done\n');
      expect(parts.join("")).toBe(exit.stdout);
    });

    describe("keeps the input of a server open until it has answered", () => {
      const answering = (onEnd: string): PluginRun["command"] =>
        node(`
          process.stdin.once("data", () => setTimeout(() => console.log('{"jsonrpc":"2.0","id":7,"result":{}}'), 100));
          process.stdin.once("end", () => { ${onEnd} });`);

      test("which the end of it tells to leave", async () => {
        const exit = await run(answering("console.log('left'); process.exit(0)"), { stdin: "{}\n", answersId: 7 });
        expect(exit).toMatchObject({ ended: "exit", exitCode: 0 });
        expect(exit.stdout.split("\n")).toEqual(['{"jsonrpc":"2.0","id":7,"result":{}}', "left", ""]);
      });

      test("and ends it where it stays all the same", async () => {
        const exit = await run(answering("setInterval(() => {}, 1000)"), { stdin: "{}\n", answersId: 7 });
        expect(exit).toMatchObject({ ended: "exit", exitCode: null });
        expect(exit.stdout).toContain('"result"');
      });
    });

    describe("lets a plugin answer first", () => {
      const answered = '{"status":"success","requestId":"t1"}';

      test("and work on for longer than its answer may take, saying whatever it likes", async () => {
        const chatter = "x".repeat(100_000);
        const script = `console.log('working {'); console.log('${answered}');
          setTimeout(() => { console.log('${chatter}'); process.exit(7) }, 2500)`;
        const exit = await run(node(script), { answerWithinMs: 2_000, maxOutputBytes: 4_096 });
        expect(exit).toMatchObject({ ended: "exit", exitCode: 7 });
        expect(exit.stdout.startsWith(`working {\n${answered}`)).toBe(true);
        expect(exit.stdout).not.toContain("xxx");
      });

      test("and ends it where the answer does not come in time", async () => {
        const exit = await run(sh('echo \'{"status":"working"}\'; sleep 30'), { answerWithinMs: 700 });
        expect(exit).toMatchObject({ ended: "timeout", exitCode: null, stdout: '{"status":"working"}\n' });
      });

      test("but not with more than an answer may have", async () => {
        const exit = await run(sh("yes | head -c 100000; sleep 30"), { answerWithinMs: 9_000, maxOutputBytes: 4_096 });
        expect(exit).toMatchObject({ ended: "output" });
      });
    });

    test("removes a directory that a plugin has closed to itself, and one too deep to be named", async () => {
      const deep = `import os
print(os.getcwd(), flush=True)
os.makedirs("shut/inner"); open("shut/inner/file", "w").close(); os.chmod("shut/inner", 0); os.chmod("shut", 0o500)
for _ in range(300):
    os.mkdir("d" * 60); os.chdir("d" * 60)
open("bottom", "w").close()`;
      // Not one of the user's own, which a wall does not show.
      const python = existsSync("/usr/bin/python3") ? "/usr/bin/python3" : "python3";
      const exit = await run([python, "-c", deep]);
      if (exit.ended === "spawn") return;
      expect(exit).toMatchObject({ exitCode: 0, stderr: "" });
      await expect(readdir(exit.stdout.trim())).rejects.toMatchObject({ code: "ENOENT" });
    });

    test("reports a plugin that a signal killed without an exit code of its own", async () => {
      const exit = await run(sh("kill -SEGV $$"));
      expect(exit.ended).toBe("exit");
      // None, or what a shell would say: 128 and the signal's number.
      expect([null, 139]).toContain(exit.exitCode);
    });

    test("ends a plugin that takes more memory than it may", async () => {
      const exit = await run(node("const all = []; for (;;) all.push(Buffer.alloc(50_000_000, 1))"), {
        timeoutMs: 20_000,
      });
      expect(exit.ended).toBe("exit");
      expect(exit.exitCode).not.toBe(0);
    });

    test("runs many plugins side by side, each with its own answer", async () => {
      const exits = await Promise.all(
        Array.from({ length: 12 }, (_, at) => run(sh('read line; echo "got $line"'), { stdin: `${at}\n` })),
      );
      expect(exits.map(({ stdout }) => stdout)).toEqual(exits.map((_, at) => `got ${at}\n`));
    });
  });
}
