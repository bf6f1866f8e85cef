/** Webhooks: who is told of a tenant's calls, and the log of what was told (Standard Webhooks). */
import * as z from "zod";

export const webhookEventSchema = z.enum([
  "call.completed",
  "call.failed",
  "call.unknown",
  "call.rejected",
  "call.cancelled",
  "call.approval_required",
]);
export type WebhookEvent = z.infer<typeof webhookEventSchema>;

export const deliveryStates = ["pending", "delivered", "failed"] as const;
type DeliveryState = (typeof deliveryStates)[number];

export interface Webhook {
  readonly id: string;
  readonly name: string;
  readonly url: string;
  readonly events: readonly WebhookEvent[];
  readonly enabled: boolean;
  /** Why it was disabled for its tenant. */
  readonly disabledReason: string | null;
  readonly sealed: string;
  readonly previousSealed: string | null;
  readonly previousUntil: number | null;
  readonly createdAt: number;
  readonly updatedAt: number;
}
export type NewWebhook = Pick<Webhook, "id" | "name" | "url" | "events" | "enabled" | "sealed">;
export type WebhookChange = Partial<Pick<Webhook, "name" | "url" | "events" | "enabled">>;

export interface WebhookDelivery {
  readonly id: string;
  readonly tenant: string;
  readonly webhookId: string;
  readonly type: string;
  /** Null: a test. */
  readonly callId: string | null;
  readonly body: string;
  readonly state: DeliveryState;
  readonly attempt: number;
  readonly tries: number;
  readonly nextAt: number | null;
  readonly lastStatus: number | null;
  readonly lastError: string | null;
  readonly attemptedAt: number | null;
  readonly createdAt: number;
}

/** A delivery with all that sending it takes. */
export interface ClaimedDelivery {
  readonly delivery: WebhookDelivery;
  readonly url: string;
  /** The newest secret first; during a rotation two. */
  readonly sealed: readonly string[];
  readonly wrappedKey: string;
}

export interface DeliveryResult {
  readonly status: number | null;
  readonly error: string | null;
  /** `gone`: the webhook is disabled as well. `uncounted`: nothing could be tried, and no try has been used. */
  readonly next: { readonly delayMs: number; readonly uncounted?: true } | "delivered" | "failed" | "gone";
}
