/** Aliyun Short Message Service, `SendSms` of 2017-05-25. Templates only; success is `Code: OK`, whatever the HTTP status. */
import * as z from "zod";
import { httpUrlField, secretField } from "../services/config-fields.ts";
import { requireHeaderValue } from "../services/open-secret.ts";
import { isOfCountry } from "./phone-number.ts";
import { canonicalQuery, signAcs3 } from "./signing.ts";
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
  type SmsReceipt,
  type VendorReply,
  type VendorRequest,
} from "./vendor.ts";

const accountSchema = z.strictObject({
  access_key_id: z.string().min(1).max(128).meta({ description: "Id of the access key." }),
  access_key_secret: secretField("Secret of the access key."),
  security_token: secretField("With temporary keys.").optional(),
  endpoint: httpUrlField("Address of the service.").default("https://dysmsapi.aliyuncs.com"),
});
type Account = z.output<typeof accountSchema>;

export const aliyun = defineVendor({
  title: "Aliyun",
  account: accountSchema,
  // It answers for a request as a whole, and every number is to have an answer of its own.
  batch: 1,
  takesText: false,
  namesParams: true,
  countryCode: "86",
  endpoint: ({ endpoint }) => endpoint,
  secret: ({ access_key_secret: secret }) => secret,
  send(account, { numbers, content, signName, callId }, context) {
    const template = "template" in content ? content : { template: "", params: { named: {} } };
    return request(account, context, {
      action: "SendSms",
      query: {
        PhoneNumbers: numbers.map(toVendorForm).join(","),
        ...(signName === undefined ? {} : { SignName: signName }),
        TemplateCode: template.template,
        ...(Object.keys(template.params.named).length === 0
          ? {}
          : { TemplateParam: JSON.stringify(template.params.named) }),
        OutId: callId,
      },
    });
  },
  read(reply, numbers) {
    const verdict = refusalOf(reply);
    if (verdict !== undefined) return numbers.map((number) => ({ ...verdict, number }));
    return forAll(numbers, { status: "accepted", messageId: textOf(fieldOf(reply.json, "BizId")) });
  },
  probe: (account, context) =>
    request(account, context, { action: "QuerySmsTemplateList", query: { PageIndex: "1", PageSize: "1" } }),
  readProbe(reply) {
    const refusal = refusalOf(reply);
    return refusal?.isLogin === true || refusal?.status === "unknown" ? refusal : undefined;
  },
  receipts: ({ json }) => listOf(json)?.map(toReceipt),
  receiptAnswer: '{"code":0,"msg":"OK"}',
});

/** Numbers of mainland China without country code, all others with it; never with `+`. */
function toVendorForm(number: string): string {
  return isOfCountry(number, "86") ? number.slice(3) : number.slice(1);
}

interface Action {
  readonly action: string;
  readonly query: Readonly<Record<string, string>>;
}

function request(account: Account, { now, nonce, reveal }: SigningContext, { action, query }: Action): VendorRequest {
  const { security_token: token } = account;
  const url = new URL(account.endpoint);
  const headers = signAcs3(
    { id: account.access_key_id, secret: reveal(account.access_key_secret) },
    {
      host: url.host,
      action,
      version: "2017-05-25",
      date: `${now.toISOString().slice(0, 19)}Z`,
      nonce,
      query,
      securityToken: token === undefined ? undefined : requireHeaderValue(token, reveal(token)),
    },
  );
  return { method: "POST", url: `${url.origin}/?${canonicalQuery(query)}`, headers };
}

const loginCodes =
  /^(?:SignatureDoesNotMatch|IncompleteSignature|InvalidAccessKeyId|InvalidSecurityToken|MissingSecurityToken|Forbidden\.AccessKey|isp\.RAM_PERMISSION_DENY|NoPermission)/;

/** Undefined: it was accepted. */
function refusalOf(reply: VendorReply): NumberReply | undefined {
  const code = textOf(fieldOf(reply.json, "Code"));
  if (code === undefined) return { number: "", ...notUnderstood(reply) };
  if (code === "OK") return undefined;
  // A nonce that was used comes with a new one next time.
  const isPutOff = reply.status === 429 || /^Throttling|^SignatureNonceUsed/.test(code);
  return {
    number: "",
    status: refusedAs(reply, isPutOff),
    code,
    message: textOf(fieldOf(reply.json, "Message")),
    isLogin: loginCodes.test(code),
    retryAfterMs: reply.retryAfterMs,
  };
}

function toReceipt(item: NonNullable<ReturnType<typeof listOf>>[number]): SmsReceipt {
  const number = textOf(fieldOf(item, "phone_number"));
  const isMainland = number !== undefined && /^1[3-9]\d{9}$/.test(number);
  return {
    messageId: textOf(fieldOf(item, "biz_id")),
    callId: textOf(fieldOf(item, "out_id")),
    number: number === undefined ? undefined : isMainland ? `+86${number}` : `+${number.replace(/^\+?(?:00)?/, "")}`,
    status: fieldOf(item, "success") === true ? "delivered" : "failed",
    code: textOf(fieldOf(item, "err_code")),
  };
}
