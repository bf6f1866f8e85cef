/** Megabytes of JSON that would keep a process busy if any of it were looked at again and again. */
import { expect, test } from "vitest";
import { verifies } from "../../../test/support/verifies.ts";
import { parseJsonExactly, repeatedNames } from "./json.ts";

test(`JSON of which no number may be changed is read in about the time that it takes anyway, however many it holds ${verifies("BLIND-8", "CHAT-18")}`, () => {
  const many = `[${"1,".repeat(2_000_000)}1234567890123456789]`;
  expect(parseJsonExactly(many)).toHaveLength(2_000_001);
  expect(parseJsonExactly(`{"n":1234567890123456789,"a":"${'\\"'.repeat(500_000)}`)).toBeUndefined();
  const quoted = '"'.repeat(5_000_000);
  expect(parseJsonExactly(`[1234567890123456789,${JSON.stringify(quoted)}]`)).toEqual(["1234567890123456789", quoted]);
});

test(`JSON that may say something twice is looked through once, whatever it is ${verifies("CFG-1", "CFG-3")}`, () => {
  const names = `{${'"a":1,'.repeat(500_000)}"b":"${"\\\\".repeat(500_000)}"}`;
  expect(repeatedNames(names)).toHaveLength(100);
  const texts = [`"${'\\"'.repeat(1_000_000)}"`, `["",${" ".repeat(2_000_000)}""${" ".repeat(2_000_000)}]`];
  for (const text of texts) expect(repeatedNames(text)).toEqual([]);
});
