/** An SMS vendor for the suite over all schemes. */
import { startVendorStub } from "../sms-vendors.ts";
import type { SchemeFixture } from "./fixture.ts";

export const smsFixture: SchemeFixture = {
  tool: "verification_code",
  arguments: { to: "13800138000", template: "SMS_001", params: { code: "012345" } },
  badArguments: { to: { number: 1 } },
  effect: "write",
  // What vendors answer is a line for each recipient.
  hugeIs: "outcome_unknown",
  async start() {
    const stub = await startVendorStub("aliyun");
    const config = {
      vendor: "aliyun",
      account: stub.account,
      sign_name: "示例签名",
      profiles: { verification_code: { description: "Sends a code." } },
    };
    return {
      config,
      deadConfig: { ...config, account: { ...stub.account, endpoint: "http://127.0.0.1:9" } },
      secrets: [stub.secret],
      calls: () => stub.calls(),
      behave: (mood) => {
        stub.mood = mood === "silent" || mood === "broken" ? mood : "well";
        stub.override = mood === "huge" ? { body: JSON.stringify("x".repeat(10_000_000)) } : undefined;
      },
      close: () => stub.close(),
    };
  },
};
