/**
 * `mq://service/topic`: messages to brokers (tool management specification, "消息队列"; MQ-1, MQ-2, MQ-4). A
 * service is a broker; a tool is a topic of it. A message has the id of its call. Delays are the broker's where
 * it holds messages back, else a call of our own that is due then.
 */
import { postpone } from "../../calls/postpone.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import type { JsonObject } from "../../json.ts";
import { accountOf } from "../../mq/account.ts";
import {
  brokerKinds,
  mqConfigSchema,
  openTopic,
  serversOf,
  topicOf,
  type MqConfig,
  type MqTopic,
} from "../../mq/config.ts";
import { delayOf, messageIdOf, parametersOf, placeOf, toMessage } from "../../mq/message.ts";
import type { BrokerSession } from "../../ports/message-broker.ts";
import { invalidConfig } from "../../services/invalid-config.ts";
import {
  defineScheme,
  type OpenService,
  type SchemeDeps,
  type ServiceCall,
  type ServiceTool,
} from "../../services/scheme.ts";
import { withDelivery } from "../../errors/delivery.ts";
import type { InvocationContext, ToolReply } from "../tool-call.ts";
import { Pace } from "../../pace.ts";
import { compileArguments } from "../arguments.ts";
import { jsonReply } from "../native/native-tool.ts";
import { uriOptions } from "../uri.ts";

type Service = OpenService<MqConfig>;

export const mqScheme = defineScheme({
  scheme: "mq",
  title: "Message queue",
  description: "Messages to RabbitMQ, Kafka, RocketMQ or Redis Pub/Sub, confirmed and delayed where asked.",
  icon: "messages",
  config: mqConfigSchema,
  options: { delay: uriOptions.delay },
  create: (deps) => ({
    check: (service) => check(service, deps),
    tools: ({ config }) => Object.entries(config.topics).map(([id, topic]) => describe(config, id, topic)),
    findTool({ config }, id) {
      const topic = openTopic(config, id);
      return topic === undefined ? undefined : describe(config, id, topic);
    },
    invoke: (call, context) => publish(call, context, deps),
    async probe(service, context) {
      const found = await withSession({ service, context, deps }, (session) => session.describe());
      const { security, username } = service.config;
      const protection = security === "tls" ? "encrypted" : "not encrypted";
      const login = username === undefined ? "" : ` as '${username}'`;
      return { detail: `${found}: connected${login}, ${protection}.` };
    },
    reachedBy: () => ["servers", "security"],
  }),
});

async function check({ config }: Service, { egress }: SchemeDeps): Promise<void> {
  for (const [index, server] of serversOf(config).entries()) {
    try {
      egress.checkTarget(server);
    } catch (error) {
      if (!(error instanceof GatewayError)) throw error;
      throw new GatewayError(error.code, error.message, { ...error.details, param: `config.servers.${index}` });
    }
  }
  const pace = new Pace();
  for (const [id, topic] of Object.entries(config.topics)) {
    await pace.turn();
    try {
      compileArguments(parametersOf(config, topic));
    } catch (error) {
      if (!(error instanceof GatewayError)) throw error;
      throw invalidConfig(`topics.${id}.message`, `cannot be used: ${error.message.replace(/\.$/, "")}`);
    }
  }
}

function describe(config: MqConfig, id: string, topic: MqTopic): ServiceTool {
  return {
    id,
    title: topic.title,
    description: topic.description,
    parameters: parametersOf(config, topic),
    effect: "write",
    // No broker tells a message that it gets again from a new one.
    repeat: "never",
    outputTrust: "own",
    sensitive: topic.sensitive,
    roles: topic.roles,
    timeoutMs: config.timeout_ms,
    maxAttempts: config.max_attempts,
  };
}

async function publish(
  service: ServiceCall<MqConfig>,
  context: InvocationContext,
  deps: SchemeDeps,
): Promise<ToolReply> {
  const { config, tool, call } = service;
  const topic = topicOf(config, tool.id);
  if (topic === undefined) throw invalidConfig(`topics.${tool.id}`, "is not there");
  const delayMs = delayOf(config, call.arguments, call.uri.options.delayMs);
  const { isStored } = brokerKinds[config.broker];
  const isLong = delayMs > longestNativeDelayMs(config);
  const message = toMessage(
    config,
    { topicId: tool.id, topic, args: call.arguments },
    { callId: call.id, at: new Date(deps.clock.now()), delayMs: isLong ? 0 : delayMs },
  );
  const place = { broker: config.broker, ...placeOf(config, message) };
  const confirmation = isLong
    ? undefined
    : await withSession({ service, context, deps }, async (session) => {
        const { signal, onSent } = context;
        const isHeldBack = delayMs === 0 || (await session.holdsBack?.(message, signal)) !== false;
        return isHeldBack ? session.publish(message, { signal, onSent }) : undefined;
      });
  if (confirmation === undefined)
    return { ...jsonReply({ ...(await later(service, context, deps, delayMs)), ...place }), unreached: true };
  const { receivers, heldBackMs, partition, offset } = confirmation;
  const reply: JsonObject = {
    message_id: message.id,
    status: heldBackMs === undefined ? "published" : "delayed",
    ...place,
    ...(partition === undefined ? {} : { partition }),
    ...(offset === undefined ? {} : { offset }),
    ...(receivers === undefined ? {} : { receivers }),
    ...(heldBackMs === undefined ? {} : { due_at: new Date(deps.clock.now() + heldBackMs).toISOString() }),
    stored: isStored,
    ...(receivers === 0 ? { note: "Nobody was listening; the message is gone." } : {}),
  };
  return jsonReply(reply);
}

/** The longest delay that the broker is asked for; longer ones are calls of our own. */
function longestNativeDelayMs({ broker, max_native_delay_ms: given = 86_400_000 }: MqConfig): number {
  if (broker === "rocketmq") return given;
  return brokerKinds[broker].holdsBack ? Infinity : 0;
}

/** The same call without its delay, due then: its id is the message's. */
async function later(
  { config, call }: ServiceCall<MqConfig>,
  context: InvocationContext,
  deps: SchemeDeps,
  delayMs: number,
): Promise<JsonObject> {
  const { delay: _delay, ...args } = call.arguments;
  const { delayMs: _option, ...options } = call.uri.options;
  const uri = { ...call.uri, options };
  const { callId, dueAt } = await postpone(deps, context, call, { delayMs, uri, arguments: args });
  return {
    message_id: messageIdOf(config, callId),
    status: "delayed",
    due_at: new Date(dueAt).toISOString(),
    call_id: callId,
  };
}

interface Opening {
  readonly service: Service;
  readonly context: InvocationContext;
  readonly deps: SchemeDeps;
}

/** Opening is shared by all who wait for it, so that no one's giving up ends it. */
async function withSession<T>(
  { service, context, deps }: Opening,
  work: (session: BrokerSession) => Promise<T>,
): Promise<T> {
  const { record, config } = service;
  const { signal } = context;
  const account = await accountOf(config, context, deps.credentials);
  const { promise: gaveUp, reject } = Promise.withResolvers<never>();
  const giveUp = (): void => reject(notBegun());
  if (signal.aborted) throw notBegun();
  signal.addEventListener("abort", giveUp, { once: true });
  const done = deps.connections.use(
    {
      service: record,
      context,
      async open() {
        const session = await deps.brokers.open(account);
        return { connection: session, close: () => session.close(), isAlive: () => session.isAlive() };
      },
    },
    (session) => {
      if (signal.aborted) throw notBegun();
      // From here on the session says what became of the message.
      signal.removeEventListener("abort", giveUp);
      return work(session);
    },
  );
  try {
    return await Promise.race([done, gaveUp]);
  } finally {
    signal.removeEventListener("abort", giveUp);
    done.catch(() => undefined);
  }
}

function notBegun(): GatewayError {
  return withDelivery(
    new GatewayError("call_cancelled", "The call was given up before the broker could be reached."),
    "not_sent",
  );
}
