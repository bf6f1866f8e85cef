import { describe, expect, test } from "vitest";
import { createFunctionLog } from "./function-log.ts";

describe("log lines of a function", () => {
  test("are written at once, as those of the server, and only from their level on", () => {
    const lines: string[] = [];
    const log = createFunctionLog("info", (line) => void lines.push(line));
    log.log("debug", "not written");
    const passedAlong = { tenant: "ten_1", arguments: { password: "hunter2" }, status: undefined, note: "said aloud" };
    log.log("warn", "something", passedAlong);
    expect(lines).toHaveLength(1);
    expect(lines[0]).toMatch(/\}\n$/);
    expect(JSON.parse(lines[0] ?? "")).toEqual({
      level: "warn",
      time: expect.stringMatching(/^\d{4}-.*Z$/),
      tenant: "ten_1",
      fields_left_out: ["arguments"],
      msg: "something",
    });
  });
});
