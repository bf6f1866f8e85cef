/** One line for each way to a back end; the names are what `npm run bench:tools -- <names>` takes. */
import { kafkaCase, rabbitMqCase, redisCase } from "./broker-cases.ts";
import { grpcCase } from "./grpc-case.ts";
import { apiCase, nativeCase, ossCase, pluginCase, smsCase, svcHttpCase } from "./http-cases.ts";
import { mailCase } from "./mail-case.ts";
import { mcpHttpCase, mcpStdioCase } from "./mcp-cases.ts";
import { nodeCase } from "./node-case.ts";
import type { ToolCase } from "./tool-case.ts";

export const toolCases = {
  plugin: pluginCase,
  api: apiCase,
  "svc-http": svcHttpCase,
  native: nativeCase,
  sms: smsCase,
  oss: ossCase,
  mcp: mcpHttpCase,
  "mcp-stdio": mcpStdioCase,
  "svc-grpc": grpcCase,
  mail: mailCase,
  "mq-redis": redisCase,
  "mq-rabbitmq": rabbitMqCase,
  "mq-kafka": kafkaCase,
  node: nodeCase,
} as const satisfies Record<string, ToolCase>;

export type ToolCaseName = keyof typeof toolCases;
