/**
 * Sends the mails of a call through one session and says for each recipient what became of it (MAIL-5).
 * What the server took is never sent again, and what it may have taken is called unknown.
 */
import { GatewayError, toGatewayError } from "../errors/gateway-error.ts";
import type { JsonObject } from "../json.ts";
import type { MailMessage, MailSession } from "../ports/mail-transport.ts";
import { deliveryOf, withDelivery } from "../errors/delivery.ts";

export interface RecipientResult {
  readonly address: string;
  readonly messageId: string;
  /** `unknown`: the connection ended while the server had the mail, or a part of it. */
  readonly status: "accepted" | "rejected" | "deferred" | "unknown" | "not_sent";
  readonly code?: number | undefined;
  readonly reason?: string | undefined;
}

/** Never throws for what concerns single mails; the first failure of the session ends the work. */
export async function deliverAll(
  session: MailSession,
  messages: readonly MailMessage[],
): Promise<readonly RecipientResult[]> {
  const results: RecipientResult[] = [];
  let broken: GatewayError | undefined;
  for (const message of messages) {
    const { messageId, envelope } = message;
    if (broken !== undefined) {
      results.push(...envelope.to.map((address) => failed(address, messageId, "not_sent", broken)));
      continue;
    }
    try {
      for (const { address, status, code, reason } of await session.send(message))
        results.push({ address, messageId, status, code, reason });
    } catch (thrown) {
      // A signing key that is none fails all mails alike, before the first.
      if (thrown instanceof GatewayError && thrown.code === "credential_invalid") throw thrown;
      broken = toGatewayError(thrown);
      const status = deliveryOf(thrown) === "not_sent" ? "not_sent" : "unknown";
      const end = broken;
      results.push(...envelope.to.map((address) => failed(address, messageId, status, end)));
    }
  }
  return results;
}

function failed(
  address: string,
  messageId: string,
  status: "not_sent" | "unknown",
  error: GatewayError | undefined,
): RecipientResult {
  return { address, messageId, status, reason: error?.message };
}

/** @throws GatewayError where nobody has it: with the fate of the call known to `deliveryOf` */
export function requireSomeAccepted(results: readonly RecipientResult[]): void {
  const has = (...statuses: readonly RecipientResult["status"][]): boolean =>
    results.some(({ status }) => statuses.includes(status));
  if (has("accepted")) return;
  const [first] = results;
  const extra: JsonObject = { recipients: results.map(viewRecipient) };
  if (has("unknown")) {
    const reason = results.find(({ status }) => status === "unknown")?.reason ?? "";
    throw withDelivery(new GatewayError("tool_unreachable", reason, { extra }), "uncertain");
  }
  if (has("rejected")) {
    const refusal = results.find(({ status }) => status === "rejected");
    throw withDelivery(
      new GatewayError(
        "tool_failed",
        `The mail server refused the mail${results.length === 1 ? "" : " for all recipients"}: ${refusal?.reason ?? ""}.`,
        { extra: { ...extra, ...(refusal?.code === undefined ? {} : { smtp_code: refusal.code }) } },
      ),
      "answered",
    );
  }
  if (has("deferred")) {
    throw withDelivery(
      new GatewayError("tool_deferred", `The mail server takes the mail later, not now: ${first?.reason ?? ""}.`, {
        extra: { ...extra, ...(first?.code === undefined ? {} : { smtp_code: first.code }) },
      }),
      "not_sent",
    );
  }
  throw withDelivery(new GatewayError("tool_unreachable", first?.reason ?? "", { extra }), "not_sent");
}

export function viewResults(results: readonly RecipientResult[]): JsonObject {
  const isWhole = results.every(({ status }) => status === "accepted");
  return {
    status: isWhole ? "sent" : "partial",
    message_id: results.find(({ status }) => status === "accepted")?.messageId ?? null,
    recipients: results.map(viewRecipient),
  };
}

function viewRecipient({ address, messageId, status, code, reason }: RecipientResult): JsonObject {
  return {
    to: address,
    status,
    message_id: messageId,
    ...(code === undefined ? {} : { code }),
    ...(reason === undefined || status === "accepted" ? {} : { reason }),
  };
}
