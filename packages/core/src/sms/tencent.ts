/** Tencent Cloud SMS, `SendSms` of 2021-01-11. Templates only; a code for each number, and HTTP 200 for refusals too. */
import * as z from "zod";
import type { JsonValue } from "../json.ts";
import { httpUrlField, secretField } from "../services/config-fields.ts";
import { requireHeaderValue } from "../services/open-secret.ts";
import { isOfCountry } from "./phone-number.ts";
import { signTc3 } from "./signing.ts";
import {
  defineVendor,
  fieldOf,
  forAll,
  listOf,
  notUnderstood,
  textOf,
  type NumberReply,
  type SigningContext,
  type VendorReply,
  type VendorRequest,
} from "./vendor.ts";

const accountSchema = z.strictObject({
  secret_id: z.string().min(1).max(128).meta({ description: "SecretId of the key." }),
  secret_key: secretField("SecretKey of the key."),
  token: secretField("With temporary keys.").optional(),
  sdk_app_id: z
    .string()
    .regex(/^\d{1,20}$/, "must be digits")
    .meta({ description: "SmsSdkAppId of the application." }),
  region: z
    .string()
    .regex(/^[a-z0-9-]{1,40}$/, "must be a region such as ap-guangzhou")
    .default("ap-guangzhou"),
  sender_id: z.string().max(64).optional().meta({ description: "For numbers abroad, where one was given." }),
  endpoint: httpUrlField("Address of the service.").default("https://sms.tencentcloudapi.com"),
});
type Account = z.output<typeof accountSchema>;

const contentType = "application/json; charset=utf-8";

export const tencent = defineVendor({
  title: "Tencent Cloud",
  account: accountSchema,
  batch: 200,
  takesText: false,
  namesParams: false,
  countryCode: "86",
  endpoint: ({ endpoint }) => endpoint,
  secret: ({ secret_key: secret }) => secret,
  send(account, { numbers, content, signName, callId }, context) {
    const template = "template" in content ? content : { template: "", params: { listed: [] } };
    return request(account, context, "SendSms", {
      PhoneNumberSet: [...numbers],
      SmsSdkAppId: account.sdk_app_id,
      ...(signName === undefined || numbers.some((number) => !isOfCountry(number, "86")) ? {} : { SignName: signName }),
      TemplateId: template.template,
      TemplateParamSet: [...template.params.listed],
      SessionContext: callId,
      ...(account.sender_id === undefined ? {} : { SenderId: account.sender_id }),
    });
  },
  read(reply, numbers) {
    const refusal = refusalOf(reply);
    if (refusal !== undefined) return numbers.map((number) => ({ ...refusal, number }));
    const statuses = listOf(fieldOf(fieldOf(reply.json, "Response"), "SendStatusSet"));
    if (statuses === undefined) return forAll(numbers, notUnderstood(reply));
    const byNumber = new Map(statuses.map((status) => [textOf(fieldOf(status, "PhoneNumber")), status]));
    return numbers.map((number) => toNumberReply(number, byNumber.get(number)));
  },
  probe: (account, context) =>
    request(account, context, "DescribeSmsTemplateList", { International: 0, Limit: 1, Offset: 0 }),
  readProbe(reply) {
    const refusal = refusalOf(reply);
    if (refusal !== undefined) return refusal.isLogin === true || refusal.status === "unknown" ? refusal : undefined;
    return fieldOf(reply.json, "Response") === undefined ? { number: "", ...notUnderstood(reply) } : undefined;
  },
  receipts: ({ json }) =>
    listOf(json)?.map((item) => {
      const [country, number] = [textOf(fieldOf(item, "nationcode")), textOf(fieldOf(item, "mobile"))];
      return {
        messageId: textOf(fieldOf(item, "sid")),
        callId: undefined,
        number: country === undefined || number === undefined ? undefined : `+${country}${number}`,
        status: fieldOf(item, "report_status") === "SUCCESS" ? "delivered" : "failed",
        code: textOf(fieldOf(item, "errmsg")),
      };
    }),
  receiptAnswer: '{"result":0,"errmsg":"OK"}',
});

function request(account: Account, { now, reveal }: SigningContext, action: string, fields: JsonValue): VendorRequest {
  const url = new URL(account.endpoint);
  const body = JSON.stringify(fields);
  const timestamp = Math.floor(now.getTime() / 1_000);
  const keys = { id: account.secret_id, secret: reveal(account.secret_key) };
  const authorization = signTc3(keys, { host: url.host, service: "sms", action, contentType, timestamp, body });
  return {
    method: "POST",
    url: `${url.origin}/`,
    headers: [
      ["authorization", authorization],
      ["content-type", contentType],
      ["x-tc-action", action],
      ["x-tc-version", "2021-01-11"],
      ["x-tc-timestamp", String(timestamp)],
      ["x-tc-region", account.region],
      ...(account.token === undefined
        ? []
        : [["x-tc-token", requireHeaderValue(account.token, reveal(account.token))] as const]),
    ],
    body,
  };
}

/** Of a request as a whole. */
function refusalOf(reply: VendorReply): NumberReply | undefined {
  const error = fieldOf(fieldOf(reply.json, "Response"), "Error");
  const code = textOf(fieldOf(error, "Code"));
  if (code === undefined) return undefined;
  return {
    number: "",
    status: statusOf(code),
    code,
    message: textOf(fieldOf(error, "Message")),
    isLogin: /^(?:AuthFailure|UnauthorizedOperation)/.test(code),
    retryAfterMs: reply.retryAfterMs,
  };
}

function statusOf(code: string): NumberReply["status"] {
  if (code.startsWith("RequestLimitExceeded")) return "deferred";
  return /^InternalError\.(?:Timeout|SendAndRecvFail)/.test(code) ? "unknown" : "rejected";
}

function toNumberReply(number: string, status: JsonValue | undefined): NumberReply {
  const code = textOf(fieldOf(status, "Code"));
  if (code === undefined) return { number, status: "unknown", message: "it said nothing of this number" };
  if (code === "Ok") return { number, status: "accepted", messageId: textOf(fieldOf(status, "SerialNo")) };
  return { number, status: statusOf(code), code, message: textOf(fieldOf(status, "Message")) };
}
