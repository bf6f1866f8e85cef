/**
 * Sends what webhooks have to be told (Standard Webhooks: headers, retries over days, 410, Retry-After).
 * Events are rows since the moment the call changed (migration `webhook_events`), so what a process that
 * dies leaves behind is found here, by whichever instance comes next: at least once, with one `webhook-id`.
 */
import type { CoreDeps } from "../core-deps.ts";
import { toGatewayError } from "../errors/gateway-error.ts";
import { isOutage } from "../errors/outage.ts";
import type { Span } from "../ports/traces.ts";
import { openWebhookSecret, signMessage } from "./secret.ts";
import type { ClaimedDelivery, DeliveryResult, WebhookDelivery } from "./webhook.ts";

const timeoutMs = 15_000;
/** An attempt with the keys before it and the record after it. */
const attemptMs = timeoutMs + 5_000;
/** Longer than an attempt can take. */
const leaseMs = 60_000;
/** Deliveries at once in one process. */
const mostUnderWay = 50;
/** Of those: a receiver that hangs holds its share and no more, however many of them a tenant has. */
const shares = { webhook: 10, tenant: 25 } as const;
/** While some are under way: what has become due meanwhile waits for none of them. */
const lookAgainMs = 2_000;
/** Those that end soon after each other are made up for by one claim. */
const gatherMs = 100;

const second = 1_000;
const minute = 60 * second;
const hour = 60 * minute;
/** Waits between the attempts; after the last one the delivery has failed. */
const waits = [5 * second, 5 * minute, 30 * minute, 2 * hour, 5 * hour, 10 * hour, 14 * hour, 20 * hour, 24 * hour];
const longestWaitMs = 24 * hour;

type DeliverDeps = Pick<CoreDeps, "repos" | "sealer" | "egress" | "clock" | "log" | "traces">;

/**
 * Until nothing is due and nothing under way. Nothing waits for the slowest: as some end, others are claimed. What is
 * claimed and then cut off has used up a try, so nothing is claimed that could not be sent to its end.
 * @param remainingMs until the caller has to end; absent: it need not
 * @returns how many attempts were made
 */
export async function deliverWebhooks(deps: DeliverDeps, remainingMs = (): number => Infinity): Promise<number> {
  const pool = new Pool(deps);
  let attempts = 0;
  try {
    while (remainingMs() >= attemptMs) {
      const limit = mostUnderWay - pool.underWay.length;
      if (limit > 0) {
        const { underWay } = pool;
        const claimed = await deps.repos.webhooks.claim({ limit, leaseMs, shares, underWay });
        for (const each of claimed) pool.send(each);
        attempts += claimed.length;
      }
      if (pool.underWay.length === 0) break;
      await pool.someEnded();
    }
  } finally {
    await pool.allEnded();
  }
  return attempts;
}

/** What is being sent. */
class Pool {
  readonly #deps: DeliverDeps;
  readonly #running = new Map<WebhookDelivery, Promise<void>>();
  #ended = Promise.withResolvers<void>();

  constructor(deps: DeliverDeps) {
    this.#deps = deps;
  }

  get underWay(): readonly WebhookDelivery[] {
    return [...this.#running.keys()];
  }

  send(claimed: ClaimedDelivery): void {
    const { delivery } = claimed;
    const { tenant, id } = delivery;
    const running = deliver(this.#deps, claimed)
      .catch((thrown: unknown) => {
        // Its lease runs out, and it is sent again.
        const { code } = toGatewayError(thrown);
        this.#deps.log.log("warn", "what came of a webhook delivery could not be kept", {
          tenant,
          message_id: id,
          code,
        });
      })
      .finally(() => {
        this.#running.delete(delivery);
        this.#ended.resolve();
      });
    this.#running.set(delivery, running);
  }

  /** Resolves as some have ended, or after a while. */
  async someEnded(): Promise<void> {
    const { clock } = this.#deps;
    const waiting = new AbortController();
    const whileNone = clock.sleep(lookAgainMs, waiting.signal).catch(() => undefined);
    const ended = await Promise.race([this.#ended.promise.then(() => true), whileNone]);
    waiting.abort();
    if (ended === true) await clock.sleep(gatherMs);
    this.#ended = Promise.withResolvers();
  }

  async allEnded(): Promise<void> {
    await Promise.all(this.#running.values());
  }
}

async function deliver(deps: DeliverDeps, claimed: ClaimedDelivery): Promise<void> {
  const { delivery } = claimed;
  const span = deps.traces?.begin("deliver webhook", {
    kind: "internal",
    attributes: {
      "toolyard.tenant": delivery.tenant,
      "toolyard.webhook.id": delivery.webhookId,
      "toolyard.webhook.event": delivery.type,
      "toolyard.webhook.delivery": delivery.id,
      "toolyard.webhook.try": delivery.tries,
      "toolyard.call.id": delivery.callId ?? undefined,
    },
  });
  const result = await attempt(deps, claimed, span);
  if (result.next !== "delivered") span?.fail(result.status === null ? "not_delivered" : String(result.status));
  span?.end();
  await deps.repos.webhooks.settle(delivery.tenant, delivery.id, delivery.attempt, result);
}

async function attempt(
  deps: DeliverDeps,
  { delivery, url, sealed, wrappedKey }: ClaimedDelivery,
  span: Span | undefined,
): Promise<DeliveryResult> {
  const { id, tenant, webhookId, body, tries } = delivery;
  try {
    const owner = { tenant, wrappedKey, webhookId };
    const secrets = await Promise.all(sealed.map((each) => openWebhookSecret(deps.sealer, owner, each)));
    const timestamp = Math.floor(deps.clock.now() / 1_000);
    const response = await deps.egress.request({
      method: "POST",
      url,
      headers: [
        ["content-type", "application/json"],
        ["user-agent", "toolyard-webhooks"],
        ["webhook-id", id],
        ["webhook-timestamp", String(timestamp)],
        ["webhook-signature", signMessage({ id, timestamp, body }, secrets)],
      ],
      body,
      timeoutMs,
      span,
    });
    const { status, headers } = response;
    // Nothing of the answer's body matters; leaving the loop closes the connection.
    for await (const _part of response.body) break;
    if (status >= 200 && status < 300) return { status, error: null, next: "delivered" };
    if (status === 410) return { status, error: "The receiver answered 410 (gone).", next: "gone" };
    const asked = readRetryAfter(headers["retry-after"], deps.clock.now());
    return { status, error: `The receiver answered ${status}.`, next: nextTry(tries, asked) };
  } catch (thrown) {
    const error = toGatewayError(thrown);
    const next = isOutage(error) ? ({ delayMs: minute, uncounted: true } as const) : nextTry(tries, 0);
    return { status: null, error: `${error.code}: ${error.message}`, next };
  }
}

/** @param tries made so far, this one included */
export function nextTry(tries: number, askedMs: number): DeliveryResult["next"] {
  const wait = waits[tries - 1];
  if (wait === undefined) return "failed";
  // Spread, so that those who failed together do not come back together.
  const spread = wait * (1 + Math.random() * 0.2);
  return { delayMs: Math.round(Math.max(spread, Math.min(askedMs, longestWaitMs))) };
}

/** Seconds or an HTTP date, as milliseconds from now; 0 where it says neither. */
export function readRetryAfter(value: string | readonly string[] | undefined, now: number): number {
  if (typeof value !== "string") return 0;
  if (/^\d{1,9}$/.test(value)) return Number(value) * 1_000;
  const date = Date.parse(value);
  return Number.isNaN(date) ? 0 : Math.max(0, date - now);
}
