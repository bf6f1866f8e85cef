import { describe, expect, test } from "vitest";
import { nearestName } from "./nearest-name.ts";

const known = ["tls", "servers", "name", "timeout", "base_url", "Ünïcode"];

describe("the known name that was meant", () => {
  test.each([
    ["server", "servers"],
    ["tsl", "tls"],
    ["nmae", "name"],
    ["NAME", "name"],
    ["timout", "timeout"],
    ["baseurl", "base_url"],
    ["base-url", "base_url"],
    ["ünïcod", "Ünïcode"],
  ])("%s is %s", (name, meant) => {
    expect(nearestName(name, known)).toBe(meant);
  });

  test.each(["urls", "id", "", "x".repeat(1_000), "hosts"])("nothing is like '%.20s'", (name) => {
    expect(nearestName(name, known)).toBeUndefined();
  });
});
