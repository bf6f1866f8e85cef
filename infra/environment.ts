/** The settings of every function; the names are those of `functions/env.ts`, which refuses what it cannot use. */
import { codeBox } from "./code-box.ts";
import type { Variables } from "./function.ts";
import { publicUrl, pushUrl, realtimeUrl } from "./gateways.ts";
import { masterKey } from "./keys.ts";
import { pluginBox } from "./plugin-box.ts";
import { long, short } from "./queue.ts";
import { adminKey, databaseAuthToken, openaiApiKey, otlpHeaders } from "./secrets.ts";
import { databaseUrl, passedOn } from "./settings.ts";
import { blobs } from "./storage.ts";

export const database: Variables = {
  DATABASE_URL: databaseUrl,
  DATABASE_AUTH_TOKEN: databaseAuthToken.value,
};

export const gateway: Variables = {
  ...passedOn,
  ...database,
  BLOBS_URL: $interpolate`s3://${blobs.nodes.bucket.bucket}`,
  QUEUE_URL: short.queue.url,
  QUEUE_LONG_URL: long.queue.url,
  PUSH_URL: pushUrl,
  PLUGIN_BOX_FUNCTION: pluginBox.arn,
  CODE_BOX_FUNCTION: codeBox.arn,
  TOOLYARD_PUBLIC_URL: publicUrl,
  TOOLYARD_WS_URL: realtimeUrl,
  TOOLYARD_ADMIN_KEY: adminKey.value,
  TOOLYARD_MASTER_KEY: $interpolate`kms:${masterKey.arn}`,
  OPENAI_API_KEY: openaiApiKey.value,
  OTEL_EXPORTER_OTLP_HEADERS: otlpHeaders.value,
};
