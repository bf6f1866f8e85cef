import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, onTestFinished, test } from "vitest";
import { startResidentProcess, type ResidentOptions, type ResidentProcess } from "./resident-process.ts";

/** Answers lines as `each` says, which has `id`, `args`, `cancel` and `say`. */
function start(each: string, change: Partial<ResidentOptions> = {}): ResidentProcess {
  const program = `
    import { createInterface } from "node:readline";
    const say = (line) => console.log(JSON.stringify(line));
    const cancelled = [];
    for await (const line of createInterface({ input: process.stdin })) {
      const { id, arguments: args, cancel } = JSON.parse(line);
      ${each}
    }`;
  const resident = startResidentProcess({
    name: "held",
    command: [process.execPath, "--input-type=module", "-e", program],
    directory: import.meta.dirname,
    path: process.env["PATH"] ?? "",
    environment: { GIVEN: "yes" },
    maxLineBytes: 1_000,
    log: { log: () => undefined },
    ...change,
  });
  onTestFinished(() => resident.stop());
  return resident;
}

const never = new AbortController().signal;

describe("a program that is held", () => {
  test("is asked many things at once, and may answer in any order", async () => {
    const resident = start('if (args.last) say({ id, result: 2 }), say({ id: "first", result: "ä" });');
    const first = resident.ask({ id: "first", arguments: {} }, never);
    expect(await resident.ask({ id: "second", arguments: { last: true } }, never)).toEqual({
      kind: "answered",
      result: 2,
    });
    expect(await first).toEqual({ kind: "answered", result: "ä" });
  });

  test("has the environment that it was given and nothing of ours but its mark", async () => {
    const resident = start("say({ id, result: Object.keys(process.env).sort() });");
    expect(await resident.ask({ id: "a", arguments: {} }, never)).toMatchObject({
      result: ["GIVEN", "LANG", "PATH", "TOOLYARD_HELD_PROCESS"],
    });
  });

  test("refuses with its own words, and what is no answer is nothing", async () => {
    const resident = start(
      'console.log("hello"); say({ id: 7 }); say({ id: "b", result: 1 }); say({ id, error: "no" });',
    );
    expect(await resident.ask({ id: "a", arguments: {} }, never)).toEqual({ kind: "refused", message: "no" });
  });

  test("leaves those who wait without an answer when it dies, and is started again for the next one", async () => {
    const resident = start("if (args.die) process.exit(9); say({ id, result: process.pid });");
    const before = await resident.ask({ id: "a", arguments: {} }, never);
    expect(await resident.ask({ id: "b", arguments: { die: true } }, never)).toMatchObject({
      kind: "lost",
      message: "it ended with exit code 9",
    });
    const after = await resident.ask({ id: "c", arguments: {} }, never);
    expect(after).toMatchObject({ kind: "answered" });
    expect(after).not.toEqual(before);
  });

  test("is told that nobody waits any more", async () => {
    const resident = start("if (cancel) cancelled.push(cancel); else if (args.ask) say({ id, result: cancelled });");
    expect(await resident.ask({ id: "first", arguments: { ask: true } }, never)).toMatchObject({ kind: "answered" });
    const stop = new AbortController();
    const waiting = resident.ask({ id: "a", arguments: {} }, stop.signal);
    await sleep(10);
    stop.abort();
    expect(await waiting).toEqual({ kind: "aborted" });
    expect(await resident.ask({ id: "b", arguments: { ask: true } }, never)).toMatchObject({ result: ["a"] });
  });

  test("is ended where it says more than it may in one line", async () => {
    const resident = start('process.stdout.write("x".repeat(5_000));');
    expect(await resident.ask({ id: "a", arguments: {} }, never)).toMatchObject({ kind: "lost" });
  });

  test("that cannot be found is said to be missing", async () => {
    const resident = start("", { command: ["no-such-program-anywhere"] });
    expect(await resident.ask({ id: "a", arguments: {} }, never)).toEqual({
      kind: "not_running",
      message: "'held' is not running: the program 'no-such-program-anywhere' was not found, or cannot be executed",
    });
  });
});
