/** How a subscription stands now: whether it can work at all, and who consumes it. */
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { brokerKinds } from "../mq/config.ts";
import type { TenantConfig } from "../tenant-config.ts";
import { callerOf, contextOf, findSource, openSource, requireTarget } from "./standing.ts";
import type { MessageSubscription, SubscriptionHolder } from "./subscription.ts";

export interface SubscriptionStatus {
  /**
   * `disabled`; `blocked`: as it is configured it cannot work, `reason` says why; `unheld`: no node consumes it;
   * `starting`: one is about to; `failing`: those that hold it do not get on; `consuming`.
   */
  readonly state: "disabled" | "blocked" | "unheld" | "starting" | "failing" | "consuming";
  readonly reason: { readonly code: string; readonly message: string } | null;
  readonly holders: readonly SubscriptionHolder[];
}

export interface Promised {
  readonly delivery: "at_least_once" | "at_most_once";
  readonly note: string | null;
}

const atMostOnce =
  "Redis Pub/Sub stores nothing: what is published while no node consumes, or faster than calls are made, is gone.";

/** What its broker lets it promise; null where there is no such service any more. */
export function promiseOf(config: TenantConfig, subscription: MessageSubscription): Promised | null {
  try {
    const { broker } = findSource(config, subscription).config;
    return brokerKinds[broker].isStored
      ? { delivery: "at_least_once", note: null }
      : { delivery: "at_most_once", note: atMostOnce };
  } catch (error) {
    if (error instanceof GatewayError) return null;
    throw error;
  }
}

export async function statusOf(
  deps: Pick<CoreDeps, "repos" | "adapters">,
  config: TenantConfig,
  subscription: MessageSubscription,
): Promise<SubscriptionStatus> {
  const holders = await deps.repos.subscriptions.holders(config.tenant, subscription.id);
  if (!subscription.enabled) return { state: "disabled", reason: null, holders };
  const blocked = await whyBlocked(deps, config, subscription);
  if (blocked !== undefined) return { state: "blocked", reason: blocked, holders };
  const connected = holders.filter((holder) => holder.connected);
  if (connected.length === 0) return { state: "unheld", reason: unheld(subscription), holders };
  if (connected.some(({ state }) => state === "consuming")) return { state: "consuming", reason: null, holders };
  const failing = connected.find(({ state }) => state === "failing");
  return { state: failing === undefined ? "starting" : "failing", reason: failing?.error ?? null, holders };
}

async function whyBlocked(
  { adapters }: Pick<CoreDeps, "adapters">,
  config: TenantConfig,
  subscription: MessageSubscription,
): Promise<{ readonly code: string; readonly message: string } | undefined> {
  try {
    openSource(config, subscription);
    await requireTarget(adapters, contextOf({ tenant: config.tenant, config }, callerOf(subscription)), subscription);
    return undefined;
  } catch (error) {
    if (error instanceof GatewayError) return { code: error.code, message: error.message };
    throw error;
  }
}

function unheld({ options: { nodes } }: MessageSubscription): { readonly code: string; readonly message: string } {
  const which = nodes === undefined ? "No node" : `None of the nodes ${nodes.map((name) => `'${name}'`).join(", ")}`;
  return {
    code: "tool_unreachable",
    message: `${which} that holds subscriptions is connected; start one with a key that has the scopes 'node' and 'consume', and "subscriptions": true in its node.json.`,
  };
}
