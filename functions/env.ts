/**
 * The settings of the process (design "Public contract"): the only place where the environment is
 * read. Every setting is optional on a laptop; an unusable one ends the start and is named.
 */
import { fileURLToPath } from "node:url";
import { parseJson } from "@toolyard/core/json";
import { mcpCommandsSchema, type McpCommands } from "@toolyard/core/mcp/commands";
import { nearestName } from "@toolyard/core/nearest-name";
import { settingsCapsSchema, type SettingsCaps } from "@toolyard/core/tenants/settings";
import { protocols, samplerNames, type OtlpProtocol, type SamplerOptions } from "@toolyard/platform/otlp/settings";
import * as z from "zod";

const logLevels = ["debug", "info", "warn", "error"] as const;

export interface Environment {
  readonly port: number;
  /** Address to listen on; loopback unless told otherwise, since a key alone should not be the only wall. */
  readonly host: string;
  readonly dataDir: string;
  readonly databaseUrl: string | undefined;
  readonly databaseAuthToken: string | undefined;
  readonly blobsUrl: string | undefined;
  /** `database`, or the two queues of SQS. */
  readonly queues: { readonly short: string; readonly long: string } | undefined;
  readonly adminKey: string | undefined;
  /** 32 bytes as text, or `kms:` and a key's id, alias or ARN. */
  readonly masterKey: string | undefined;
  readonly previousMasterKeys: readonly string[];
  readonly openaiBaseUrl: string | undefined;
  readonly openaiApiKey: string | undefined;
  readonly defaultModel: string | undefined;
  /** CIDRs that tools may reach although private; undefined: the default of the home. */
  readonly egressAllow: readonly string[] | undefined;
  /** Upper bounds for tenants' settings. */
  readonly settingsCaps: SettingsCaps | undefined;
  /** Undefined: `plugins`, with what is in it switched off. */
  readonly pluginDir: string | undefined;
  /** Old clients of VCP may have their key in the path of their WebSocket. */
  readonly vcpKeyInPath: boolean;
  /** Web pages that may speak to `/mcp`, beside our own and those of the user's machine; `*`: all. */
  readonly mcpOrigins: readonly string[];
  /** Programs that tenants may use as MCP servers. */
  readonly mcpCommands: McpCommands | undefined;
  /** Where programs are found. */
  readonly path: string;
  /** Name or ARN of the plugin box; undefined: plugins are processes of this machine. */
  readonly pluginBoxFunction: string | undefined;
  readonly codeBoxFunction: string | undefined;
  /** `@connections` of the WebSocket API; undefined: server processes hold the connections. */
  readonly pushUrl: string | undefined;
  readonly logLevel: (typeof logLevels)[number];
  readonly publicUrl: string | undefined;
  /** Where clients connect; undefined: at the public address. */
  readonly wsUrl: string | undefined;
  readonly securityContact: string | undefined;
  /** Where services of AWS are said to be instead of at their own addresses; the SDK reads the same variables. */
  readonly awsEndpoints: readonly string[];
  /** Where S3 is, if not at AWS. */
  readonly s3Endpoint: string | undefined;
  /** Undefined: nothing is traced. */
  readonly traces: TracesSettings | undefined;
  /** Variables that are spelled like ours and mean nothing, each with the one that may be meant. */
  readonly unknown: readonly UnknownVariable[];
  /** Set where this runs as a Lambda function. */
  readonly lambda: { readonly runtimeApi: string | undefined } | undefined;
}

export interface UnknownVariable {
  readonly name: string;
  readonly meant: string | undefined;
}

/** Where traces go, as OpenTelemetry's own variables say. */
export interface TracesSettings {
  readonly url: string;
  readonly protocol: OtlpProtocol;
  readonly headers: Readonly<Record<string, string>>;
  readonly gzip: boolean;
  readonly timeoutMs: number;
  /** Milliseconds that spans may wait for others, where a process lives on after its requests. */
  readonly everyMs: number;
  readonly sampler: SamplerOptions;
  readonly serviceName: string;
  readonly resourceAttributes: Readonly<Record<string, string>>;
}

/** Ends the start: says which settings cannot be used, never what they hold. */
export class EnvironmentError extends Error {
  override readonly name = "EnvironmentError";
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(`These settings cannot be used:\n${problems.map((problem) => `  ${problem}`).join("\n")}`);
    this.problems = problems;
  }
}

/** An empty variable counts as not set: that is how compose files and CI leave one out. */
const text = z.preprocess(
  (value) => (value === "" ? undefined : value),
  z
    .string()
    .refine((value) => value.trim() !== "", {
      message: "must hold more than blanks; leave it out or empty",
      abort: true,
    })
    .optional(),
);

function url(schemes: readonly string[]): z.ZodType<string | undefined> {
  const message = `must be a URL that starts with ${schemes.join(" or ")}`;
  return text
    .refine((value) => value === undefined || schemes.some((scheme) => isUrlOf(scheme, value)), { message })
    .transform((value) => (value?.startsWith("file:") === true ? value : value?.trim()));
}

const httpUrl = text
  .refine((value) => value === undefined || isHttpUrl(value), {
    message: "must be an http:// or https:// URL without user, query and fragment",
  })
  .transform((value) => value?.trim().replace(/\/+$/, ""));

const list = z
  .string()
  .transform((value) => value.split(/[\s,]+/).filter((part) => part !== ""))
  .optional();

const secret = text.refine((value) => value === undefined || /^[\x21-\x7e]{24,512}$/.test(value), {
  message: "must have 24 to 512 visible ASCII characters",
});

/** @param like what it must be, for whoever wrote something else */
function json<Value>(schema: () => z.ZodType<Value>, like: string): z.ZodType<Value | undefined> {
  return text.transform((value, context): Value | undefined => {
    if (value === undefined) return undefined;
    const parsed = schema().safeParse(parseJson(value));
    if (parsed.success) return parsed.data;
    const [first] = parsed.error.issues;
    context.addIssue(`must be JSON like ${like}${first === undefined ? "" : whereIn(first)}`);
    return z.NEVER;
  });
}

/** Names only: what stands there may be no one's business. */
function whereIn(issue: z.core.$ZodIssue): string {
  const at = issue.path.map(String);
  if (issue.code === "unrecognized_keys") {
    return `; there is no ${issue.keys.map((key) => `'${[...at, key].join(".")}'`).join(", ")}`;
  }
  return at.length === 0 ? "" : `; '${at.join(".")}' is not valid: ${decapitalized(issue.message)}`;
}

function decapitalized(message: string): string {
  return message.charAt(0).toLowerCase() + message.slice(1);
}

const caps: z.ZodType<SettingsCaps | undefined> = json(settingsCapsSchema, '{"rounds": 5}, naming numeric settings');

const mcpCommands: z.ZodType<McpCommands | undefined> = json(
  () => mcpCommandsSchema,
  '{"memory": {"command": ["mcp-server-memory"], "env": ["API_KEY"]}}',
);

/** Known to OpenTelemetry in this form: `key=value,key2=value2`, percent-encoded. */
const pairs = text.transform((value, context): Readonly<Record<string, string>> | undefined => {
  if (value === undefined) return undefined;
  const entries = value.split(",").flatMap((part) => (part.trim() === "" ? [] : [readPair(part)]));
  if (entries.every((entry) => entry !== undefined)) return Object.fromEntries(entries);
  context.addIssue("must be like key=value,key2=value2, with values percent-encoded where they hold commas or blanks");
  return z.NEVER;
});

function readPair(part: string): readonly [string, string] | undefined {
  const at = part.indexOf("=");
  const name = part.slice(0, Math.max(at, 0)).trim();
  if (!/^[\w.!#$%&'*+^`|~-]+$/.test(name)) return undefined;
  try {
    return [name, decodeURIComponent(part.slice(at + 1).trim())];
  } catch {
    return undefined;
  }
}

const headerPairs = pairs.refine(
  (value) => Object.values(value ?? {}).every((header) => /^[\t\u0020-\u007e]*$/.test(header)),
  { message: "must hold values of visible ASCII characters" },
);

const milliseconds = text
  .refine((value) => value === undefined || /^[1-9]\d{0,8}$/.test(value), {
    message: "must be a number of milliseconds above 0",
  })
  .transform((value) => (value === undefined ? undefined : Number(value)));

const ratio = text
  .refine((value) => value === undefined || (value.trim() !== "" && Number(value) >= 0 && Number(value) <= 1), {
    message: "must be a number from 0 to 1",
  })
  .transform((value) => Number(value ?? 1));

function oneOf<const Names extends readonly string[]>(names: Names): z.ZodType<Names[number] | undefined> {
  return z.preprocess((value) => (value === "" ? undefined : value), z.enum(names).optional());
}

/** Where an endpoint may have a query, as some vendors' have. */
const otlpUrl = text.refine(
  (value) => value === undefined || (/^https?:\/\//.test(value) && URL.parse(value)?.username === ""),
  { message: "must be an http:// or https:// URL without user name" },
);

/** OpenTelemetry's own variables: those for traces beat those for all signals. */
const openTelemetry = z.object({
  OTEL_SDK_DISABLED: text,
  OTEL_TRACES_EXPORTER: oneOf(["otlp", "none"]),
  OTEL_EXPORTER_OTLP_ENDPOINT: otlpUrl,
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: otlpUrl,
  OTEL_EXPORTER_OTLP_PROTOCOL: oneOf(protocols),
  OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: oneOf(protocols),
  OTEL_EXPORTER_OTLP_HEADERS: headerPairs,
  OTEL_EXPORTER_OTLP_TRACES_HEADERS: headerPairs,
  OTEL_EXPORTER_OTLP_COMPRESSION: oneOf(["gzip", "none"]),
  OTEL_EXPORTER_OTLP_TRACES_COMPRESSION: oneOf(["gzip", "none"]),
  OTEL_EXPORTER_OTLP_TIMEOUT: milliseconds,
  OTEL_EXPORTER_OTLP_TRACES_TIMEOUT: milliseconds,
  OTEL_BSP_SCHEDULE_DELAY: milliseconds,
  OTEL_SERVICE_NAME: text,
  OTEL_RESOURCE_ATTRIBUTES: pairs,
  OTEL_TRACES_SAMPLER: oneOf(samplerNames),
  OTEL_TRACES_SAMPLER_ARG: ratio,
  AWS_LAMBDA_FUNCTION_NAME: text,
});

/** What tracing is set to, where it is on: looked at only then, since these variables are often set for a whole fleet. */
function readTraces(source: Readonly<Record<string, string | undefined>>): TracesSettings | undefined {
  const isOn =
    source["OTEL_SDK_DISABLED"]?.toLowerCase() !== "true" &&
    source["OTEL_TRACES_EXPORTER"] !== "none" &&
    [source["OTEL_EXPORTER_OTLP_ENDPOINT"], source["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"]].some(Boolean);
  if (!isOn) return undefined;
  const parsed = openTelemetry.safeParse(source);
  if (!parsed.success) throw new EnvironmentError(parsed.error.issues.map(describe));
  const { data } = parsed;
  const { "service.name": named, ...resourceAttributes } = data.OTEL_RESOURCE_ATTRIBUTES ?? {};
  return {
    url: data.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT ?? tracesUnder(data.OTEL_EXPORTER_OTLP_ENDPOINT ?? ""),
    protocol: data.OTEL_EXPORTER_OTLP_TRACES_PROTOCOL ?? data.OTEL_EXPORTER_OTLP_PROTOCOL ?? "http/protobuf",
    headers: data.OTEL_EXPORTER_OTLP_TRACES_HEADERS ?? data.OTEL_EXPORTER_OTLP_HEADERS ?? {},
    gzip: (data.OTEL_EXPORTER_OTLP_TRACES_COMPRESSION ?? data.OTEL_EXPORTER_OTLP_COMPRESSION) === "gzip",
    timeoutMs: data.OTEL_EXPORTER_OTLP_TRACES_TIMEOUT ?? data.OTEL_EXPORTER_OTLP_TIMEOUT ?? 10_000,
    everyMs: data.OTEL_BSP_SCHEDULE_DELAY ?? 5_000,
    sampler: { name: data.OTEL_TRACES_SAMPLER ?? "parentbased_always_on", ratio: data.OTEL_TRACES_SAMPLER_ARG },
    serviceName: data.OTEL_SERVICE_NAME ?? named ?? "toolyard",
    resourceAttributes: {
      ...(data.AWS_LAMBDA_FUNCTION_NAME === undefined ? {} : { "faas.name": data.AWS_LAMBDA_FUNCTION_NAME }),
      ...resourceAttributes,
    },
  };
}

/** The address for all signals is a base, to which each adds its own path. */
function tracesUnder(base: string): string {
  const url = new URL(base);
  url.pathname = `${url.pathname.replace(/\/+$/, "")}/v1/traces`;
  return url.href;
}

const functionName = text.refine((value) => value === undefined || /^[\w:-]{1,170}$/.test(value), {
  message: "must be the name or the ARN of a function",
});

const variables = z.object({
  PORT: text
    .refine((value) => value === undefined || (/^\d{1,5}$/.test(value) && Number(value) <= 65_535), {
      message: "must be a port number, 0 (any free one) to 65535",
    })
    .transform((value) => Number(value ?? 8787)),
  HOST: text.transform((value) => value ?? "127.0.0.1"),
  TOOLYARD_DATA_DIR: text.transform((value) => value ?? ".toolyard"),
  DATABASE_URL: url(["file:", "libsql:", "https:", "http:"]),
  DATABASE_AUTH_TOKEN: text,
  BLOBS_URL: text.refine((value) => value === undefined || isDirectoryUrl(value) || isBucketUrl(value), {
    message: "must be file:/path or s3://bucket/prefix, the prefix being optional",
  }),
  QUEUE_URL: text
    .refine((value) => value === undefined || value === "database" || isHttpUrl(value), {
      message: "must be 'database' or the https URL of an SQS queue",
    })
    .transform((value) => value?.trim()),
  QUEUE_LONG_URL: httpUrl,
  PUSH_URL: httpUrl,
  PLUGIN_BOX_FUNCTION: functionName,
  CODE_BOX_FUNCTION: functionName,
  TOOLYARD_ADMIN_KEY: secret,
  TOOLYARD_MASTER_KEY: text.refine((value) => value?.startsWith("kms:") !== true || isKmsKey(value), {
    message: "must be kms: followed by a key's id, alias/name or ARN, or 32 bytes",
  }),
  TOOLYARD_PREVIOUS_MASTER_KEYS: list.refine(
    (values) => values?.every((value) => !value.startsWith("kms:") || isKmsKey(value)) !== false,
    { message: "must hold keys of 32 bytes, or kms: followed by a key's id, alias/name or ARN" },
  ),
  OPENAI_BASE_URL: httpUrl,
  OPENAI_API_KEY: text.refine((value) => value === undefined || /^[\x21-\x7e]+$/.test(value), {
    message: "must be one word of visible ASCII characters",
  }),
  TOOLYARD_DEFAULT_MODEL: text,
  TOOLYARD_EGRESS_ALLOW: list,
  TOOLYARD_SETTINGS_CAPS: caps,
  TOOLYARD_MCP_COMMANDS: mcpCommands,
  TOOLYARD_MCP_ORIGINS: list.refine(
    (values) => values?.every((value) => value === "*" || URL.parse(value)?.origin === value) !== false,
    { message: "must hold origins like https://app.example.com, without a path, or be *" },
  ),
  PATH: text.transform((value) => value ?? "/usr/local/bin:/usr/bin:/bin"),
  TOOLYARD_PLUGIN_DIR: text,
  TOOLYARD_VCP_KEY_IN_PATH: z.preprocess(
    (value) => (value === "" || value === undefined ? "false" : value),
    z.enum(["true", "false"]).transform((value) => value === "true"),
  ),
  TOOLYARD_LOG_LEVEL: z.preprocess((value) => (value === "" ? undefined : value), z.enum(logLevels).default("info")),
  TOOLYARD_PUBLIC_URL: httpUrl,
  TOOLYARD_WS_URL: url(["ws:", "wss:"]),
  TOOLYARD_SECURITY_CONTACT: url(["mailto:", "https:", "tel:"]),
  AWS_ENDPOINT_URL: httpUrl,
  AWS_ENDPOINT_URL_KMS: httpUrl,
  AWS_ENDPOINT_URL_LAMBDA: httpUrl,
  AWS_ENDPOINT_URL_S3: httpUrl,
  AWS_ENDPOINT_URL_SQS: httpUrl,
  AWS_LAMBDA_FUNCTION_NAME: text,
  AWS_LAMBDA_RUNTIME_API: text,
});

/** What the gateway takes from the environment. */
export const settingNames: readonly string[] = [
  ...new Set([...Object.keys(variables.shape), ...Object.keys(openTelemetry.shape)]),
];

/** @throws EnvironmentError naming every variable that cannot be used */
export function readEnvironment(source: Readonly<Record<string, string | undefined>> = process.env): Environment {
  const parsed = variables.safeParse(source);
  if (!parsed.success) throw new EnvironmentError(parsed.error.issues.map(describe));
  const { data } = parsed;
  return {
    port: data.PORT,
    host: data.HOST,
    dataDir: data.TOOLYARD_DATA_DIR,
    databaseUrl: data.DATABASE_URL,
    databaseAuthToken: data.DATABASE_AUTH_TOKEN,
    blobsUrl: data.BLOBS_URL,
    queues: toQueues(data.QUEUE_URL, data.QUEUE_LONG_URL),
    adminKey: data.TOOLYARD_ADMIN_KEY,
    masterKey: data.TOOLYARD_MASTER_KEY,
    previousMasterKeys: data.TOOLYARD_PREVIOUS_MASTER_KEYS ?? [],
    openaiBaseUrl: data.OPENAI_BASE_URL,
    openaiApiKey: data.OPENAI_API_KEY,
    defaultModel: data.TOOLYARD_DEFAULT_MODEL,
    egressAllow: data.TOOLYARD_EGRESS_ALLOW,
    settingsCaps: data.TOOLYARD_SETTINGS_CAPS,
    pluginDir: data.TOOLYARD_PLUGIN_DIR,
    vcpKeyInPath: data.TOOLYARD_VCP_KEY_IN_PATH,
    mcpCommands: data.TOOLYARD_MCP_COMMANDS,
    mcpOrigins: data.TOOLYARD_MCP_ORIGINS ?? [],
    path: data.PATH,
    pluginBoxFunction: data.PLUGIN_BOX_FUNCTION,
    codeBoxFunction: data.CODE_BOX_FUNCTION,
    pushUrl: data.PUSH_URL,
    logLevel: data.TOOLYARD_LOG_LEVEL,
    publicUrl: data.TOOLYARD_PUBLIC_URL,
    wsUrl: data.TOOLYARD_WS_URL,
    securityContact: data.TOOLYARD_SECURITY_CONTACT,
    awsEndpoints: [
      data.AWS_ENDPOINT_URL,
      data.AWS_ENDPOINT_URL_KMS,
      data.AWS_ENDPOINT_URL_LAMBDA,
      data.AWS_ENDPOINT_URL_S3,
      data.AWS_ENDPOINT_URL_SQS,
    ].filter((endpoint) => endpoint !== undefined),
    s3Endpoint: data.AWS_ENDPOINT_URL_S3 ?? data.AWS_ENDPOINT_URL,
    traces: readTraces(source),
    unknown: unknownIn(source),
    lambda: data.AWS_LAMBDA_FUNCTION_NAME === undefined ? undefined : { runtimeApi: data.AWS_LAMBDA_RUNTIME_API },
  };
}

/** The settings of a node, which is no gateway (docs/nodes.md). */
export interface NodeEnvironment {
  readonly key: string;
  /** What programs have as `VCP_Key` that connect to the bridge; undefined: it is made at the start. */
  readonly vcpKey: string | undefined;
  readonly path: string;
  readonly logLevel: (typeof logLevels)[number];
}

const nodeVariables = z.object({
  PATH: z.string(),
  TOOLYARD_NODE_KEY: z
    .string({ message: "must be an API key with the scope 'node', as POST /v1/api-keys makes them" })
    .regex(/^[\x21-\x7e]+$/, "must be one word of visible ASCII characters"),
  TOOLYARD_VCP_KEY: text.refine((value) => value === undefined || /^[\w.-]{8,128}$/.test(value), {
    message: "must have 8 to 128 letters, digits, '_', '-' and '.', since it is part of a path",
  }),
  TOOLYARD_LOG_LEVEL: variables.shape.TOOLYARD_LOG_LEVEL,
});

/** @throws EnvironmentError naming every variable that cannot be used */
export function readNodeEnvironment(
  source: Readonly<Record<string, string | undefined>> = process.env,
): NodeEnvironment {
  const parsed = nodeVariables.safeParse(source);
  if (!parsed.success) throw new EnvironmentError(parsed.error.issues.map(describe));
  const { PATH, TOOLYARD_NODE_KEY, TOOLYARD_VCP_KEY, TOOLYARD_LOG_LEVEL } = parsed.data;
  return { key: TOOLYARD_NODE_KEY, vcpKey: TOOLYARD_VCP_KEY, path: PATH, logLevel: TOOLYARD_LOG_LEVEL };
}

/** The settings of the plugin box, which is given nothing else. */
export interface BoxEnvironment {
  readonly path: string;
  readonly memoryBytes: number;
  readonly logLevel: (typeof logLevels)[number];
  /** What it runs; whether it has a network depends on that. */
  readonly runs: "plugins" | "code";
  /** Private addresses that the blob store may have; on AWS it has none. */
  readonly egressAllow: readonly string[];
}

const boxVariables = z.object({
  PATH: z.string(),
  AWS_LAMBDA_FUNCTION_MEMORY_SIZE: z.coerce.number().int().min(1_024, "the plugin box needs 1024 MB or more"),
  TOOLYARD_LOG_LEVEL: variables.shape.TOOLYARD_LOG_LEVEL,
  TOOLYARD_BOX_IS_ALONE: z.literal("1", {
    message: "must be 1, as in the image of the plugin box, which ends every process and removes every file it can",
  }),
  TOOLYARD_BOX_RUNS: z.enum(["plugins", "code"]).default("plugins"),
  TOOLYARD_EGRESS_ALLOW: variables.shape.TOOLYARD_EGRESS_ALLOW,
  AWS_SECRET_ACCESS_KEY: z.never({ message: "must not be there; the image's entry point takes it away" }).optional(),
});

/** @throws EnvironmentError naming every variable that cannot be used */
export function readBoxEnvironment(source: Readonly<Record<string, string | undefined>> = process.env): BoxEnvironment {
  const parsed = boxVariables.safeParse(source);
  if (!parsed.success) throw new EnvironmentError(parsed.error.issues.map(describe));
  const { PATH, AWS_LAMBDA_FUNCTION_MEMORY_SIZE, TOOLYARD_LOG_LEVEL, TOOLYARD_BOX_RUNS, TOOLYARD_EGRESS_ALLOW } =
    parsed.data;
  return {
    path: PATH,
    memoryBytes: AWS_LAMBDA_FUNCTION_MEMORY_SIZE * 1024 ** 2,
    logLevel: TOOLYARD_LOG_LEVEL,
    runs: TOOLYARD_BOX_RUNS,
    egressAllow: TOOLYARD_EGRESS_ALLOW ?? [],
  };
}

const ownPrefix = "TOOLYARD_";
/** Of the deploy (infra/settings.ts), of the commands in docs/, and what programs of tests are told. */
const ofOthers = ["DOMAIN", "CERTIFICATE_ARN", "ALARM_EMAIL", "URL", "KEY", "TESTS", "SERVICES"];

function unknownIn(source: Readonly<Record<string, string | undefined>>): readonly UnknownVariable[] {
  const ours = settingNames.filter((name) => name.startsWith(ownPrefix));
  const known = new Set([
    ...ours,
    ...Object.keys(nodeVariables.shape),
    ...Object.keys(boxVariables.shape),
    ...ofOthers.map((name) => `${ownPrefix}${name}`),
  ]);
  return Object.entries(source)
    .filter(([name, value]) => name.startsWith(ownPrefix) && value !== "" && !known.has(name))
    .map(([name]) => ({ name, meant: nearest(name, ours) }));
}

/** By what follows our prefix, in which all are alike. */
function nearest(name: string, ours: readonly string[]): string | undefined {
  const own = (one: string): string => one.slice(ownPrefix.length);
  const found = nearestName(own(name), ours.map(own));
  return found === undefined ? undefined : `${ownPrefix}${found}`;
}

/** Short work must never wait behind long work, so there are two queues or none. */
function toQueues(short: string | undefined, long: string | undefined): Environment["queues"] {
  const isDatabase = short === undefined || short === "database";
  if (isDatabase && long === undefined) return undefined;
  if (isDatabase)
    throw new EnvironmentError(["QUEUE_URL: must be the URL of an SQS queue where QUEUE_LONG_URL is set"]);
  if (long === undefined) throw new EnvironmentError(["QUEUE_LONG_URL: must be set with QUEUE_URL"]);
  if (long === short) throw new EnvironmentError(["QUEUE_LONG_URL: must be another queue than QUEUE_URL"]);
  return { short, long };
}

function isKmsKey(value: string): boolean {
  return /^kms:(arn:[\w-]+:kms:[\w-]+:\d+:)?(key\/|alias\/)?[\w/-]+$/.test(value);
}

/** One that names nothing would put blobs wherever the process was started. */
function isDirectoryUrl(value: string): boolean {
  const rest = value.slice("file:".length);
  if (!value.startsWith("file:") || rest === "" || rest === "//") return false;
  try {
    return (rest.startsWith("/") ? fileURLToPath(value) : decodeURIComponent(rest)) !== "";
  } catch {
    return false;
  }
}

function isBucketUrl(value: string): boolean {
  return /^s3:\/\/[a-z0-9][a-z0-9._-]{1,62}(\/[\w!.*'()/-]*)?(\?path_style=(true|false))?$/.test(value);
}

function describe(issue: z.core.$ZodIssue): string {
  const values =
    issue.code === "invalid_value" ? `must be one of ${issue.values.map(String).join(", ")}` : issue.message;
  return `${issue.path.map(String).join(".")}: ${values}`;
}

function isUrlOf(scheme: string, value: string): boolean {
  // What a file's has behind its scheme is the database's business.
  return value.startsWith(scheme) && (scheme === "file:" || URL.canParse(value));
}

function isHttpUrl(value: string): boolean {
  if (!/^https?:\/\/\S+\s*$/.test(value) || !URL.canParse(value)) return false;
  const { username, password, search, hash } = new URL(value);
  return username === "" && password === "" && search === "" && hash === "";
}
