/** Which subscriptions a node is to hold, and what it needs for that: the broker's account and what is consumed. */
import { createCredentialResolver } from "../blind/credential-resolver.ts";
import { matchesPattern } from "../callers/caller.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { accountOf } from "../mq/account.ts";
import type { BrokerAccount } from "../ports/message-broker.ts";
import type { ConsumerSource } from "../ports/message-consumer.ts";
import type { Connection } from "../realtime/connection.ts";
import type { TenantConfig } from "../tenant-config.ts";
import { callerOf, contextOf, fingerprintOf, openSource, requireTarget } from "./standing.ts";
import type { HolderReport, MessageSubscription } from "./subscription.ts";

export interface Assigned {
  readonly id: string;
  readonly name: string;
  readonly fingerprint: string;
}

export interface HoldRequest {
  readonly node: string;
  readonly instance: string;
  readonly reports: readonly HolderReport[];
}

/** What is switched off, or cannot work as it is configured, is consumed by nobody: messages wait at the broker. */
export async function assignSubscriptions(
  deps: CoreDeps,
  { tenant, id: connectionId }: Pick<Connection, "tenant" | "id">,
  { node, instance, reports }: HoldRequest,
): Promise<readonly Assigned[]> {
  const all = await deps.repos.subscriptions.all(tenant);
  if (all === undefined) return [];
  const config = await deps.configs.get(tenant, all.configVersion);
  const meant = all.subscriptions.filter(
    ({ enabled, options }) => enabled && (options.nodes?.some((pattern) => matchesPattern(pattern, node)) ?? true),
  );
  const assigned = await Promise.all(meant.map((subscription) => assign(deps, config, subscription)));
  const possible = assigned.filter((one) => one !== undefined);
  const held = await deps.repos.subscriptions.hold(tenant, {
    instance,
    node,
    connectionId,
    leaseMs: deps.timing.leaseMs,
    wanted: possible.map(({ id, exclusive }) => ({ id, exclusive })),
    reports,
  });
  return possible.filter(({ id }) => held.includes(id)).map(({ id, name, fingerprint }) => ({ id, name, fingerprint }));
}

async function assign(
  { adapters }: CoreDeps,
  config: TenantConfig,
  subscription: MessageSubscription,
): Promise<(Assigned & { readonly exclusive: boolean }) | undefined> {
  const { id, name } = subscription;
  const context = contextOf({ tenant: config.tenant, config }, callerOf(subscription));
  try {
    const opened = openSource(config, subscription);
    await requireTarget(adapters, context, subscription);
    return { id, name, fingerprint: fingerprintOf(subscription, opened, context), exclusive: opened.exclusive };
  } catch (error) {
    // GET /v1/subscriptions/{id} says why.
    if (error instanceof GatewayError) return undefined;
    throw error;
  }
}

export interface OpenSubscription {
  readonly fingerprint: string;
  readonly account: BrokerAccount;
  readonly source: ConsumerSource;
  readonly prefetch: number;
  readonly maxMessageBytes: number;
  /** Messages of one key become calls one after the other. */
  readonly inOrder: boolean;
}

/**
 * For a node that holds it: with the broker's secrets.
 * @throws GatewayError `not_found` for one that it does not hold; whatever is wrong with its configuration
 */
export async function openSubscription(
  deps: CoreDeps,
  tenant: string,
  { id, instance }: { readonly id: string; readonly instance: string },
): Promise<OpenSubscription> {
  const begun = await deps.repos.subscriptions.begin(tenant, { subscription: id, instance, key: "", lane: null });
  if (begun === undefined || !begun.isHolder) {
    throw new GatewayError("not_found", `This node does not hold a subscription '${id}'.`, { param: "subscription" });
  }
  const { subscription, configVersion } = begun;
  const config = await deps.configs.get(tenant, configVersion);
  const opened = openSource(config, subscription);
  const context = contextOf({ tenant, config }, callerOf(subscription));
  return {
    fingerprint: fingerprintOf(subscription, opened, context),
    account: await accountOf(opened.config, context, createCredentialResolver(deps)),
    source: opened.source,
    prefetch: subscription.options.prefetch,
    maxMessageBytes: opened.config.max_message_bytes,
    inOrder: opened.inOrder,
  };
}
