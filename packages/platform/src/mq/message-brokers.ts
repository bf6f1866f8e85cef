/** Brokers by kind (port: core/ports/message-broker.ts); each client is loaded by its first message. */
import type {
  BrokerAccount,
  BrokerKind,
  BrokerServer,
  BrokerSession,
  MessageBrokers,
} from "@toolyard/core/ports/message-broker";
import { openFirst, type BrokerDeps } from "./sockets.ts";

type Open = (deps: BrokerDeps, account: BrokerAccount, server: BrokerServer) => Promise<BrokerSession>;

// Our own modules are what is loaded late: packages of CommonJS in a chunk of their own lose their names.
const brokers = {
  rabbitmq: async () => (await import("./rabbitmq.ts")).openRabbitMq,
  kafka: async () => (await import("./kafka.ts")).openKafka,
  redis: async () => (await import("./redis.ts")).openRedis,
  rocketmq: async () => (await import("./rocketmq.ts")).openRocketMq,
} as const satisfies Record<BrokerKind, () => Promise<Open>>;

export function createMessageBrokers(deps: BrokerDeps): MessageBrokers {
  return {
    async open(account) {
      const open = await brokers[account.kind]();
      return openFirst(account, (server) => open(deps, account, server));
    },
  };
}
