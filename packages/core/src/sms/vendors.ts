/** One line for each SMS vendor (SMS-3); configuration, checks and receipts follow from it. */
import { aliyun } from "./aliyun.ts";
import { huawei } from "./huawei.ts";
import { tencent } from "./tencent.ts";
import { twilio } from "./twilio.ts";
import type { SmsVendor } from "./vendor.ts";

export const smsVendors = { aliyun, tencent, huawei, twilio } as const satisfies Readonly<Record<string, SmsVendor>>;

export type SmsVendorName = keyof typeof smsVendors;
