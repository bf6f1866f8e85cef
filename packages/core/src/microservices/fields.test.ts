/** Hosts of instances, which have to be what stands in a URL (SVC-3). */
import { expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { instanceHostSchema } from "./fields.ts";

test.each([
  ["10.0.0.25", true],
  ["fd00::1", true],
  ["loyalty-5.example.com", true],
  ["例え.jp", true],
  ["10.0.0.256", false],
  ["host.5", false],
  ["fe80::1%eth0", false],
])(`%s can be called: %j ${verifies("SVC-3")}`, (host, expected) => {
  expect(instanceHostSchema.safeParse(host).success).toBe(expected);
});
