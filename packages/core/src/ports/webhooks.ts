/**
 * Persistence of receivers of call events and of what they were sent. Rules as in repos.ts: the tenant comes first,
 * one function is one database round trip. Contract: test/contract/webhooks-repo.ts.
 */
import type {
  ClaimedDelivery,
  DeliveryResult,
  NewWebhook,
  Webhook,
  WebhookChange,
  WebhookDelivery,
} from "../webhooks/webhook.ts";
import type { Page, PageRequest } from "./page.ts";

export interface DeliveryClaim {
  readonly limit: number;
  readonly leaseMs: number;
  /** The most that a claimant has of one webhook, and of one tenant; each tenant's first before anybody's later ones. */
  readonly shares: { readonly webhook: number; readonly tenant: number };
  /** What the claimant has in hand already, which counts. */
  readonly underWay: readonly Pick<WebhookDelivery, "tenant" | "webhookId">[];
}

export interface WebhookRepo {
  /** @throws GatewayError `conflict` where the tenant has as many as it may. Raises the config version. */
  create(tenant: string, webhook: NewWebhook): Promise<Webhook>;
  get(tenant: string, id: string): Promise<Webhook | undefined>;
  list(tenant: string, page: PageRequest): Promise<Page<Webhook>>;
  /** Disabled: what is pending waits. Enabled again: it is sent. Raises the config version. */
  update(tenant: string, id: string, change: WebhookChange): Promise<Webhook | undefined>;
  /** With its deliveries. Raises the config version. */
  delete(tenant: string, id: string): Promise<boolean>;
  /** The secret until now signs as well for `overlapMs`. Raises the config version. */
  rotate(
    tenant: string,
    id: string,
    secret: { readonly sealed: string; readonly overlapMs: number },
  ): Promise<Webhook | undefined>;
  /** An event that says nothing but that it arrives. `undefined`: no such webhook. */
  addTest(tenant: string, id: string): Promise<WebhookDelivery | undefined>;
  /** All of them, or those of one state. `undefined`: no such webhook. */
  deliveries(
    tenant: string,
    id: string,
    page: PageRequest,
    state?: WebhookDelivery["state"],
  ): Promise<Page<WebhookDelivery> | undefined>;
  /** Due now, with all tries before it; its id stays. */
  resend(tenant: string, id: string, delivery: string): Promise<WebhookDelivery | undefined>;
  /** Deliveries that are due, each given to one claimant for its lease. */
  claim(options: DeliveryClaim): Promise<readonly ClaimedDelivery[]>;
  /** What came of an attempt; nothing where a later one has begun. */
  settle(tenant: string, id: string, attempt: number, result: DeliveryResult): Promise<void>;
}
