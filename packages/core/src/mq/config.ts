/** What a message service is: a broker, how it is reached, and topics, which are its tools (MQ-1, MQ-4). */
import * as z from "zod";
import { pluginDefinitionSchema } from "../blind/definition.ts";
import { accountFaults, policyFields, secretField, unencryptedField } from "../services/config-fields.ts";
import { tlsField } from "../services/tls.ts";
import type { BrokerServer } from "../ports/message-broker.ts";
import { largestMessageBytes } from "../ports/message-consumer.ts";

/** RabbitMQ counts a delay in 32 bits of milliseconds; a month is within it. */
const longestDelayMs = 2_592_000_000;

/** What kinds of brokers can do; forms, checks and descriptions follow. */
export const brokerKinds = {
  rabbitmq: {
    title: "RabbitMQ",
    ports: { tls: 5671, none: 5672 },
    hasHeaders: true,
    hasKeys: false,
    holdsBack: true,
    isStored: true,
    /** Bytes of UTF-8. */
    name: /^(?!amq\.)[^\p{C}]{1,255}$/u,
    names: "1 to 255 characters without control characters, not beginning with 'amq.'",
  },
  kafka: {
    title: "Kafka",
    ports: { tls: 9093, none: 9092 },
    hasHeaders: true,
    hasKeys: true,
    holdsBack: false,
    isStored: true,
    name: /^(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}$/,
    names: "letters, digits, '.', '_' and '-', at most 249",
  },
  redis: {
    title: "Redis Pub/Sub",
    ports: { tls: 6379, none: 6379 },
    hasHeaders: false,
    hasKeys: false,
    holdsBack: false,
    isStored: false,
    name: /^[^\p{C}]{1,255}$/u,
    names: "1 to 255 characters without control characters",
  },
  rocketmq: {
    title: "RocketMQ",
    ports: { tls: 8081, none: 8081 },
    hasHeaders: true,
    hasKeys: true,
    /** Where the topic is of that type. */
    holdsBack: true,
    isStored: true,
    name: /^[%|a-zA-Z0-9_-]{1,127}$/,
    names: "letters, digits, '_', '-', '%' and '|', at most 127",
  },
} as const;

const serverPattern = /^(\[[0-9a-f:.]+\]|[\p{L}\p{N}._-]+)(?::(\d{1,5}))?$/iu;

const serverField = z
  .string()
  .max(261)
  .refine((text) => {
    const match = serverPattern.exec(text);
    const port = Number(match?.[2] ?? 1);
    return match !== null && port >= 1 && port <= 65_535;
  }, "must be a host or host:port, without a scheme; IPv6 addresses in brackets");

const nameField = (description: string): z.ZodString => z.string().min(1).max(255).meta({ description });

const headerName = z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,126}$/, "must be letters, digits, '.', '_' and '-'");

const headerText = z
  .string()
  .max(8_192)
  // oxlint-disable-next-line no-control-regex
  .regex(/^[^\u0000-\u001f\u007f]*$/, "must not have line breaks or other control characters");

/** What RocketMQ takes for a tag. */
export const tagPattern = "^[^|\\s\\p{C}]{1,127}$";

const tagField = (description: string): z.ZodString =>
  z.string().regex(new RegExp(tagPattern, "u"), "must be without spaces and '|'").meta({ description });

const contentTypePattern =
  "^[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}(; ?[a-z0-9-]+=[A-Za-z0-9._-]+)*$";

const topicIdSchema = z
  .string()
  .regex(
    /^[\p{L}\p{N}_][\p{L}\p{N}._-]{0,127}$/u,
    "must be a tool id: 1 to 128 letters, digits, '.', '_' or '-', the first no '.' or '-'",
  );

const topicSchema = z.strictObject({
  title: pluginDefinitionSchema.shape.title,
  description: z.string().min(1).max(1_024).default("Publishes a message."),
  name: nameField("Topic (Kafka, RocketMQ), channel (Redis) or queue (RabbitMQ); absent: the tool id.").optional(),
  exchange: nameField("RabbitMQ: publish to this exchange rather than straight to a queue.").optional(),
  routing_key: z
    .string()
    .max(255)
    .optional()
    .meta({ description: "RabbitMQ, with `exchange`; absent: each call says it as `key`." }),
  tag: tagField("RocketMQ: tag of every message; absent: each call may say one.").optional(),
  message: pluginDefinitionSchema.shape.parameters
    .optional()
    .meta({ description: "JSON Schema of messages that are objects; absent: any JSON." }),
  content_type: z
    .string()
    .regex(new RegExp(contentTypePattern), "must be a media type in lower case")
    .default("application/json")
    .meta({ description: "Of messages; other than JSON, a message is a text and goes as it is." }),
  headers: z
    .record(headerName, headerText)
    .optional()
    .meta({ description: "Headers of every message. Never secrets." }),
  free_headers: z.boolean().default(false).meta({ description: "Calls may add headers of their own." }),
  persistent: z
    .boolean()
    .default(true)
    .meta({ description: "RabbitMQ: messages outlive a restart of the broker, where their queue does." }),
  sensitive: pluginDefinitionSchema.shape.sensitive,
  roles: pluginDefinitionSchema.shape.roles,
});

export const mqConfigSchema = z
  .strictObject({
    broker: z.enum(["rabbitmq", "kafka", "redis", "rocketmq"]).meta({ description: "What kind of broker it is." }),
    servers: z
      .array(serverField)
      .min(1)
      .max(16)
      .meta({
        description:
          "Hosts, each with or without a port, tried in this order. Kafka's other brokers are found by themselves.",
        example: ["mq.example.com:5671"],
      }),
    security: z.enum(["tls", "none"]).default("tls").meta({ description: "`none`: in clear." }),
    allow_unencrypted: unencryptedField("messages"),
    tls: tlsField.optional(),
    username: z
      .string()
      .min(1)
      .max(255)
      .optional()
      .meta({ description: "User, for RocketMQ the access key; absent: no login." }),
    password: secretField(
      "Password of `username`, for RocketMQ the secret key; for Redis also without one.",
    ).optional(),
    mechanism: z
      .enum(["plain", "scram-sha-256", "scram-sha-512"])
      .optional()
      .meta({ description: "Kafka: how to log in; absent: `plain`." }),
    virtual_host: nameField("RabbitMQ; absent: `/`.").optional(),
    namespace: nameField("RocketMQ: namespace of the topics (instance id at some vendors); absent: none.").optional(),
    topics: z.record(topicIdSchema, topicSchema).default({}).meta({ description: "Where to publish, by tool id." }),
    open_topics: z
      .boolean()
      .default(false)
      .meta({ description: "Ids that are not among `topics` are names of topics, channels or queues." }),
    max_message_bytes: z
      .int()
      .min(1)
      .max(largestMessageBytes)
      .default(1_048_576)
      .meta({ description: "Bytes of one message." }),
    max_delay_ms: z
      .int()
      .min(0)
      .max(longestDelayMs)
      .default(604_800_000)
      .meta({ description: "Longest delay of a message; 0: none." }),
    max_native_delay_ms: z.int().min(0).max(longestDelayMs).optional().meta({
      description:
        "RocketMQ: longest delay that its proxy takes; longer ones the gateway keeps. Absent: a day (86400000). For proxies that know levels of delay only: 7200000.",
    }),
    ...policyFields({
      timeout: "For one attempt; absent: as the tenant has it.",
      attempts: "Sends in all. Only what certainly did not reach the broker is sent again.",
    }),
  })
  .superRefine((config, check) => {
    const say = (path: readonly string[], message: string): void =>
      check.addIssue({ code: "custom", message, path: [...path] });
    const { broker } = config;
    const faults = accountFaults(config, { what: "messages", passwordAlone: broker === "redis" });
    for (const { field, message } of faults) say([field], message);
    if (broker !== "kafka" && config.mechanism !== undefined) say(["mechanism"], "is for Kafka only");
    if (broker !== "rabbitmq" && config.virtual_host !== undefined) say(["virtual_host"], "is for RabbitMQ only");
    if (broker !== "rocketmq" && config.namespace !== undefined) say(["namespace"], "is for RocketMQ only");
    if (broker !== "rocketmq" && config.max_native_delay_ms !== undefined)
      say(["max_native_delay_ms"], "is for RocketMQ only");
    for (const [id, topic] of Object.entries(config.topics)) {
      const problem = topicProblem(broker, id, topic);
      if (problem !== undefined) say(["topics", id, problem.field], problem.message);
    }
  });
export type MqConfig = z.output<typeof mqConfigSchema>;
export type MqTopic = z.output<typeof topicSchema>;

interface TopicProblem {
  readonly field: string;
  readonly message: string;
}

function topicProblem(broker: MqConfig["broker"], id: string, topic: MqTopic): TopicProblem | undefined {
  const { name, exchange, routing_key: key, headers } = topic;
  const kind = brokerKinds[broker];
  if (broker !== "rabbitmq" && exchange !== undefined) return { field: "exchange", message: "is for RabbitMQ only" };
  if (broker !== "rocketmq" && topic.tag !== undefined) return { field: "tag", message: "is for RocketMQ only" };
  if (exchange === undefined && key !== undefined)
    return { field: "routing_key", message: "needs an 'exchange'; a queue is named by 'name'" };
  if (exchange !== undefined && name !== undefined)
    return { field: "name", message: "and 'exchange' exclude each other" };
  if (exchange === undefined && !kind.name.test(name ?? id))
    return { field: "name", message: `must be a name that ${kind.title} takes: ${kind.names}` };
  if (!kind.hasHeaders && (headers !== undefined || topic.free_headers))
    return {
      field: headers === undefined ? "free_headers" : "headers",
      message: `is not for ${kind.title}: its messages have no headers`,
    };
  return undefined;
}

/** What an id stands for that is not among `topics`. */
export function openTopic(config: MqConfig, id: string): MqTopic | undefined {
  if (!config.open_topics || !brokerKinds[config.broker].name.test(id) || !/^[\p{L}\p{N}._:-]+$/u.test(id))
    return undefined;
  return topicSchema.parse({ description: `Publishes a message to '${id}'.` });
}

/** What an id of the service stands for. */
export function topicOf(config: MqConfig, id: string): MqTopic | undefined {
  return Object.hasOwn(config.topics, id) ? config.topics[id] : openTopic(config, id);
}

export function serversOf({ servers, broker, security }: MqConfig): readonly BrokerServer[] {
  return servers.map((text) => {
    const [, host = "", port] = serverPattern.exec(text) ?? [];
    return {
      host: host.replace(/^\[|\]$/g, ""),
      port: port === undefined ? brokerKinds[broker].ports[security] : Number(port),
    };
  });
}
