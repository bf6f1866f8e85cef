/** Twilio Programmable Messaging, 2010-04-01. Texts and content templates; one recipient a request. */
import * as z from "zod";
import { httpUrlField, secretField } from "../services/config-fields.ts";
import { parsePhoneNumber } from "./phone-number.ts";
import { basic, encodeStrictly } from "./signing.ts";
import {
  defineVendor,
  fieldOf,
  forAll,
  notUnderstood,
  refusedAs,
  textOf,
  type NumberReply,
  type OutgoingSms,
  type SigningContext,
  type SmsReceipt,
  type VendorReply,
  type VendorRequest,
} from "./vendor.ts";

const accountSchema = z
  .strictObject({
    account_sid: z.string().regex(/^AC[0-9a-zA-Z]{32}$/, "must be AC and 32 characters"),
    api_key_sid: z
      .string()
      .regex(/^SK[0-9a-zA-Z]{32}$/, "must be SK and 32 characters")
      .optional()
      .meta({ description: "Id of an API key whose secret `auth_token` is; absent: it is the account's own token." }),
    auth_token: secretField("Token of the account, or secret of the API key."),
    from: z
      .string()
      .refine(
        (text) => parsePhoneNumber(text) !== undefined || /^[A-Za-z0-9 ]{1,11}$|^\d{3,8}$/.test(text),
        "must be a number with '+', a short code, or a sender name",
      )
      .optional()
      .meta({ description: "Sender." }),
    messaging_service_sid: z
      .string()
      .regex(/^MG[0-9a-zA-Z]{32}$/, "must be MG and 32 characters")
      .optional()
      .meta({ description: "Chooses the sender, instead of `from`." }),
    endpoint: httpUrlField("Address of the service.").default("https://api.twilio.com"),
  })
  .refine(({ from, messaging_service_sid: service }) => (from === undefined) !== (service === undefined), {
    error: "needs either 'from' or 'messaging_service_sid'",
    path: ["from"],
  });
type Account = z.output<typeof accountSchema>;

export const twilio = defineVendor({
  title: "Twilio",
  account: accountSchema,
  batch: 1,
  takesText: true,
  namesParams: true,
  countryCode: undefined,
  endpoint: ({ endpoint }) => endpoint,
  secret: ({ auth_token: secret }) => secret,
  send: (account, message, context) => toMessages(account, context, fieldsOf(account, message)),
  read(reply, numbers) {
    const refusal = refusalOf(reply);
    if (refusal !== undefined) return numbers.map((number) => ({ ...refusal, number }));
    return forAll(numbers, { status: "accepted", messageId: textOf(fieldOf(reply.json, "sid")) });
  },
  // Without recipient nothing can be sent. The account itself may not be read with every API key that may send.
  probe: (account, context) => toMessages(account, context, senderOf(account)),
  readProbe(reply) {
    const refusal = refusalOf(reply);
    const isAboutMessage = refusal?.status === "rejected" && /^21\d{3}$/.test(refusal.code ?? "");
    return isAboutMessage ? undefined : refusal;
  },
  receipts({ form, query }) {
    const [status, messageId] = [form.get("MessageStatus"), form.get("MessageSid")];
    if (status === null || messageId === null) return undefined;
    return [
      {
        messageId,
        callId: query.get("call") ?? undefined,
        number: form.get("To") ?? undefined,
        status: receiptStatus(status),
        code: form.get("ErrorCode") ?? status,
      },
    ];
  },
  receiptAnswer: "",
});

function receiptStatus(status: string): SmsReceipt["status"] {
  if (/^(?:delivered|read|partially_delivered)$/.test(status)) return "delivered";
  return /^(?:undelivered|failed|canceled)$/.test(status) ? "failed" : "sent";
}

type Field = readonly [name: string, value: string];

function toMessages(account: Account, context: SigningContext, fields: readonly Field[]): VendorRequest {
  const { endpoint, account_sid: sid } = account;
  return {
    method: "POST",
    url: `${new URL(endpoint).origin}/2010-04-01/Accounts/${sid}/Messages.json`,
    headers: [["content-type", "application/x-www-form-urlencoded"], proof(account, context)],
    body: fields.map(([name, value]) => `${name}=${encodeStrictly(value)}`).join("&"),
  };
}

function proof(account: Account, { reveal }: SigningContext): VendorRequest["headers"][number] {
  const id = account.api_key_sid ?? account.account_sid;
  return ["authorization", basic({ id, secret: reveal(account.auth_token) })];
}

function senderOf({ from = "", messaging_service_sid: service }: Account): readonly Field[] {
  return [service === undefined ? ["From", from] : ["MessagingServiceSid", service]];
}

function fieldsOf(account: Account, { numbers, content, callId, receiptUrl }: OutgoingSms): readonly Field[] {
  return [
    ["To", numbers[0] ?? ""],
    ...senderOf(account),
    ...("text" in content
      ? [["Body", content.text] as const]
      : [
          ["ContentSid", content.template] as const,
          ["ContentVariables", JSON.stringify(content.params.named)] as const,
        ]),
    ...(receiptUrl === undefined ? [] : [["StatusCallback", `${receiptUrl}?call=${encodeStrictly(callId)}`] as const]),
  ];
}

/** Undefined: it was accepted. */
function refusalOf(reply: VendorReply): NumberReply | undefined {
  const { status, json, retryAfterMs } = reply;
  const own = textOf(fieldOf(json, "error_code"));
  const code = own ?? textOf(fieldOf(json, "code"));
  const isDone = status >= 200 && status < 300 && textOf(fieldOf(json, "sid")) !== undefined;
  if (isDone && own === undefined) return undefined;
  if (code === undefined) return { number: "", ...notUnderstood(reply) };
  return {
    number: "",
    status: refusedAs(reply, status === 429 || code === "20429"),
    code,
    message: textOf(fieldOf(json, "error_message")) ?? textOf(fieldOf(json, "message")),
    isLogin: code === "20003" || status === 401,
    retryAfterMs,
  };
}
