/**
 * What a vendor says of messages later goes into the outcome of their call. Receipts come twice, late and out of
 * order: what is final stays, and what is said again changes nothing. A call whose fate was not known has been
 * carried out if there is a receipt for it.
 */
import type { Call } from "../calls/call.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { isJsonObject, parseJson, type JsonObject, type JsonValue } from "../json.ts";
import { formatToolUri } from "../tools/uri.ts";
import { smsConfigSchema, vendorOf } from "./config.ts";
import { openReceiptToken } from "./receipt-link.ts";
import type { ReceiptBody, SmsReceipt } from "./vendor.ts";

type ReceiptDeps = Pick<CoreDeps, "repos" | "sealer" | "log">;

export interface TakenReceipts {
  readonly tenant: string;
  /** What the vendor wants to hear. */
  readonly answer: string;
}

/** Vendors give up after a few hours, three days at the most. */
const searchedMs = [600_000, 3_600_000, 259_200_000] as const;
/** Receipts for one call may come at once. */
const mostTries = 5;

/**
 * @throws GatewayError `not_found` for an address that is none and where no message is known,
 * `call_not_finished` where a call is still under way and the vendor is to come again
 */
export async function takeReceipts(deps: ReceiptDeps, token: string, body: ReceiptBody): Promise<TakenReceipts> {
  const place = await openReceiptToken({ sealer: deps.sealer, tenants: deps.repos.tenants }, token);
  const service = place === undefined ? undefined : await deps.repos.services.get(place.tenant, place.service);
  const parsed = service === undefined ? undefined : smsConfigSchema.safeParse(service.config);
  if (place === undefined || service?.scheme !== "sms" || parsed?.success !== true) throw nothingHere();
  const vendor = vendorOf(parsed.data);
  const receipts = vendor.receipts(body);
  if (receipts === undefined) {
    throw new GatewayError("invalid_request", `This is no receipt as ${vendor.title} sends them.`);
  }
  const { tenant } = place;
  const prefix = `${formatToolUri("sms", service.serviceId)}/`;
  const states: ReceiptState[] = [];
  for (const receipt of receipts) states.push(await take(deps, { tenant, prefix, receipt }));
  if (states.includes("early")) {
    throw new GatewayError("call_not_finished", "The call of this message is still under way; send the receipt again.");
  }
  if (receipts.length > 0 && states.every((state) => state === "unknown")) throw nothingHere();
  return { tenant, answer: vendor.receiptAnswer };
}

function nothingHere(): GatewayError {
  return new GatewayError("not_found", "There is no such message here.");
}

type ReceiptState = "taken" | "early" | "unknown";

interface Located {
  readonly tenant: string;
  /** Of the service's tools. */
  readonly prefix: string;
  readonly receipt: SmsReceipt;
}

async function take(deps: ReceiptDeps, located: Located): Promise<ReceiptState> {
  const { calls } = deps.repos;
  const { tenant, receipt } = located;
  for (let attempt = 1; attempt <= mostTries; attempt += 1) {
    const call = await findCall(deps, located);
    if (call === undefined) return "unknown";
    if (call.state === "running" || call.state === "queued") return "early";
    if (call.state === "unknown") {
      const text = JSON.stringify(
        withReceipt({ status: "sent", message_id: receipt.messageId ?? null, recipients: [] }, receipt, true),
      );
      const outcome = { text, mediaType: "application/json", bytes: Buffer.byteLength(text) };
      if (await calls.resolveUnknown(tenant, call.id, { state: "completed", outcome })) return "taken";
      continue;
    }
    if (call.state !== "completed" || call.outcome === null || call.outcome.blobKey !== undefined) return "taken";
    const before = call.outcome.text;
    const view = parseJson(before);
    if (!isJsonObject(view)) return "taken";
    const after = JSON.stringify(withReceipt(view, receipt, false));
    if (after === before || (await calls.amendOutcome(tenant, call.id, { before, after }))) return "taken";
  }
  return "early";
}

/** By the id that the vendor gave back, or by the vendor's own. */
async function findCall({ repos }: ReceiptDeps, { tenant, prefix, receipt }: Located): Promise<Call | undefined> {
  const { callId, messageId } = receipt;
  if (callId !== undefined && /^call_[0-9a-z]{26}$/.test(callId)) {
    const call = await repos.calls.get(tenant, callId);
    return call?.uri.startsWith(prefix) === true ? call : undefined;
  }
  if (messageId === undefined || messageId.length > 128) return undefined;
  const text = `"message_id":${JSON.stringify(messageId)}`;
  for (const withinMs of searchedMs) {
    const call = await repos.calls.findByOutcome(tenant, { uriPrefix: prefix, text, withinMs });
    if (call !== undefined) return call;
  }
  return undefined;
}

/** @param adds a recipient of whom the outcome does not speak yet */
function withReceipt(view: JsonObject, receipt: SmsReceipt, adds: boolean): JsonObject {
  const { recipients } = view;
  const list = Array.isArray(recipients) ? recipients : [];
  const index = list.findIndex((recipient) => isMeant(recipient, receipt));
  if (index >= 0)
    return { ...view, recipients: list.map((each, at) => (at === index ? advanced(each, receipt) : each)) };
  const { number, messageId } = receipt;
  if (number === undefined || !(adds || view["from_receipts"] === true)) return view;
  const recipient: JsonObject = {
    to: number,
    status: "accepted",
    ...(messageId === undefined ? {} : { message_id: messageId }),
  };
  return { ...view, from_receipts: true, recipients: [...list, advanced(recipient, receipt)] };
}

function isMeant(recipient: JsonValue, { number, messageId }: SmsReceipt): boolean {
  if (!isJsonObject(recipient)) return false;
  const isMessage = messageId !== undefined && recipient["message_id"] === messageId;
  // Vendors hide digits of numbers at times; the message's own id is enough then.
  return isMessage || (messageId === undefined && recipient["to"] === number);
}

function advanced(recipient: JsonValue, { status, code }: SmsReceipt): JsonValue {
  if (!isJsonObject(recipient)) return recipient;
  const known = recipient["delivery"];
  const isFinal = known === "delivered" || known === "failed";
  if (isFinal || known === status) return recipient;
  return { ...recipient, delivery: status, ...(code === undefined ? {} : { delivery_code: code.slice(0, 64) }) };
}
