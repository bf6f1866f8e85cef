import { access } from "node:fs/promises";
import { describe, expect, onTestFinished, test } from "vitest";
import { startHeldProcess, type HeldProcess, type HeldProcessOptions } from "./held-process.ts";

interface World {
  readonly held: HeldProcess;
  readonly lines: string[];
  readonly gone: string[];
}

function start(program: string, change: Partial<HeldProcessOptions> = {}): World {
  const lines: string[] = [];
  const gone: string[] = [];
  const held = startHeldProcess({
    name: "held",
    command: [process.execPath, "--input-type=module", "-e", program],
    directory: import.meta.dirname,
    path: process.env["PATH"] ?? "",
    environment: {},
    maxLineBytes: 1_000,
    log: { log: () => undefined },
    onLine: (line) => void lines.push(line),
    onGone: (problem) => void gone.push(problem),
    ...change,
  });
  onTestFinished(() => held.stop());
  return { held, lines, gone };
}

const isAlive = (pid: number): boolean => {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
};
const patience = { timeout: 20_000 };

describe("a process that is held", () => {
  test("takes whatever it has started with it, also what has detached itself", { timeout: 60_000 }, async () => {
    const { held, lines } = start(`
      import { spawn } from "node:child_process";
      const child = spawn(process.execPath, ["-e", "setInterval(() => {}, 1000)"], { detached: true, stdio: "inherit" });
      console.log(child.pid);
      process.stdin.on("end", () => process.exit()).resume();`);
    await expect.poll(() => lines, patience).toHaveLength(1);
    const child = Number(lines[0]);
    expect(isAlive(child)).toBe(true);
    await held.stop();
    await expect.poll(() => isAlive(child), patience).toBe(false);
  });

  test("has a directory of its own as HOME that goes with it", { timeout: 60_000 }, async () => {
    const { held, lines } = start("console.log(process.env.HOME); process.stdin.resume();", { hasHome: true });
    await expect.poll(() => lines, patience).toHaveLength(1);
    await access(lines[0] ?? "");
    await held.stop();
    await expect(access(lines[0] ?? "")).rejects.toThrow("ENOENT");
  });

  test("that ignores the end of its input and SIGTERM is killed", { timeout: 60_000 }, async () => {
    const { held, lines, gone } = start(
      'process.on("SIGTERM", () => {}); setInterval(() => {}, 1000); console.log(process.pid);',
    );
    await expect.poll(() => lines, patience).toHaveLength(1);
    await held.stop();
    expect(isAlive(Number(lines[0]))).toBe(false);
    expect(gone).toEqual(["it ended with SIGKILL"]);
  });

  test(
    "is started again when it dies, soon at first, and says later why it is not there",
    { timeout: 60_000 },
    async () => {
      const { held, lines, gone } = start("console.log(process.pid); setTimeout(() => process.exit(3), 50);");
      await expect.poll(() => gone, patience).toContain("it ended with exit code 3");
      // The first pauses are short enough to wait for.
      expect(await held.problem()).toBe(undefined);
      await expect.poll(() => new Set(lines).size, patience).toBeGreaterThan(1);
      await expect.poll(() => held.problem(), patience).toBe("it ended with exit code 3");
    },
  );

  test("is read no further than the longest line that it may write", { timeout: 60_000 }, async () => {
    const { lines, gone } = start('process.stdout.write("x".repeat(5_000) + "\\nmore\\n"); process.stdin.resume();');
    await expect.poll(() => gone, patience).toContain("it ended with SIGKILL");
    expect(lines.filter((line) => line.length > 1_000)).toEqual([]);
  });

  test("that says what its holder cannot take is ended, and its holder is not", { timeout: 60_000 }, async () => {
    const logged: string[] = [];
    const { gone } = start('console.log("unheard of"); process.stdin.resume();', {
      onLine: () => {
        throw new Error("unheard of");
      },
      log: { log: (level, message, fields) => void logged.push(JSON.stringify({ level, message, fields })) },
    });
    await expect.poll(() => gone, patience).toContain("it ended with SIGKILL");
    const errors = logged.filter((line) => line.includes('"level":"error"'));
    expect(errors[0]).toContain("could not be taken");
    expect(errors.join()).not.toContain("unheard of");
  });

  test("that cannot be started says why, at each of its starts, and not what it was given", async () => {
    const { held, gone } = start("", { environment: { SECRET: "swordfish\0" } });
    await expect.poll(() => gone, patience).toHaveLength(3);
    expect(gone[0]).toContain("byte 0");
    expect(gone.join()).not.toContain("swordfish");
    await held.stop();
  });

  test("whose environment is too long for the system says so", { timeout: 30_000 }, async () => {
    const { held, gone } = start("", { environment: { LONG: "x".repeat(3_000_000) }, hasHome: true });
    await expect.poll(() => gone, patience).toHaveLength(2);
    expect(gone[0]).toContain("E2BIG");
    await held.stop();
  });

  test("whose program is not there says so", async () => {
    const { held } = start("", { command: ["no-such-program"] });
    expect(await held.problem()).toContain("'no-such-program' was not found");
  });
});
