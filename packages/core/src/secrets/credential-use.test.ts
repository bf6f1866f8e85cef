import { expect, test } from "vitest";
import { callContext } from "../../../../test/support/call-context.ts";
import { usesToTell } from "./credential-use.ts";

test("a credential's use is told once a minute, for each user, and anew with another configuration", () => {
  const { config } = callContext({});
  const at = (now: number, userId?: string): readonly string[] =>
    usesToTell(config, { names: ["mail", "weather"], userId, now });
  expect(at(0)).toEqual(["mail", "weather"]);
  expect(at(59_999)).toEqual([]);
  expect(at(59_999, "user_1")).toEqual(["mail", "weather"]);
  expect(at(60_000)).toEqual(["mail", "weather"]);
  // A clock that was set back must not silence it.
  expect(at(10)).toEqual(["mail", "weather"]);
  expect(usesToTell({ ...config }, { names: ["mail"], userId: undefined, now: 11 })).toEqual(["mail"]);
});
