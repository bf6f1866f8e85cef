/** What vendors say where their own machines fail: the message may have gone (SMS-3). */
import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import type { JsonValue } from "../json.ts";
import { aliyun } from "./aliyun.ts";
import { huawei } from "./huawei.ts";
import { twilio } from "./twilio.ts";
import type { SmsStatus } from "./vendor.ts";

const vendors = { aliyun, huawei, twilio };

describe(`a no of the vendor's ${verifies("SMS-3")}`, () => {
  test.each<[keyof typeof vendors, number, JsonValue, SmsStatus]>([
    ["twilio", 500, { code: 20500, message: "Internal Server Error", status: 500 }, "unknown"],
    ["twilio", 503, { code: 20429, message: "Too Many Requests" }, "deferred"],
    ["twilio", 400, { code: 21211, message: "Invalid 'To' Phone Number" }, "rejected"],
    ["aliyun", 503, { Code: "ServiceUnavailable", Message: "a temporary failure" }, "unknown"],
    ["aliyun", 503, { Code: "Throttling.User", Message: "too fast" }, "deferred"],
    ["aliyun", 400, { Code: "InvalidAccessKeyId.NotFound", Message: "no such key" }, "rejected"],
    ["huawei", 504, { error_code: "APIGW.0201", error_msg: "Backend timeout" }, "unknown"],
    ["huawei", 503, { error_code: "APIGW.0308", error_msg: "throttled" }, "deferred"],
    ["huawei", 400, { code: "E000510", description: "no such template" }, "rejected"],
  ])("%s, %d with %j, is %s", (name, status, json, expected) => {
    const [reply] = vendors[name].read({ status, json, retryAfterMs: undefined }, ["+8613800138000"]);
    expect([reply?.number, reply?.status]).toEqual(["+8613800138000", expected]);
  });
});
