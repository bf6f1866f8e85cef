/**
 * What an operator chooses for a stage beside its secrets. SST loads `.env` and `.env.<stage>`, and
 * only this file reads them. An empty variable counts as not set.
 */
export const isPermanent = $app.stage === "production";

function read(name: string): string | undefined {
  const value = process.env[name];
  return value === undefined || value.trim() === "" ? undefined : value.trim();
}

function require(name: string, form: RegExp, example: string): string {
  const value = read(name);
  if (value === undefined || !form.test(value)) {
    throw new Error(`${name}: must be set for this stage, like ${example}; write it into .env.${$app.stage}`);
  }
  return value;
}

function optional(name: string, form: RegExp, example: string): string | undefined {
  const value = read(name);
  if (value !== undefined && !form.test(value)) throw new Error(`${name}: must look like ${example}`);
  return value;
}

export const databaseUrl: string = require("DATABASE_URL", /^(libsql|https):\/\/./, "libsql://tools-acme.turso.io");

/** Host name under which everything HTTP is served; `ws.` before it for the WebSocket API. */
export const domain: string | undefined = optional(
  "TOOLYARD_DOMAIN",
  /^([a-z0-9-]+\.)+[a-z]{2,}$/,
  "tools.example.com",
);

/** Of that host name and its `ws.`, where DNS is not in Route 53 of this account. */
export const certificateArn: string | undefined = optional(
  "TOOLYARD_CERTIFICATE_ARN",
  /^arn:[\w-]+:acm:/,
  "arn:aws:acm:eu-central-1:123456789012:certificate/…",
);

/** Who is told of alarms; without one they only show. */
export const alarmEmail: string | undefined = optional("TOOLYARD_ALARM_EMAIL", /^\S+@\S+$/, "ops@example.com");

/**
 * Settings of the gateway that are handed on as they are; `functions/env.ts` checks them. Those that the stack makes
 * itself are not among them, nor are secrets (`secrets.ts`) and what servers alone use.
 */
export const passedOn: Readonly<Record<string, string>> = Object.fromEntries(
  [
    "OPENAI_BASE_URL",
    "TOOLYARD_DEFAULT_MODEL",
    "TOOLYARD_EGRESS_ALLOW",
    "TOOLYARD_SETTINGS_CAPS",
    "TOOLYARD_MCP_COMMANDS",
    "TOOLYARD_MCP_ORIGINS",
    "TOOLYARD_SECURITY_CONTACT",
    "TOOLYARD_LOG_LEVEL",
    "TOOLYARD_PREVIOUS_MASTER_KEYS",
    "OTEL_SDK_DISABLED",
    "OTEL_TRACES_EXPORTER",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_PROTOCOL",
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    "OTEL_EXPORTER_OTLP_COMPRESSION",
    "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION",
    "OTEL_EXPORTER_OTLP_TIMEOUT",
    "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
    "OTEL_SERVICE_NAME",
    "OTEL_RESOURCE_ATTRIBUTES",
    "OTEL_TRACES_SAMPLER",
    "OTEL_TRACES_SAMPLER_ARG",
  ].flatMap((name) => {
    const value = read(name);
    return value === undefined ? [] : [[name, value] as const];
  }),
);

/** ARNs of earlier master keys in KMS, which the setting names as `kms:<ARN>`. */
export const previousMasterKeys: readonly string[] = (passedOn["TOOLYARD_PREVIOUS_MASTER_KEYS"] ?? "")
  .split(/[\s,]+/)
  .flatMap((key) => (key.startsWith("kms:arn:") ? [key.slice("kms:".length)] : []));
