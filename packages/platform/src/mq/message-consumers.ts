/** Consumers by kind of broker (port: core/ports/message-consumer.ts); each client is loaded by its first consumer. */
import type { BrokerAccount, BrokerKind, BrokerServer } from "@toolyard/core/ports/message-broker";
import type { ConsumeOptions, MessageConsumer, MessageConsumers } from "@toolyard/core/ports/message-consumer";
import { openFirst, type BrokerDeps } from "./sockets.ts";

type Consume = (
  deps: BrokerDeps,
  place: { readonly account: BrokerAccount; readonly server: BrokerServer },
  options: ConsumeOptions,
) => Promise<MessageConsumer>;

const consumers = {
  rabbitmq: async () => (await import("./rabbitmq-consumer.ts")).consumeRabbitMq,
  kafka: async () => (await import("./kafka-consumer.ts")).consumeKafka,
  redis: async () => (await import("./redis-consumer.ts")).consumeRedis,
  rocketmq: async () => (await import("./rocketmq-consumer.ts")).consumeRocketMq,
} as const satisfies Record<BrokerKind, () => Promise<Consume>>;

export function createMessageConsumers(deps: BrokerDeps): MessageConsumers {
  return {
    async open(account, options) {
      const consume = await consumers[account.kind]();
      return openFirst(account, (server) => consume(deps, { account, server }, options));
    },
  };
}
