/** Huawei Cloud Message & SMS, `batchSendSms` v1. Templates only; a status for each number. */
import * as z from "zod";
import type { JsonValue } from "../json.ts";
import { httpUrlField, secretField } from "../services/config-fields.ts";
import { encodeStrictly, signSdk, signWsse } from "./signing.ts";
import {
  defineVendor,
  fieldOf,
  forAll,
  listOf,
  notUnderstood,
  refusedAs,
  textOf,
  type NumberReply,
  type SigningContext,
  type VendorReply,
  type VendorRequest,
} from "./vendor.ts";

const accountSchema = z.strictObject({
  app_key: z.string().min(1).max(128).meta({ description: "Application key." }),
  app_secret: secretField("Application secret."),
  endpoint: httpUrlField("Access address of the application.").meta({
    example: "https://smsapi.cn-north-4.myhuaweicloud.com:443",
  }),
  channel: z
    .string()
    .regex(/^[\w+-]{1,40}$/, "must be a channel number")
    .meta({ description: "Channel number of the signature." }),
  authentication: z.enum(["wsse", "aksk"]).default("wsse").meta({ description: "How requests prove who is calling." }),
});
type Account = z.output<typeof accountSchema>;

const path = "/sms/batchSendSms/v1";
const contentType = "application/x-www-form-urlencoded";

export const huawei = defineVendor({
  title: "Huawei Cloud",
  account: accountSchema,
  batch: 500,
  takesText: false,
  namesParams: false,
  countryCode: "86",
  endpoint: ({ endpoint }) => endpoint,
  secret: ({ app_secret: secret }) => secret,
  send(account, { numbers, content, signName, callId, receiptUrl }, context) {
    const template = "template" in content ? content : { template: "", params: { listed: [] } };
    const { listed } = template.params;
    return request(account, context, [
      ["from", account.channel],
      ["to", numbers.join(",")],
      ["templateId", template.template],
      ...(listed.length === 0 ? [] : [["templateParas", JSON.stringify(listed)] as const]),
      ...(signName === undefined ? [] : [["signature", signName] as const]),
      ...(receiptUrl === undefined ? [] : [["statusCallback", receiptUrl] as const, ["extend", callId] as const]),
    ]);
  },
  read(reply, numbers) {
    const results = listOf(fieldOf(reply.json, "result"));
    if (results === undefined || results.length === 0) {
      const refusal = refusalOf(reply) ?? { number: "", ...notUnderstood(reply) };
      return forAll(numbers, refusal).map((each, index) => ({ ...each, number: numbers[index] ?? "" }));
    }
    const byNumber = new Map(results.map((result) => [digitsOf(textOf(fieldOf(result, "originTo"))), result]));
    return numbers.map((number) => toNumberReply(number, byNumber.get(digitsOf(number))));
  },
  // Without recipient and template nothing can be sent; whoever is not known is told so first.
  probe: (account, context) => request(account, context, [["from", account.channel]]),
  readProbe(reply) {
    const refusal = refusalOf(reply);
    if (refusal === undefined)
      return textOf(fieldOf(reply.json, "code")) === undefined ? { number: "", ...notUnderstood(reply) } : undefined;
    return refusal.isLogin === true ? refusal : undefined;
  },
  receipts({ form }) {
    const [status, messageId] = [form.get("status"), form.get("smsMsgId")];
    if (status === null || messageId === null) return undefined;
    const number = form.get("to") ?? form.get("originTo");
    return [
      {
        messageId,
        callId: form.get("extend") ?? undefined,
        number: number === null ? undefined : `+${digitsOf(number)}`,
        status: status === "DELIVRD" ? "delivered" : /^(?:ACCEPTD|ENROUTE)$/.test(status) ? "sent" : "failed",
        code: status,
      },
    ];
  },
  receiptAnswer: "{}",
});

function request(
  account: Account,
  context: SigningContext,
  fields: readonly (readonly [name: string, value: string])[],
): VendorRequest {
  const url = new URL(account.endpoint);
  const body = fields.map(([name, value]) => `${name}=${encodeStrictly(value)}`).join("&");
  return {
    method: "POST",
    url: `${url.origin}${path}`,
    headers: [["content-type", contentType], ...proof(account, context, { host: url.host, body })],
    body,
  };
}

function proof(
  account: Account,
  { now, nonce, reveal }: SigningContext,
  { host, body }: { readonly host: string; readonly body: string },
): VendorRequest["headers"] {
  const keys = { id: account.app_key, secret: reveal(account.app_secret) };
  const created = `${now.toISOString().slice(0, 19)}Z`;
  if (account.authentication === "wsse") {
    return [
      ["authorization", 'WSSE realm="SDP",profile="UsernameToken",type="Appkey"'],
      ["x-wsse", signWsse(keys, { nonce, created })],
    ];
  }
  const date = created.replaceAll(/[:-]/g, "");
  return [
    ["x-sdk-date", date],
    ["authorization", signSdk(keys, { method: "POST", host, path, contentType, date, body })],
  ];
}

const throttled = new Set(["E000623", "E000629", "APIGW.0308", "E200015", "E200027"]);

/** Of a request as a whole. */
function refusalOf(reply: VendorReply): NumberReply | undefined {
  const code = textOf(fieldOf(reply.json, "code")) ?? textOf(fieldOf(reply.json, "error_code"));
  if (code === undefined || code === "000000") return undefined;
  return {
    number: "",
    status: refusedAs(reply, reply.status === 429 || throttled.has(code)),
    code,
    message: textOf(fieldOf(reply.json, "description")) ?? textOf(fieldOf(reply.json, "error_msg")),
    isLogin: /^(?:E00000[1-8]|E00002\d|E0001\d\d|APIGW\.03)/.test(code) && !throttled.has(code),
    retryAfterMs: reply.retryAfterMs,
  };
}

function toNumberReply(number: string, result: JsonValue | undefined): NumberReply {
  const code = textOf(fieldOf(result, "status"));
  if (code === undefined) return { number, status: "unknown", message: "it said nothing of this number" };
  const messageId = textOf(fieldOf(result, "smsMsgId"));
  if (code === "000000") return { number, status: "accepted", messageId };
  return { number, status: throttled.has(code) ? "deferred" : "rejected", messageId, code };
}

function digitsOf(number: string | undefined): string {
  return (number ?? "").replaceAll(/\D/g, "");
}
