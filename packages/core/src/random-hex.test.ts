import { expect, test } from "vitest";
import { randomHex } from "./random-hex.ts";

test("random ids have their length and do not come twice, over many blocks", () => {
  const ids = Array.from({ length: 2_000 }, (_item, at) => randomHex(at % 2 === 0 ? 8 : 16));
  expect(ids.every((id, at) => /^[0-9a-f]+$/.test(id) && id.length === (at % 2 === 0 ? 16 : 32))).toBe(true);
  expect(new Set(ids).size).toBe(ids.length);
});
