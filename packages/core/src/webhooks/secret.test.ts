import { describe, expect, test } from "vitest";
import { signMessage } from "./secret.ts";

describe("the signature of a webhook", () => {
  const message = { id: "msg_p5jXN8AQM9LWM0D4loKWxJek", timestamp: 1_614_265_330, body: '{"test": 2432232314}' };
  const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
  const signature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

  test("is that of the specification's example", () => {
    expect(signMessage(message, [secret])).toBe(signature);
  });

  test("is made with each secret while one replaces the other", () => {
    const other = `whsec_${Buffer.alloc(32, 7).toString("base64")}`;
    const [first, second] = signMessage(message, [other, secret]).split(" ");
    expect(second).toBe(signature);
    expect(first).toMatch(/^v1,.{44}$/);
    expect(first).not.toBe(signature);
  });
});
