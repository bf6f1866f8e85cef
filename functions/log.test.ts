import { describe, expect, test } from "vitest";
import { createLog } from "./log.ts";

function collect(level: "debug" | "info" | "warn" | "error"): {
  readonly lines: () => unknown[];
  readonly log: ReturnType<typeof createLog>;
} {
  let text = "";
  const log = createLog({ level, destination: { write: (part) => void (text += part) } });
  return {
    log,
    lines: () =>
      text
        .split("\n")
        .filter((line) => line !== "")
        .map((line): unknown => JSON.parse(line)),
  };
}

describe("log lines", () => {
  test("are JSON with time, level, message and the fields that are known", () => {
    const { log, lines } = collect("info");
    log.log("warn", "something", { request_id: "r-1", status: 200, tenant: undefined });
    expect(lines()).toEqual([
      { level: "warn", time: expect.stringMatching(/^\d{4}-.*Z$/), request_id: "r-1", status: 200, msg: "something" },
    ]);
  });

  test("leave out fields that nobody has allowed, and say which", () => {
    const { log, lines } = collect("info");
    const passedAlong = { arguments: { password: "hunter2" }, tool: "x" };
    log.log("info", "call", passedAlong);
    expect(lines()).toMatchObject([{ tool: "x", fields_left_out: ["arguments"] }]);
    expect(JSON.stringify(lines())).not.toContain("hunter2");
  });

  test("cut long values and keep quiet below their level", () => {
    const { log, lines } = collect("warn");
    log.log("info", "not written");
    log.log("error", "written", { error: "x".repeat(5_000) });
    expect(lines()).toMatchObject([{ error: "x".repeat(2_000) }]);
  });
});
