import { describe, expect, test } from "vitest";
import { verifies } from "../../../../../test/support/verifies.ts";
import type { PluginExit } from "../../ports/plugin-runner.ts";
import { Redactor } from "../../secrets/redactor.ts";
import { nothingSaid, valueOf } from "./refresh.ts";

const exit: PluginExit = { stdout: "", stderr: "", exitCode: 0, ended: "exit", durationMs: 1 };

describe(`what a static plugin's run gives ${verifies("VCP-20")}`, () => {
  test.for<[string, Partial<PluginExit>, ReturnType<typeof valueOf>]>([
    ["all that it prints", { stdout: " sunny\n{5}\n" }, { text: "sunny\n{5}" }],
    ["folds as they are", { stdout: '{"vcp_dynamic_fold":true}' }, { text: '{"vcp_dynamic_fold":true}' }],
    ["nothing, where it prints nothing", { stdout: " \n" }, { error: nothingSaid }],
    [
      "nothing, where it fails",
      { stdout: "x", stderr: "no key", exitCode: 1 },
      { error: "it exited with code 1: no key" },
    ],
    ["what it has printed by its time limit", { stdout: "part", ended: "timeout", exitCode: null }, { text: "part" }],
    ["nothing by its time limit", { ended: "timeout", exitCode: null }, { error: "it said nothing within 500 ms" }],
    [
      "nothing, where it prints too much",
      { stdout: "x", ended: "output" },
      { error: "it printed more than 1048576 bytes" },
    ],
    [
      "nothing, where it cannot start",
      { ended: "spawn", stderr: "ENOENT" },
      { error: "it could not be started: ENOENT" },
    ],
  ])("is %s", ([, change, value]) => {
    expect(valueOf({ ...exit, ...change }, 500, new Redactor())).toEqual(value);
  });

  test("is an error without a piece of a secret, where the complaint is cut", () => {
    const redactor = new Redactor();
    redactor.add("sk-0123456789");
    const stderr = `${"x".repeat(195)}sk-0123456789${"x".repeat(900)}`;
    const { error } = { error: "", ...valueOf({ ...exit, stderr, exitCode: 1 }, 500, redactor) };
    expect(error).toContain("x");
    expect(error).not.toContain("sk-");
  });
});
