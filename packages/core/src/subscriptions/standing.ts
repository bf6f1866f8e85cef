/**
 * What a subscription comes to with the tenant's configuration as it is: the service behind it, what is consumed
 * there, and whether its target can be called. Whatever keeps it from working names service, subscription and
 * setting.
 */
import { createHash } from "node:crypto";
import { findCredential } from "../blind/credential-resolver.ts";
import type { Caller } from "../callers/caller.ts";
import type { CallContext } from "../context.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { brokerKinds, mqConfigSchema, topicOf, type MqConfig, type MqTopic } from "../mq/config.ts";
import type { BrokerKind } from "../ports/message-broker.ts";
import type { ConsumerSource } from "../ports/message-consumer.ts";
import { credentialsIn } from "../services/config-fields.ts";
import { toInvalidConfig } from "../services/invalid-config.ts";
import type { ToolService } from "../services/service.ts";
import type { TenantConfig } from "../tenant-config.ts";
import { Redactor } from "../secrets/redactor.ts";
import { loadScheme, type Adapters } from "../tools/catalog.ts";
import { prepareCall, type Preparation } from "../tools/prepare.ts";
import { formatToolUri } from "../tools/uri.ts";
import type { MessageSubscription, SubscriptionOptions } from "./subscription.ts";

/** The parts that say what is consumed and what is called. */
export type SubscriptionDraft = Pick<
  MessageSubscription,
  "id" | "name" | "serviceId" | "topic" | "target" | "options" | "role"
> &
  // Of one that is there already.
  Partial<Pick<MessageSubscription, "createdAt">>;

/** Options that only some brokers have. */
type BrokerOption = Exclude<
  keyof SubscriptionOptions,
  "format" | "prefetch" | "max_open_calls" | "max_attempts" | "nodes"
>;

const optionsOf: Readonly<Record<BrokerKind, readonly BrokerOption[]>> = {
  rabbitmq: ["queue", "declare_queue", "binding_keys", "dead_letter_exchange"],
  kafka: ["order", "group", "start_from", "dead_letter_topic"],
  redis: [],
  rocketmq: ["group", "start_from"],
};
const brokerOptions = Object.entries(optionsOf).flatMap(([broker, names]) =>
  names.map((name) => [broker as BrokerKind, name] as const),
);

export interface OpenSource {
  readonly service: ToolService;
  readonly config: MqConfig;
  readonly source: ConsumerSource;
  /** Only one node may have it: a broker that stores nothing gives everything to everybody. */
  readonly exclusive: boolean;
  /** Messages of one key become calls one after the other. */
  readonly inOrder: boolean;
}

const configs = new WeakMap<ToolService, MqConfig>();

/** @throws GatewayError `tool_not_found`, `service_disabled`, `invalid_definition` */
export function openSource(config: TenantConfig, subscription: SubscriptionDraft): OpenSource {
  const opened = findSource(config, subscription);
  if (opened.service.enabled) return opened;
  throw new GatewayError(
    "service_disabled",
    `The tool service '${formatToolUri("mq", subscription.serviceId)}' is disabled, so subscription '${subscription.name}' waits; enable it with POST /v1/tool-services/${opened.service.id}/enable.`,
  );
}

/** The same for a service that may be disabled. @throws GatewayError `tool_not_found`, `invalid_definition` */
export function findSource({ services }: TenantConfig, subscription: SubscriptionDraft): OpenSource {
  const { serviceId, topic: topicId, name, options } = subscription;
  const service = services.find((each) => each.scheme === "mq" && each.serviceId === serviceId);
  if (service === undefined) {
    throw new GatewayError(
      "tool_not_found",
      `Subscription '${name}': there is no mq service '${serviceId}'; create it with POST /v1/tool-services.`,
      { param: "uri" },
    );
  }
  const config = configOf(service);
  const topic = topicOf(config, topicId);
  if (topic === undefined) {
    throw new GatewayError(
      "tool_not_found",
      `Subscription '${name}': the mq service '${serviceId}' has no topic '${topicId}' ('config.topics').`,
      { param: "uri" },
    );
  }
  refuseForeignOptions(config.broker, options);
  const isInOrder = config.broker === "kafka" && options.order !== "none";
  return {
    service,
    config,
    source: sourceOf(subscription, config, topic),
    exclusive: !brokerKinds[config.broker].isStored,
    inOrder: isInOrder,
  };
}

function configOf(service: ToolService): MqConfig {
  const known = configs.get(service);
  if (known !== undefined) return known;
  const parsed = mqConfigSchema.safeParse(service.config);
  if (!parsed.success) throw toInvalidConfig(parsed.error);
  configs.set(service, parsed.data);
  return parsed.data;
}

function refuseForeignOptions(broker: BrokerKind, options: SubscriptionOptions): void {
  const own = new Set<string>(optionsOf[broker]);
  const foreign = brokerOptions.find(([, name]) => options[name] !== undefined && !own.has(name));
  if (foreign === undefined) return;
  const [theirs, name] = foreign;
  throw invalidOption(name, `is for ${brokerKinds[theirs].title} only; this service is ${brokerKinds[broker].title}`);
}

function sourceOf(
  { id, topic: topicId, options, createdAt }: SubscriptionDraft,
  config: MqConfig,
  topic: MqTopic,
): ConsumerSource {
  // RocketMQ's names of groups have no dots.
  const ownGroup = config.broker === "rocketmq" ? `toolyard-${id}` : `toolyard.${id}`;
  const { group = ownGroup, start_from: from = "latest", dead_letter_topic: deadLetterTopic } = options;
  const base = {
    name: topic.name ?? topicId,
    group,
    from,
    ...(deadLetterTopic === undefined ? {} : { deadLetterTopic }),
  };
  if (config.broker === "rocketmq") return { ...base, ...sinceOf(options, createdAt) };
  if (config.broker === "kafka" && createdAt !== undefined) return { ...base, since: createdAt };
  return config.broker === "rabbitmq" ? { ...base, ...queueOf(id, base.name, { topic, options }) } : base;
}

/** Where a new group begins is the broker's choice; what it must not begin with can be left out. */
function sinceOf(
  { start_from: from }: SubscriptionOptions,
  createdAt: number | undefined,
): Pick<ConsumerSource, "since"> {
  if (from === "earliest") {
    throw invalidOption(
      "start_from",
      "may be 'latest' only: RocketMQ lets no consumer choose to begin earlier; have its group reset at the broker (mqadmin resetOffsetByTime)",
    );
  }
  return from === undefined || createdAt === undefined ? {} : { since: createdAt };
}

function queueOf(
  id: string,
  own: string,
  { topic, options }: { readonly topic: MqTopic; readonly options: SubscriptionOptions },
): Pick<ConsumerSource, "name" | "declare"> {
  const { queue, declare_queue: isDeclared = false, binding_keys: keys, dead_letter_exchange: deadLetters } = options;
  if (!isDeclared) {
    if (keys !== undefined) throw invalidOption("binding_keys", "needs 'declare_queue: true'");
    if (deadLetters !== undefined) {
      throw invalidOption("dead_letter_exchange", "needs 'declare_queue: true'; a queue that is there has its own");
    }
    if (queue === undefined && topic.exchange !== undefined) {
      throw invalidOption("queue", "is missing: the topic is an exchange; name a queue, or say 'declare_queue: true'");
    }
    return { name: queue ?? own };
  }
  if (keys !== undefined && topic.exchange === undefined)
    throw invalidOption("binding_keys", "has no use: the topic is a queue, not an exchange");
  return {
    name: queue ?? (topic.exchange === undefined ? own : `toolyard.${id}`),
    declare: {
      ...(topic.exchange === undefined ? {} : { exchange: topic.exchange }),
      bindingKeys: keys ?? [topic.routing_key ?? "#"],
      ...(deadLetters === undefined ? {} : { deadLetterExchange: deadLetters }),
    },
  };
}

function invalidOption(name: string, problem: string): GatewayError {
  return new GatewayError("invalid_definition", `'options.${name}' ${problem}.`, { param: `options.${name}` });
}

/** Changes with whatever makes another consumer of it. */
export function fingerprintOf({ version }: MessageSubscription, { service }: OpenSource, context: CallContext): string {
  const credentials = credentialsIn(service.config).map((name) => [
    name,
    findCredential(context, name)?.version ?? null,
  ]);
  const parts = [version, service.id, service.version, credentials];
  return createHash("sha256").update(JSON.stringify(parts), "utf8").digest("base64url").slice(0, 22);
}

/** Who asks for the calls of a subscription: nobody's user, with the role of whoever configured it. */
export function callerOf({ id, role }: Pick<SubscriptionDraft, "id" | "role">): Caller {
  return { kind: "subscription", id, role, scopes: ["tools"], tools: null };
}

export function contextOf(
  { tenant, config }: { readonly tenant: string; readonly config: TenantConfig },
  caller: Caller,
  ids: { readonly requestId: string; readonly traceId: string } = { requestId: "", traceId: "" },
): CallContext {
  return { tenant, caller, config, ...ids, redactor: new Redactor() };
}

/** What would be called with no arguments: for what it says of the target, not of them. */
export async function tryTarget(
  adapters: Adapters,
  context: CallContext,
  { target }: SubscriptionDraft,
): Promise<Preparation> {
  await loadScheme(adapters, target.uri);
  return prepareCall(adapters, context, { target: target.uri, isUri: true, arguments: {} }, { hasReadOutside: false });
}

/** @throws GatewayError whatever keeps its target from being called, whatever the message */
export async function requireTarget(
  adapters: Adapters,
  context: CallContext,
  subscription: SubscriptionDraft,
): Promise<void> {
  const tried = await tryTarget(adapters, context, subscription);
  if (tried.kind !== "refused" || tried.outcome.code === "invalid_arguments") return;
  throw new GatewayError(
    tried.outcome.code,
    `Subscription '${subscription.name}', 'target.uri': ${tried.outcome.message}`,
    { param: "target.uri" },
  );
}
