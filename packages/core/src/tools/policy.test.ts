import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { deliveryOf, withDelivery } from "../errors/delivery.ts";
import { backoffMs, isPassing, mayRepeat } from "./policy.ts";

describe(`sending again ${verifies("API-5")}`, () => {
  test.each([
    [{ effect: "read", repeat: "never" }, "uncertain", true],
    [{ effect: "write", repeat: "never" }, "uncertain", false],
    [{ effect: "write", repeat: "never" }, "answered", false],
    [{ effect: "write", repeat: "never" }, "not_sent", true],
    [{ effect: "write", repeat: "natural" }, "uncertain", true],
    [{ effect: "write", repeat: "key" }, "uncertain", true],
  ] as const)("%o after a delivery that is %s: %s", (call, delivery, expected) => {
    expect(mayRepeat(call, delivery)).toBe(expected);
  });

  test.each([
    [500, true],
    [503, true],
    [429, true],
    [400, false],
    [404, false],
    [501, false],
  ])("status %d may pass by itself: %s", (status, expected) => {
    expect(isPassing(new GatewayError("tool_failed", "no", { extra: { status } }))).toBe(expected);
  });

  test("silence is never taken for not sent", () => {
    expect(deliveryOf(new Error("socket hang up"))).toBe("uncertain");
    expect(deliveryOf(new GatewayError("tool_timeout", "late"))).toBe("uncertain");
    expect(deliveryOf(new GatewayError("credential_missing", "none"))).toBe("answered");
    expect(deliveryOf(withDelivery(new Error("refused"), "not_sent"))).toBe("not_sent");
  });

  test("the pause doubles, has an upper limit and heeds Retry-After", () => {
    expect(backoffMs(1, undefined, () => 0)).toBe(100);
    expect(backoffMs(2, undefined, () => 1)).toBe(400);
    expect(backoffMs(30, undefined, () => 1)).toBe(10_000);
    expect(backoffMs(1, 7_000, () => 0)).toBe(7_000);
  });
});
