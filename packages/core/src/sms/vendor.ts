/**
 * What an SMS vendor is: an account's fields, how a message is sent, and what its answers mean. One file a
 * vendor, one line in `vendors.ts`. Pure: requests are made here and sent by the scheme.
 */
import type * as z from "zod";
import type { JsonValue } from "../json.ts";
import type { SecretReference } from "../services/config-fields.ts";

export interface OutgoingSms {
  /** E.164; as many as one request may have. */
  readonly numbers: readonly string[];
  readonly content: { readonly text: string } | { readonly template: string; readonly params: TemplateParams };
  readonly signName: string | undefined;
  /** Comes back with receipts, where the vendor gives it back. */
  readonly callId: string;
  /** Where receipts are to go, for vendors that are told with each message. */
  readonly receiptUrl: string | undefined;
}

export interface TemplateParams {
  readonly named: Readonly<Record<string, string>>;
  /** In the order in which the template has them. */
  readonly listed: readonly string[];
}

export interface VendorRequest {
  readonly method: "GET" | "POST";
  readonly url: string;
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly body?: string;
}

export interface VendorReply {
  readonly status: number;
  /** Undefined where it is no JSON. */
  readonly json: JsonValue | undefined;
  readonly retryAfterMs: number | undefined;
}

/**
 * `deferred`: too much at once, and not taken. `unknown`: it may have been sent, the vendor itself does not know.
 */
export type SmsStatus = "accepted" | "rejected" | "deferred" | "unknown";

export interface NumberReply {
  readonly number: string;
  readonly status: SmsStatus;
  readonly messageId?: string | undefined;
  /** The vendor's. */
  readonly code?: string | undefined;
  readonly message?: string | undefined;
  /** It is the account that is refused. */
  readonly isLogin?: boolean;
  readonly retryAfterMs?: number | undefined;
}

/** What was found out about a message after it was accepted. */
export interface SmsReceipt {
  readonly messageId: string | undefined;
  readonly callId: string | undefined;
  /** E.164, where the vendor says it whole. */
  readonly number: string | undefined;
  readonly status: "sent" | "delivered" | "failed";
  readonly code: string | undefined;
}

export interface ReceiptBody {
  readonly json: JsonValue | undefined;
  readonly form: URLSearchParams;
  /** Of the address. */
  readonly query: URLSearchParams;
}

/** What requests are signed with. */
export interface SigningContext {
  readonly now: Date;
  readonly nonce: string;
  /** The value behind a secret of the account. */
  readonly reveal: (secret: SecretReference) => string;
}

export interface VendorSpec<Account extends z.ZodType> {
  readonly title: string;
  /** Strict; secrets by `secretField`. */
  readonly account: Account;
  /** Numbers of one request. */
  readonly batch: number;
  /** Takes texts without a template. */
  readonly takesText: boolean;
  /** Templates have parameters with names; else they are a list. */
  readonly namesParams: boolean;
  /** Country code of numbers without one, where the configuration says nothing. */
  readonly countryCode: string | undefined;
  /** Base of its addresses. */
  endpoint(account: z.output<Account>): string;
  /** Of a secret that proves who is calling, for errors. */
  secret(account: z.output<Account>): SecretReference;
  send(account: z.output<Account>, message: OutgoingSms, context: SigningContext): VendorRequest;
  /** One for each number of the message, in that order. */
  read(reply: VendorReply, numbers: readonly string[]): readonly NumberReply[];
  /** A request that sends nothing and shows whether the account is taken. */
  probe(account: z.output<Account>, context: SigningContext): VendorRequest;
  /** Why a probe's answer means that the account is not taken. */
  readProbe(reply: VendorReply): NumberReply | undefined;
  /** Undefined where the body is none of its receipts. */
  receipts(body: ReceiptBody): readonly SmsReceipt[] | undefined;
  /** What it wants to hear in return. */
  readonly receiptAnswer: string;
}

export interface SmsVendor extends VendorSpec<z.ZodType> {}

export function defineVendor<Account extends z.ZodType<object>>(spec: VendorSpec<Account>): SmsVendor {
  // Whoever uses an account has parsed it with this very schema, so the types agree.
  return spec;
}

// Reading answers

export function fieldOf(value: JsonValue | undefined, name: string): JsonValue | undefined {
  return typeof value === "object" && value !== null && !Array.isArray(value) && Object.hasOwn(value, name)
    ? value[name]
    : undefined;
}

export function textOf(value: JsonValue | undefined): string | undefined {
  if (typeof value === "number") return String(value);
  return typeof value === "string" && value !== "" ? value : undefined;
}

export function listOf(value: JsonValue | undefined): readonly JsonValue[] | undefined {
  return Array.isArray(value) ? value : undefined;
}

type Verdict = Omit<NumberReply, "number">;

export function forAll(numbers: readonly string[], verdict: Verdict): readonly NumberReply[] {
  return numbers.map((number) => ({ number, ...verdict }));
}

/** A no in the vendor's own words. Where its machines have failed, the message may have gone before they did. */
export function refusedAs({ status }: VendorReply, isPutOff: boolean): SmsStatus {
  if (isPutOff) return "deferred";
  return status >= 500 ? "unknown" : "rejected";
}

/** An answer that is not the vendor's own form: below 500 it is a no, beyond nobody knows. */
export function notUnderstood({ status, retryAfterMs }: VendorReply): Verdict {
  const code = `http_${status}`;
  if (status === 429) return { status: "deferred", code, message: "too many requests", retryAfterMs };
  if (status >= 400 && status < 500) return { status: "rejected", code, message: `it answered with status ${status}` };
  return { status: "unknown", code, message: `it answered with status ${status} and nothing that it usually says` };
}
