/**
 * Sends the messages of a call, as many requests as the vendor needs, and says for each recipient what became
 * of it. No vendor has a key by which a repeated message is one: what may have been sent is never sent again.
 */
import { GatewayError, toGatewayError } from "../errors/gateway-error.ts";
import type { JsonObject } from "../json.ts";
import { deliveryOf, withDelivery } from "../errors/delivery.ts";
import type { NumberReply } from "./vendor.ts";

export interface NumberResult extends Omit<NumberReply, "status"> {
  readonly status: NumberReply["status"] | "not_sent";
}

export interface SmsResults {
  readonly results: readonly NumberResult[];
  /** What ended the work before its end. */
  readonly broken: Error | undefined;
}

/** Never throws for what concerns single requests. */
export async function sendAll(
  batches: readonly (readonly string[])[],
  send: (numbers: readonly string[]) => Promise<readonly NumberReply[]>,
): Promise<SmsResults> {
  const results: NumberResult[] = [];
  let broken: Error | undefined;
  let isPutOff = false;
  for (const numbers of batches) {
    if (broken !== undefined || isPutOff) {
      results.push(...numbers.map((number): NumberResult => ({ number, status: isPutOff ? "deferred" : "not_sent" })));
      continue;
    }
    try {
      const replies = await send(numbers);
      results.push(...replies);
      isPutOff = replies.length > 0 && replies.every(({ status }) => status === "deferred");
    } catch (thrown) {
      broken = thrown instanceof Error ? thrown : new Error("the request failed");
      const status = deliveryOf(thrown) === "not_sent" ? "not_sent" : "unknown";
      const message = toGatewayError(thrown).message;
      results.push(...numbers.map((number): NumberResult => ({ number, status, message })));
    }
  }
  return { results, broken };
}

export interface VendorNames {
  readonly vendor: string;
  readonly title: string;
  /** Name of the credential that proves who is calling. */
  readonly credential: string;
}

/** @throws GatewayError where nobody has it: with the fate of the call known to `deliveryOf` */
export function requireSomeAccepted({ results, broken }: SmsResults, names: VendorNames): void {
  const find = (status: NumberResult["status"]): NumberResult | undefined =>
    results.find((each) => each.status === status);
  if (find("accepted") !== undefined) return;
  const unknown = find("unknown");
  if (unknown !== undefined) {
    const reason =
      broken === undefined ? `${names.title} does not know itself (${reasonOf(unknown)}).` : broken.message;
    throw withDelivery(new GatewayError("tool_unreachable", reason), "uncertain");
  }
  const refusal = find("rejected");
  if (refusal !== undefined) throw toRefusal(refusal, results, names);
  const deferred = find("deferred");
  if (deferred === undefined) throw broken ?? new GatewayError("internal_error", "There was nobody to send to.");
  const { retryAfterMs } = deferred;
  throw withDelivery(
    new GatewayError("tool_deferred", `${names.title} takes no more messages at the moment (${reasonOf(deferred)}).`, {
      extra: detailsOf(deferred, results, names),
      ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
    }),
    "not_sent",
  );
}

/** The vendor's no, as our error. */
export function toRefusal(
  refusal: NumberReply | NumberResult,
  results: readonly NumberResult[],
  names: VendorNames,
): GatewayError {
  const extra = detailsOf(refusal, results, names);
  if (refusal.isLogin === true) {
    return withDelivery(
      new GatewayError(
        "credential_invalid",
        `${names.title} does not take this account (${reasonOf(refusal)}); check 'account' and the credential '${names.credential}'.`,
        { param: names.credential, extra },
      ),
      "answered",
    );
  }
  return withDelivery(
    new GatewayError("tool_failed", `${names.title} refused the request: ${reasonOf(refusal)}.`, { extra }),
    "answered",
  );
}

function detailsOf(
  { code, message }: Pick<NumberReply, "code" | "message">,
  results: readonly NumberResult[],
  { vendor }: VendorNames,
): JsonObject {
  return {
    vendor,
    ...(code === undefined ? {} : { vendor_code: code }),
    ...(message === undefined ? {} : { vendor_message: oneLine(message) }),
    ...(results.length === 0 ? {} : { recipients: results.map(viewNumber) }),
  };
}

function reasonOf({ code, message }: Pick<NumberReply, "code" | "message">): string {
  return (
    [code, message === undefined ? undefined : oneLine(message)].filter((part) => part !== undefined).join(": ") ||
    "no reason given"
  );
}

function oneLine(text: string): string {
  return text
    .replaceAll(/[\p{Cc}\s]+/gu, " ")
    .trim()
    .slice(0, 300);
}

export function viewResults({ results }: SmsResults): JsonObject {
  return {
    status: results.every(({ status }) => status === "accepted") ? "sent" : "partial",
    message_id: results.find(({ status }) => status === "accepted")?.messageId ?? null,
    recipients: results.map(viewNumber),
  };
}

function viewNumber({ number, status, messageId, code, message }: NumberResult): JsonObject {
  return {
    to: number,
    status,
    ...(messageId === undefined ? {} : { message_id: messageId }),
    ...(code === undefined ? {} : { code }),
    ...(message === undefined ? {} : { reason: oneLine(message) }),
  };
}
