/**
 * The stack as `sst deploy` would make it, without an account. Mocks show what is asked of AWS; whether AWS
 * takes it, and whether the roles suffice, shows only there (docs/deploy.md, "What was tested").
 */
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { glob, readFile } from "node:fs/promises";
import { join, posix } from "node:path";
import { defaultTiming } from "@toolyard/core/deps";
import { catalog, isErrorCode } from "@toolyard/core/errors/catalog";
import { beforeAll, describe, expect, test } from "vitest";
import { requireKeys } from "../../functions/compose.ts";
import { readEnvironment } from "../../functions/env.ts";
import { routes } from "../../functions/http/routes/index.ts";
import { streamedRoutes } from "../../functions/http/routes/streamed.ts";
import { longestSilenceMs } from "../../functions/http/silence.ts";
import { longPaths } from "../../infra/routes.ts";
import { readZip } from "./read-zip.ts";
import {
  arnOf,
  completeSettings,
  policiesOf,
  statementsOf,
  synthesize,
  type Stack,
  type Statement,
  type SynthesizedResource,
} from "./synthesis.ts";

const root = join(import.meta.dirname, "../..");

/** Names of the calls in the adapters for AWS, by the commands of its SDK that they name. */
async function callsOfAdapters(): Promise<readonly string[]> {
  const found = new Set<string>();
  for await (const file of glob("packages/platform/src/aws/**/*.ts", { cwd: root })) {
    const source = await readFile(join(root, file), "utf8");
    for (const [, call] of source.matchAll(/\b([A-Z]\w+)Command\b/g)) found.add(call ?? "");
  }
  return [...found].sort();
}

let production: Stack;
let dev: Stack;
let named: Stack;
let everything: Stack;

beforeAll(async () => {
  // One after the other: each builds the bundles where they are not there yet, as a deploy does.
  production = await synthesize("production", { ...completeSettings, TOOLYARD_ALARM_EMAIL: "ops@example.com" });
  dev = await synthesize("dev");
  named = await synthesize("production", { ...completeSettings, TOOLYARD_DOMAIN: "tools.example.com" });
  everything = await synthesize("dev", { ...completeSettings, ...everySetting });
}, 600_000);

const certificate = "arn:aws:acm:eu-central-1:123456789012:certificate/1";
const earlierKey = "arn:aws:kms:eu-central-1:123456789012:key/earlier";
/** What an operator may set beside what he must. */
const everySetting = {
  OPENAI_BASE_URL: "https://models.example.com/v1",
  TOOLYARD_DEFAULT_MODEL: "m",
  TOOLYARD_SETTINGS_CAPS: '{"rounds":5}',
  SST_SECRET_OpenaiApiKey: "sk-1",
  OTEL_EXPORTER_OTLP_ENDPOINT: "https://all.example.com",
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: "https://traces.example.com/ingest",
  OTEL_EXPORTER_OTLP_COMPRESSION: "gzip",
  OTEL_EXPORTER_OTLP_TRACES_TIMEOUT: "700",
  SST_SECRET_OtlpHeaders: "x-key=1",
  TOOLYARD_PREVIOUS_MASTER_KEYS: `kms:${earlierKey}`,
  TOOLYARD_DOMAIN: "tools.example.com",
  TOOLYARD_CERTIFICATE_ARN: certificate,
};

/** Functions with the gateway inside. */
const gatewayFunctions = ["Chat", "Api", "Ws", "WorkerShort", "WorkerLong", "Tick"];
const zippedFunctions = [...gatewayFunctions, "Migrate"];
/** Which bundle each is made of. */
const bundles: Readonly<Record<string, string>> = {
  Chat: "chat",
  Api: "api",
  Ws: "ws",
  WorkerShort: "worker",
  WorkerLong: "worker",
  Tick: "tick",
  Migrate: "migration",
};

const variablesOf = (name: string, stack = production): Record<string, string> =>
  stack.function(name).inputs["environment"].variables;
const digest = (bytes: Buffer): string => createHash("sha256").update(bytes).digest("hex");

describe("functions", () => {
  test("are the nine of the design", () => {
    expect([...production.functionNames].sort()).toEqual([...zippedFunctions, "PluginBox", "CodeBox"].sort());
    expect([...dev.functionNames].sort()).toEqual([...production.functionNames].sort());
  });

  test.each(zippedFunctions)("%s runs Node 24 on arm64", (name) => {
    expect(production.function(name).inputs).toMatchObject({
      runtime: "nodejs24.x",
      architectures: ["arm64"],
      packageType: "Zip",
      handler: `${bundles[name] ?? ""}.handler`,
    });
  });

  test.each(zippedFunctions)(
    "%s is uploaded as the bundle that the tests run, whole and without anything else",
    async (name) => {
      const files = readZip(await readFile(join(root, ".sst/artifacts", name, "code.zip")));
      const isStep = (path: string): boolean => name === "Migrate" && /^migrations\/\d{4}_\w+\.sql$/.test(path);
      const code = [...files].filter(([path]) => !isStep(path));
      expect(files.has(`${bundles[name] ?? ""}.mjs`)).toBe(true);
      expect(code.map(([path]) => path).filter((path) => !/^(chunks\/)?[\w.-]+\.[mc]js$/.test(path))).toEqual([]);
      for (const [path, bytes] of code) {
        expect(digest(bytes), path).toBe(digest(await readFile(join(root, "functions/dist", path))));
        const source = bytes.toString("utf8");
        const imported = [...source.matchAll(/(?:from|import|import\.meta\.url\))\s*\(?"(\.\.?\/[^"]+\.[mc]js)"/g)].map(
          ([, to]) => to ?? "",
        );
        expect(
          imported.filter((to) => !files.has(posix.join(posix.dirname(path), to))),
          path,
        ).toEqual([]);
      }
    },
  );

  test("are built alike each time, so a deploy changes only what has changed", () => {
    for (const name of zippedFunctions) {
      expect(dev.function(name).inputs["s3Key"]).toBe(production.function(name).inputs["s3Key"]);
    }
  });

  test.each(["Chat", "Api", "Ws", "WorkerShort", "WorkerLong", "Tick", "Migrate", "PluginBox", "CodeBox"])(
    "%s writes JSON into a log of its own, which is kept for a while",
    (name) => {
      const { logFormat, logGroup } = production.function(name).inputs["loggingConfig"];
      expect([logFormat, logGroup]).toEqual(["JSON", `/toolyard/production/${name}`]);
      const group = production.of("cloudwatch/logGroup").find(({ inputs }) => inputs["name"] === logGroup);
      expect(group?.inputs["retentionInDays"]).toBe(30);
    },
  );

  test("keep no log for ever", () => {
    for (const { name, inputs } of [...production.of("cloudwatch/logGroup"), ...dev.of("cloudwatch/logGroup")]) {
      expect(inputs["retentionInDays"], name).toBeGreaterThan(0);
    }
  });

  test("cost nothing while nobody calls, and take no part of the account's concurrency for themselves", () => {
    for (const stack of [dev, production]) {
      expect(stack.of("lambda/provisionedConcurrencyConfig")).toEqual([]);
      for (const name of stack.functionNames) {
        expect(stack.function(name).inputs["reservedConcurrentExecutions"]).toBeUndefined();
      }
      expect(stack.of("ec2/natGateway")).toEqual([]);
    }
  });

  test("are not handed an event again by Lambda's own retries", () => {
    const configured = production.of("lambda/functionEventInvokeConfig");
    expect(configured).toHaveLength(zippedFunctions.length);
    for (const { inputs } of configured) {
      // Those that had to wait for a free place are retried all the same, until they are too old.
      expect(inputs).toMatchObject({ maximumRetryAttempts: 0, maximumEventAgeInSeconds: 60 });
    }
  });
});

describe("settings", () => {
  test.each(gatewayFunctions)("%s has all of them, in a form that the gateway takes", (name) => {
    const environment = readEnvironment({ ...variablesOf(name), AWS_LAMBDA_FUNCTION_NAME: name });
    expect(requireKeys(environment)).toBeDefined();
    expect(variablesOf(name)).toMatchObject({
      DATABASE_URL: "libsql://tools-acme.turso.io",
      DATABASE_AUTH_TOKEN: "database-token",
      BLOBS_URL: `s3://${String(production.outputs["blobs"])}`,
      QUEUE_URL: expect.stringMatching(/^https:\/\/sqs\..*CallsShort/),
      QUEUE_LONG_URL: expect.stringMatching(/^https:\/\/sqs\..*CallsLong/),
      PUSH_URL: expect.stringMatching(/^https:\/\/.*\.execute-api\..*\/\$default$/),
      PLUGIN_BOX_FUNCTION: arnOf(production.function("PluginBox")),
      CODE_BOX_FUNCTION: arnOf(production.function("CodeBox")),
      TOOLYARD_PUBLIC_URL: production.outputs["url"],
      TOOLYARD_WS_URL: production.outputs["realtimeUrl"],
      TOOLYARD_ADMIN_KEY: "an-operator-key-of-some-length",
      TOOLYARD_MASTER_KEY: `kms:${arnOf(production.one("kms/key", "MasterKey"))}`,
    });
  });

  test("of the migration are those of the database and no others", () => {
    const own = Object.keys(variablesOf("Migrate")).filter((name) => !name.startsWith("SST_"));
    expect(own.sort()).toEqual(["DATABASE_AUTH_TOKEN", "DATABASE_URL"]);
  });

  test("are encrypted with a key of ours", () => {
    for (const name of zippedFunctions) {
      expect(production.function(name).inputs["kmsKeyArn"]).toBe(arnOf(production.one("kms/key", "StorageKey")));
    }
  });

  test("that an operator may add reach every function", () => {
    for (const name of gatewayFunctions) {
      expect(readEnvironment(variablesOf(name, everything))).toMatchObject({
        openaiBaseUrl: "https://models.example.com/v1",
        openaiApiKey: "sk-1",
        defaultModel: "m",
        settingsCaps: { rounds: 5 },
        previousMasterKeys: [`kms:${earlierKey}`],
        traces: expect.objectContaining({
          url: "https://traces.example.com/ingest",
          headers: { "x-key": "1" },
          gzip: true,
          timeoutMs: 700,
        }),
        unknown: [],
      });
    }
  });

  test("fit into the 4 KB that Lambda keeps, with room for what an operator may add", () => {
    for (const name of zippedFunctions) {
      const size = Object.entries(variablesOf(name, everything)).join("").length;
      expect(size, name).toBeLessThan(3_072);
    }
  });

  test("that are missing or unusable end the deploy and are named", { timeout: 600_000 }, async () => {
    const without = (name: string): Record<string, string> =>
      Object.fromEntries(Object.entries(completeSettings).filter(([other]) => other !== name));
    await expect(synthesize("dev", without("DATABASE_URL"))).rejects.toThrow(/DATABASE_URL: must be set.*\.env\.dev/);
    await expect(synthesize("dev", { ...completeSettings, DATABASE_URL: "file:a.db" })).rejects.toThrow(/DATABASE_URL/);
    await expect(synthesize("dev", without("SST_SECRET_AdminKey"))).rejects.toThrow(/AdminKey/);
    await expect(
      synthesize("dev", { ...completeSettings, TOOLYARD_DOMAIN: "https://tools.example.com" }),
    ).rejects.toThrow(/TOOLYARD_DOMAIN: must look like tools\.example\.com/);
  });
});

describe("permissions", () => {
  /** Wildcards that AWS leaves no other form for: objects of one bucket, streams of one log, connections. */
  const unavoidable = [
    /^arn:aws:s3:::[a-z0-9-]+\/\*$/,
    /^arn:aws:cloudwatch:[^*]+:\/toolyard\/[^*]+:\*$/,
    /^arn:aws:execute-api:[^*]+\/\*\/\*\/@connections\/\*$/,
  ];

  test("name their actions and their objects", () => {
    // Network interfaces have no names before they are there; see the code box.
    const roles = production.of("iam/role").filter(({ name }) => name !== "CodeBoxRole");
    const statements = roles.flatMap((role) => policiesOf(role).flatMap(statementsOf));
    expect(statements.length).toBeGreaterThan(20);
    for (const { actions, resources } of statements) {
      for (const action of actions) expect(action).not.toContain("*");
      expect(resources.length).toBeGreaterThan(0);
      for (const resource of resources.filter((one) => one.includes("*"))) {
        expect(
          unavoidable.filter((form) => form.test(resource)),
          resource,
        ).toHaveLength(1);
      }
    }
  });

  test("come from no policy of AWS, but for the account's log of API Gateway", () => {
    const managed = production.of("iam/role").filter(({ inputs }) => (inputs["managedPolicyArns"] ?? []).length > 0);
    expect(managed.filter(({ name }) => name !== "APIGatewayPushToCloudWatchLogsRole")).toEqual([]);
    expect(production.of("iam/rolePolicyAttachment")).toEqual([]);
  });

  test("are taken by the service that needs them alone", () => {
    for (const role of production.of("iam/role")) {
      const [trust, ...more] = statementsOf(role.inputs["assumeRolePolicy"]);
      expect(more, role.name).toEqual([]);
      expect(trust?.principals, role.name).toEqual([
        { type: "Service", identifiers: [expect.stringMatching(/^(lambda|scheduler|apigateway)\.amazonaws\.com$/)] },
      ]);
    }
  });

  const blobs = ["s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:ListBucket", "s3:PutObject"];
  const keys = ["kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey"];
  const logs = ["logs:CreateLogStream", "logs:PutLogEvents"];
  const sending = ["sqs:GetQueueAttributes", "sqs:SendMessage"];
  const connecting = [
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:UnassignPrivateIpAddresses",
  ];
  const gateway = [...blobs, ...keys, ...logs, ...sending, "execute-api:ManageConnections"];
  const receiving = ["sqs:ChangeMessageVisibility", "sqs:DeleteMessage", "sqs:ReceiveMessage"];

  test.each([
    ["Chat", [...gateway, "lambda:InvokeFunction"]],
    ["Api", [...gateway, "lambda:InvokeFunction"]],
    ["Ws", gateway],
    ["WorkerShort", [...gateway, ...receiving, "lambda:InvokeFunction"]],
    ["WorkerLong", [...gateway, ...receiving, "lambda:InvokeFunction"]],
    ["Tick", gateway],
    ["Migrate", logs],
    ["PluginBox", logs],
    ["CodeBox", [...logs, ...connecting]],
    ["EveryMinute", ["lambda:InvokeFunction", "sqs:SendMessage"]],
  ])("of %s are exactly these", (name, expected) => {
    const actions = new Set(production.allowed(name).flatMap((statement) => statement.actions));
    expect([...actions].sort()).toEqual([...expected].sort());
  });

  /** What a call of the AWS SDK needs; `null` where only servers make it. */
  const actionOf: Readonly<Record<string, string | null>> = {
    AbortMultipartUpload: "s3:AbortMultipartUpload",
    ChangeMessageVisibilityBatch: null,
    CompleteMultipartUpload: "s3:PutObject",
    CreateMultipartUpload: "s3:PutObject",
    Decrypt: "kms:Decrypt",
    DeleteConnection: "execute-api:ManageConnections",
    DeleteMessageBatch: null,
    DeleteObject: "s3:DeleteObject",
    Encrypt: "kms:Encrypt",
    GetObject: "s3:GetObject",
    GetQueueAttributes: "sqs:GetQueueAttributes",
    GetQueueUrl: null,
    HeadObject: "s3:GetObject",
    InvokeWithResponseStream: "lambda:InvokeFunction",
    ListObjectsV2: "s3:ListBucket",
    PostToConnection: "execute-api:ManageConnections",
    PutObject: "s3:PutObject",
    ReceiveMessage: null,
    SendMessageBatch: "sqs:SendMessage",
    UploadPart: "s3:PutObject",
  };

  test("cover every call that our adapters make", async () => {
    const allowed = new Set(production.allowed("Api").flatMap(({ actions }) => actions));
    for (const call of await callsOfAdapters()) {
      expect(Object.keys(actionOf), "what does this call need?").toContain(call);
      const action = actionOf[call] ?? null;
      expect(action === null || allowed.has(action), call).toBe(true);
    }
  });

  test("open what an earlier master key has wrapped, as long as it is named", () => {
    const found = everything.allowed("Api").filter(({ resources }) => resources.includes(earlierKey));
    expect(found.map(({ actions }) => actions)).toEqual([["kms:Decrypt"]]);
  });

  const resourcesFor = (name: string, action: string): readonly string[] =>
    production
      .allowed(name)
      .filter(({ actions }) => actions.includes(action))
      .flatMap(({ resources }) => resources);

  test("to invoke reach the two boxes, and of the scheduler the tick", () => {
    for (const name of ["Chat", "Api", "WorkerShort", "WorkerLong"]) {
      expect(resourcesFor(name, "lambda:InvokeFunction")).toEqual(
        ["PluginBox", "CodeBox"].map((box) => arnOf(production.function(box))),
      );
    }
    expect(resourcesFor("EveryMinute", "lambda:InvokeFunction")).toEqual([arnOf(production.function("Tick"))]);
  });

  test("to invoke from outside have the two doors alone, each for its functions, and nobody has an address of its own", () => {
    const doorOf = (api: SynthesizedResource | undefined): string =>
      `arn:aws:execute-api:eu-central-1:123456789012:${String(api?.inputs["name"] ?? api?.name)}`;
    const http = doorOf(production.one("apigateway/restApi"));
    const sockets = doorOf(production.of("apigatewayv2/api")[0]);
    const allowed = new Map<string, Set<string>>();
    for (const { inputs, name } of production.of("lambda/permission")) {
      expect(inputs, name).toMatchObject({ action: "lambda:InvokeFunction", principal: "apigateway.amazonaws.com" });
      const [door = "", ...rest] = String(inputs["sourceArn"]).split("/");
      expect([http, sockets], name).toContain(door);
      expect(rest.length, name).toBeGreaterThan(0);
      const fn = production.functionOfArn(String(inputs["function"]));
      allowed.set(fn, (allowed.get(fn) ?? new Set()).add(door));
    }
    expect(Object.fromEntries([...allowed].map(([fn, doors]) => [fn, [...doors]]))).toEqual({
      Chat: [http],
      Api: [http],
      Ws: [sockets],
    });
    expect(production.of("lambda/functionUrl")).toEqual([]);
  });

  test("to receive are for the own queue", () => {
    expect(resourcesFor("WorkerShort", "sqs:ReceiveMessage")).toEqual([expect.stringContaining("CallsShortQueue")]);
    expect(resourcesFor("WorkerLong", "sqs:ReceiveMessage")).toEqual([expect.stringContaining("CallsLongQueue")]);
  });

  test("for the master key do not come with those for blobs", () => {
    const master = arnOf(production.one("kms/key", "MasterKey"));
    const storage = arnOf(production.one("kms/key", "StorageKey"));
    const of = (key: string): string[] =>
      production
        .allowed("Chat")
        .filter(({ resources }) => resources.includes(key))
        .flatMap(({ actions }) => actions)
        .sort();
    expect(of(master)).toEqual(["kms:Decrypt", "kms:Encrypt"]);
    const [masterUse] = production.allowed("Chat").filter(({ resources }) => resources.includes(master));
    expect(masterUse?.conditions).toEqual([
      { test: "Null", variable: "kms:EncryptionContext:tenant", values: ["false"] },
    ]);
    expect(of(storage)).toEqual(["kms:Decrypt", "kms:GenerateDataKey"]);
  });
});

const deniesPlainHttp = ({ effect, conditions }: Statement): boolean =>
  effect === "Deny" &&
  JSON.stringify(conditions) === JSON.stringify([{ test: "Bool", values: ["false"], variable: "aws:SecureTransport" }]);

describe("blobs", () => {
  test("are encrypted with a key of ours, closed to the public and reached by TLS alone", () => {
    expect(production.one("s3/bucketServerSideEncryptionConfiguration").inputs["rules"]).toEqual([
      {
        applyServerSideEncryptionByDefault: {
          sseAlgorithm: "aws:kms",
          kmsMasterKeyId: arnOf(production.one("kms/key", "StorageKey")),
        },
        bucketKeyEnabled: true,
      },
    ]);
    expect(production.one("s3/bucketPublicAccessBlock").inputs).toMatchObject({
      blockPublicAcls: true,
      blockPublicPolicy: true,
      ignorePublicAcls: true,
      restrictPublicBuckets: true,
    });
    const statements = statementsOf(production.one("s3/bucketPolicy").inputs["policy"]);
    expect(statements.some(deniesPlainHttp)).toBe(true);
    expect(statements.every(({ effect }) => effect === "Deny")).toBe(true);
    // Links are used by browsers, too; they can neither list nor delete.
    const [cors] = production.one("s3/bucketCorsConfiguration").inputs["corsRules"];
    expect(cors.allowedMethods).toEqual(["GET", "HEAD", "PUT"]);
    // The headers that links ask to be sent, and a range of what is large.
    expect(cors.allowedHeaders).toEqual(expect.arrayContaining(["content-type", "if-none-match", "range"]));
  });

  test("outlive the stack in production, where old versions are kept for a month; elsewhere they go with it", () => {
    expect(production.one("s3/bucket")).toMatchObject({ retainOnDelete: true, inputs: { forceDestroy: false } });
    expect(production.one("s3/bucketVersioning").inputs["versioningConfiguration"]).toEqual({ status: "Enabled" });
    expect(dev.one("s3/bucket")).toMatchObject({ retainOnDelete: false, inputs: { forceDestroy: true } });
    expect(dev.of("s3/bucketVersioning")).toEqual([]);
    const rules = production.one("s3/bucketLifecycleConfiguration").inputs["rules"];
    expect(rules).toContainEqual(expect.objectContaining({ noncurrentVersionExpiration: { noncurrentDays: 30 } }));
    expect(rules).toContainEqual(
      expect.objectContaining({ abortIncompleteMultipartUpload: { daysAfterInitiation: 1 } }),
    );
  });
});

describe("keys", () => {
  test.each(["MasterKey", "StorageKey"])("%s rotates, and is protected and retained in production", (name) => {
    expect(production.one("kms/key", name)).toMatchObject({
      protect: true,
      retainOnDelete: true,
      inputs: { enableKeyRotation: true, deletionWindowInDays: 30 },
    });
    expect(dev.one("kms/key", name)).toMatchObject({
      protect: false,
      retainOnDelete: false,
      inputs: { enableKeyRotation: true, deletionWindowInDays: 7 },
    });
  });
});

describe("stages", () => {
  test("production is protected and retained, every other is removed whole", () => {
    expect(production.app).toMatchObject({ protect: true, removal: "retain", home: "aws" });
    expect(dev.app).toMatchObject({ protect: false, removal: "remove", home: "aws" });
    expect(dev.resources.filter((resource) => resource.protect)).toEqual([]);
    // What SST keeps is of the account, not of the stage.
    const kept = dev.resources.filter((resource) => resource.retainOnDelete).map(({ name }) => name);
    expect(kept.filter((name) => !name.includes("APIGateway"))).toEqual([]);
    const forced = (stack: typeof dev): unknown[] =>
      stack.of("ecr/repository").map(({ inputs }) => inputs["forceDelete"]);
    expect(forced(dev)).toEqual([true, true]);
    expect(forced(production)).toEqual([false, false]);
  });

  test("tag what they make", () => {
    expect(dev.app["providers"]).toMatchObject({ aws: { defaultTags: { tags: { "toolyard:stage": "dev" } } } });
  });
});

describe("queues", () => {
  const subscriptions = (): readonly SynthesizedResource[] => production.of("lambda/eventSourceMapping");
  const queueOf = (mapping: SynthesizedResource): SynthesizedResource => {
    const found = production.of("sqs/queue").find((queue) => arnOf(queue) === mapping.inputs["eventSourceArn"]);
    if (found === undefined) throw new Error("a subscription to no queue of ours");
    return found;
  };

  test("are worked by one function each", () => {
    const workers = subscriptions().map((one) => [
      queueOf(one).name,
      production.functionOfArn(String(one.inputs["functionName"])),
    ]);
    expect(workers).toHaveLength(2);
    expect(Object.fromEntries(workers)).toEqual({ CallsLongQueue: "WorkerLong", CallsShortQueue: "WorkerShort" });
  });

  test("hide a message for six times its function's time, and longer than that where it is batched", () => {
    for (const subscription of subscriptions()) {
      const { timeout } = production.function(
        production.functionOfArn(String(subscription.inputs["functionName"])),
      ).inputs;
      const window = Number(subscription.inputs["maximumBatchingWindowInSeconds"]);
      expect(queueOf(subscription).inputs["visibilityTimeoutSeconds"]).toBeGreaterThanOrEqual(6 * timeout + window);
    }
  });

  test("keep a message for longer than it takes to be given up", () => {
    for (const subscription of subscriptions()) {
      const { visibilityTimeoutSeconds, redrivePolicy, messageRetentionSeconds } = queueOf(subscription).inputs;
      const { maxReceiveCount } = JSON.parse(redrivePolicy);
      expect(messageRetentionSeconds).toBeGreaterThan(2 * maxReceiveCount * visibilityTimeoutSeconds);
    }
  });

  test("are worked by functions that have the time for what is sent there", () => {
    // What is sent again goes to the short one, too, and flows do; both plan with what an invocation may last.
    for (const name of ["WorkerShort", "WorkerLong"]) {
      expect(production.function(name).inputs["timeout"]).toBeGreaterThan(840);
      expect(production.function(name).inputs["timeout"]).toBeGreaterThan(defaultTiming.invocationMs / 1_000 + 60);
    }
  });

  test("get back only the messages that failed, and hold back what would be too much at once", () => {
    for (const { inputs } of subscriptions()) {
      expect(inputs["functionResponseTypes"]).toEqual(["ReportBatchItemFailures"]);
      // AWS takes 2 at least; the account has 1,000 for everything.
      expect(inputs["scalingConfig"].maximumConcurrency).toBeGreaterThanOrEqual(2);
      expect(inputs["scalingConfig"].maximumConcurrency).toBeLessThanOrEqual(100);
      // Without a window AWS takes no larger ones.
      expect(inputs["batchSize"]).toBeLessThanOrEqual(10);
    }
    for (const { inputs } of dev.of("lambda/eventSourceMapping")) {
      expect(inputs["scalingConfig"].maximumConcurrency).toBeLessThanOrEqual(5);
    }
    const long = subscriptions().find((one) => queueOf(one).name === "CallsLongQueue");
    expect(long?.inputs["batchSize"]).toBe(1);
  });

  test("give a message up after five receipts to a queue that keeps it for two weeks", () => {
    for (const name of ["CallsShort", "CallsLong"]) {
      const { redrivePolicy } = production.one("sqs/queue", `${name}Queue`).inputs;
      const { deadLetterTargetArn, maxReceiveCount } = JSON.parse(redrivePolicy);
      const dead = production.one("sqs/queue", `${name}DeadLettersQueue`);
      expect([deadLetterTargetArn, maxReceiveCount]).toEqual([arnOf(dead), 5]);
      expect(dead.inputs["messageRetentionSeconds"]).toBe(14 * 86_400);
    }
  });

  test("are encrypted and reached by TLS alone", () => {
    const queues = production.of("sqs/queue");
    expect(queues).toHaveLength(5);
    for (const { inputs } of queues) {
      expect(inputs["sqsManagedSseEnabled"]).toBe(true);
      // Fair sharing by `MessageGroupId` is a thing of standard queues.
      expect(inputs["fifoQueue"]).toBe(false);
    }
    const policies = production.of("sqs/queuePolicy");
    expect(policies).toHaveLength(queues.length);
    for (const { inputs } of policies) expect(statementsOf(inputs["policy"]).some(deniesPlainHttp)).toBe(true);
  });
});

describe("the REST API", () => {
  const integrations = (): readonly SynthesizedResource[] => production.of("apigateway/integration");
  const functionBehind = ({ inputs }: SynthesizedResource): string =>
    production.functionOfArn(/functions\/(arn:[^/]+)\//.exec(String(inputs["uri"]))?.[1] ?? "");

  /** Every path of the API with the function behind it. */
  function paths(): ReadonlyMap<string, string> {
    const resources = production.of("apigateway/resource");
    const pathOf = (id: string): string => {
      const resource = resources.find(({ name }) => `${name}-id` === id);
      if (resource === undefined) return "";
      return `${pathOf(String(resource.inputs["parentId"]))}/${String(resource.inputs["pathPart"])}`;
    };
    return new Map(integrations().map((one) => [pathOf(String(one.inputs["resourceId"])) || "/", functionBehind(one)]));
  }

  /** As API Gateway finds one, taking the literal child where there is one, and never going back. */
  function find(path: string): string | undefined {
    const all = paths();
    let at = "";
    for (const part of path.split("/").filter((one) => one !== "")) {
      const isParent = [...all.keys()].some((one) => one === `${at}/${part}` || one.startsWith(`${at}/${part}/`));
      if (!isParent) return all.get(`${at}/{proxy+}`);
      at = `${at}/${part}`;
    }
    return all.get(at === "" ? "/" : at);
  }

  test("is regional, and passes bodies on as they are", () => {
    const { endpointConfiguration, binaryMediaTypes } = production.one("apigateway/restApi").inputs;
    expect(endpointConfiguration).toEqual({ types: "REGIONAL" });
    expect(binaryMediaTypes).toEqual(["*/*"]);
  });

  test("streams every answer, for as long as the function may take", () => {
    expect(integrations().length).toBeGreaterThan(10);
    for (const integration of integrations()) {
      const name = functionBehind(integration);
      expect(integration.inputs).toMatchObject({
        type: "AWS_PROXY",
        responseTransferMode: "STREAM",
        uri: expect.stringMatching(/2021-11-15\/functions\/.*\/response-streaming-invocations$/),
        timeoutMilliseconds: 1_000 * production.function(name).inputs["timeout"],
      });
    }
    expect(production.function("Chat").inputs["timeout"]).toBe(900);
    // What API Gateway gives up first is on record all the same.
    expect(1_000 * production.function("Api").inputs["timeout"]).toBeGreaterThan(longestSilenceMs + 10_000);
  });

  test("lets the app answer every method, preflight requests included", () => {
    for (const { inputs } of production.of("apigateway/method")) {
      expect(inputs).toMatchObject({ httpMethod: "ANY", authorization: "NONE" });
    }
  });

  test("gives every route to the function that has the time for it", () => {
    for (const [name, { path, responses }] of Object.entries(routes)) {
      const own = Object.values(responses).some(
        (response) => response.content !== undefined && "text/event-stream" in response.content,
      );
      // What lies under the address of one that streams goes with it.
      const streams = own || longPaths.some((long) => path === long || path.startsWith(`${long}/`));
      // A function can only be given what it serves.
      const served = streams ? Object.keys(streamedRoutes) : Object.keys(routes);
      expect(served).toContain(name);
      const concrete = path.replaceAll(/\{[^}]+\}/g, "some-thing");
      expect([name, find(concrete)]).toEqual([name, streams ? "Chat" : "Api"]);
    }
  });

  test("reaches a function with every path there is", () => {
    for (const path of ["/", "/mcp", "/mcp/crm", "/v1", "/v1/chat", "/v1/chat/x", "/v1/chat/completions/x", "/a/b/c"]) {
      expect(find(path), path).toBeDefined();
    }
    expect([find("/mcp"), find("/mcp/crm"), find("/v1/chatvcp/completions")]).toEqual(["Chat", "Chat", "Chat"]);
  });

  test("answers by itself in the shape and with the codes of the gateway", () => {
    const answers = production.of("apigateway/response");
    expect(answers.map(({ inputs }) => String(inputs["responseType"])).sort()).toEqual([
      "DEFAULT_4XX",
      "DEFAULT_5XX",
      "MISSING_AUTHENTICATION_TOKEN",
      "REQUEST_TOO_LARGE",
      "THROTTLED",
    ]);
    for (const { inputs } of answers) {
      const body = String(inputs["responseTemplates"]["application/json"]).replace(
        "$context.error.messageString",
        '"something"',
      );
      const { error } = JSON.parse(body) as { readonly error: Readonly<Record<string, string>> };
      expect(error).toMatchObject({ message: "something", param: null, request_id: "$context.requestId" });
      const code = error["code"] ?? "";
      if (!isErrorCode(code)) throw new Error(`${code} is not in the catalog`);
      const spec = catalog[code];
      expect(error["type"]).toBe(spec.type);
      expect(inputs["statusCode"] ?? String(spec.http)).toBe(String(spec.http));
    }
    const { after, inputs } = production.one("apigateway/deployment");
    expect(answers.every(({ urn }) => after.includes(urn))).toBe(true);
    expect(inputs["triggers"].responses).toContain("payload_too_large");
  });

  test("logs no path and no query, which may hold tokens", () => {
    const { accessLogSettings, xrayTracingEnabled } = production.one("apigateway/stage").inputs;
    expect(accessLogSettings.destinationArn).toMatch(/^arn:/);
    const logged = JSON.stringify(accessLogSettings.format);
    expect(logged).toContain("$context.resourcePath");
    expect(logged).not.toMatch(/\$context\.(path|customDomain|authorizer)|querystring/i);
    expect(xrayTracingEnabled ?? false).toBe(false);
  });
});

describe("the WebSocket API", () => {
  test("sends connecting, disconnecting and every frame to one function", () => {
    const keys = production.of("apigatewayv2/route").map(({ inputs }) => String(inputs["routeKey"]));
    expect(keys.sort()).toEqual(["$connect", "$default", "$disconnect"]);
    const targets = production.of("apigatewayv2/integration").map(({ inputs }) => String(inputs["integrationUri"]));
    expect(new Set(targets).size).toBe(1);
    expect(targets[0]).toContain(arnOf(production.function("Ws")));
    expect(production.function("Ws").inputs["timeout"]).toBeLessThanOrEqual(29);
    // Frames of ours have no `action`, so all of them go to `$default`.
    expect(production.of("apigatewayv2/api")[0]?.inputs).toMatchObject({
      protocolType: "WEBSOCKET",
      routeSelectionExpression: "$request.body.action",
    });
  });
});

describe("the log of the WebSocket API", () => {
  test("has no query and no header, which may hold tickets", () => {
    const [stage] = production.of("apigatewayv2/stage");
    const logged = JSON.stringify(stage?.inputs["accessLogSettings"].format);
    expect(logged).toContain("$context.connectionId");
    expect(logged).not.toMatch(/querystring|\$context\.(path|authorizer|requestOverride)|header/i);
  });
});

describe("the tick", () => {
  test("is started every minute, not late and not by others", () => {
    const { inputs } = production.one("scheduler/schedule");
    expect(inputs).toMatchObject({
      scheduleExpression: "rate(1 minute)",
      flexibleTimeWindow: { mode: "OFF" },
      state: "ENABLED",
      target: {
        arn: arnOf(production.function("Tick")),
        roleArn: arnOf(production.one("iam/role", "EveryMinuteRole")),
        retryPolicy: { maximumRetryAttempts: 1, maximumEventAgeInSeconds: 60 },
        deadLetterConfig: { arn: arnOf(production.one("sqs/queue", "TickDeadLettersQueue")) },
      },
    });
    const [trust] = statementsOf(production.one("iam/role", "EveryMinuteRole").inputs["assumeRolePolicy"]);
    expect(trust?.conditions).toEqual([
      { test: "StringEquals", variable: "aws:SourceAccount", values: ["123456789012"] },
    ]);
    // Two never run at once, and one has nearly the whole minute.
    expect(production.function("Tick").inputs["timeout"]).toBeLessThan(60);
    expect(production.function("Tick").inputs["timeout"]).toBeGreaterThanOrEqual(50);
  });
});

describe("the plugin box", () => {
  test("is an image of its own with an environment for each tenant, and knows nothing", () => {
    const { inputs } = production.function("PluginBox");
    expect(inputs).toMatchObject({
      packageType: "Image",
      architectures: ["arm64"],
      tenancyConfig: { tenantIsolationMode: "PER_TENANT" },
      imageUri: expect.stringMatching(/@sha256:/),
    });
    expect(inputs["memorySize"]).toBeGreaterThanOrEqual(1_024);
    expect(inputs["ephemeralStorage"].size).toBeGreaterThanOrEqual(1_024);
    // As long as the longest of those who wait for it.
    const waiting = ["Chat", "Api", "WorkerShort", "WorkerLong"].map((name) => production.function(name));
    expect(inputs["timeout"]).toBe(Math.max(...waiting.map((one) => Number(one.inputs["timeout"]))));
    expect(inputs["environment"]).toBeUndefined();
    expect(inputs["vpcConfig"]).toBeUndefined();
  });

  test("comes from a Dockerfile that is there, built for one platform and looked at for known faults", () => {
    const images = production.resources.filter(({ type }) => type === "docker-build:index:Image");
    expect(images.map(({ name }) => name).sort()).toEqual(["CodeBoxImage", "PluginBoxImage"]);
    for (const image of images) {
      expect(image.inputs).toMatchObject({ platforms: ["linux/arm64"], push: true });
      for (const part of ["context", "dockerfile"]) {
        expect(existsSync(String(image.inputs[part].location)), part).toBe(true);
      }
    }
    for (const repository of production.of("ecr/repository")) {
      expect(repository.inputs["imageScanningConfiguration"]).toEqual({ scanOnPush: true });
    }
  });
});

describe("the code box", () => {
  test("is an image of its own with an environment for each tenant", () => {
    const { inputs } = production.function("CodeBox");
    expect(inputs).toMatchObject({
      packageType: "Image",
      tenancyConfig: { tenantIsolationMode: "PER_TENANT" },
      imageUri: expect.stringMatching(/code-box.*@sha256:|@sha256:/),
    });
    expect(inputs["environment"]).toBeUndefined();
  });

  test("has both an environment for each tenant and a network of ours, which tenant isolation does not exclude", () => {
    const { tenancyConfig, vpcConfig, snapStart } = production.function("CodeBox").inputs;
    expect(tenancyConfig).toEqual({ tenantIsolationMode: "PER_TENANT" });
    expect(vpcConfig.subnetIds).toHaveLength(2);
    // What it does exclude, by AWS's list.
    expect(snapStart).toBeUndefined();
    for (const excluded of ["functionUrl", "provisionedConcurrencyConfig", "eventSourceMapping"]) {
      for (const { inputs } of production.of(`lambda/${excluded}`)) {
        expect(JSON.stringify(inputs), excluded).not.toContain("code-box");
      }
    }
  });

  test("is in a network that leads to our bucket by links and nowhere else, by routes, by rules and by names", () => {
    const network = production.one("ec2/vpc");
    expect(network.inputs).toMatchObject({ enableDnsSupport: false });
    for (const way of ["internetGateway", "natGateway", "egressOnlyInternetGateway", "route", "vpcPeeringConnection"]) {
      expect(production.of(`ec2/${way}`), way).toEqual([]);
    }
    const endpoint = production.one("ec2/vpcEndpoint");
    expect(endpoint.inputs).toMatchObject({
      vpcEndpointType: "Gateway",
      serviceName: "com.amazonaws.eu-central-1.s3",
    });
    expect(statementsOf(endpoint.inputs["policy"])).toEqual([
      expect.objectContaining({
        effect: "Allow",
        actions: ["s3:GetObject"],
        resources: [expect.stringMatching(/^arn:aws:s3:::[\w-]*blobs[\w-]*\/\*$/i)],
      }),
    ]);
    expect(production.one("ec2/defaultSecurityGroup").inputs).toMatchObject({ ingress: [], egress: [] });
    const group = production.one("ec2/securityGroup").inputs;
    expect(group["ingress"]).toEqual([]);
    expect(group["egress"]).toEqual([
      { protocol: "tcp", fromPort: 443, toPort: 443, prefixListIds: [expect.anything()] },
    ]);
    const packets = production.one("ec2/defaultNetworkAcl").inputs;
    expect(packets["egress"]).toMatchObject([{ protocol: "tcp", fromPort: 443, toPort: 443 }]);
    expect(packets["ingress"]).toMatchObject([{ protocol: "tcp", fromPort: 1_024, toPort: 65_535 }]);
    expect(production.function("CodeBox").inputs["vpcConfig"].securityGroupIds).toHaveLength(1);
  });

  test("has rights on its network for Lambda alone, not for what runs in it", () => {
    const denied = production.allowed("CodeBox").filter((statement) => statement.effect === "Deny");
    expect(denied).toHaveLength(1);
    expect(denied[0]).toMatchObject({
      conditions: [
        { variable: "lambda:SourceFunctionArn", values: ["arn:*:lambda:*:*:function:toolyard-production-code-box"] },
      ],
    });
  });
});

describe("a migration", () => {
  test("is done before any function gets new code, and again when the code or the database is another", () => {
    const migrated = production.one("lambda/invocation");
    expect(migrated.inputs).toMatchObject({
      functionName: production.function("Migrate").inputs["name"],
      triggers: {
        code: production.function("Migrate").inputs["s3Key"],
        database: variablesOf("Migrate")["DATABASE_URL"],
      },
    });
    expect(production.function("Migrate").inputs["timeout"]).toBe(900);
    for (const name of gatewayFunctions) expect(production.function(name).after).toContain(migrated.urn);
  });
});

describe("alarms", () => {
  const alarms = (): readonly SynthesizedResource[] => production.of("cloudwatch/metricAlarm");
  const on = (metric: string): readonly string[] =>
    alarms()
      .filter(({ inputs }) => inputs["metricName"] === metric)
      .map(({ name }) => name.replace(/(Depth|Age|Errors|Throttles|Duration)?Alarm$/, ""))
      .sort();

  test("watch dead letters, ages, errors, throttles, durations, faults and the scheduler", () => {
    expect(on("ApproximateNumberOfMessagesVisible")).toEqual([
      "CallsLongDeadLetters",
      "CallsShortDeadLetters",
      "TickDeadLetters",
    ]);
    expect(on("ApproximateAgeOfOldestMessage")).toEqual(["CallsLong", "CallsShort"]);
    const all = [...gatewayFunctions, "PluginBox", "CodeBox"].sort();
    expect(on("Errors")).toEqual(all);
    expect(on("Throttles")).toEqual(all);
    expect(on("Duration")).toEqual(all);
    expect(on("5XXError")).toEqual(["Http5xx"]);
    expect(on("InvocationDroppedCount")).toEqual(["SchedulerDropped"]);
    expect(on("Invocations")).toEqual(["TickMissing"]);
  });

  test("name what exists, and tell somebody", () => {
    const topic = production.one("sns/topic");
    const names = new Set(production.resources.map(({ inputs }) => String(inputs["name"] ?? "")));
    for (const { name, inputs } of alarms()) {
      expect(inputs["alarmActions"], name).toEqual([arnOf(topic)]);
      const dimensions = Object.entries(inputs["dimensions"] as Readonly<Record<string, string>>);
      const named = dimensions.filter(([dimension]) => ["FunctionName", "QueueName", "ApiName"].includes(dimension));
      for (const [, value] of named) expect(names, name).toContain(value);
    }
    expect(production.one("sns/topicSubscription").inputs).toMatchObject({
      protocol: "email",
      endpoint: "ops@example.com",
    });
    expect(named.of("sns/topicSubscription")).toEqual([]);
  });

  test("go off at the first dead letter, at calls that wait, and before a function runs out of its time", () => {
    const of = (metric: string): readonly SynthesizedResource[] =>
      alarms().filter(({ inputs }) => inputs["metricName"] === metric);
    for (const { name, inputs } of alarms()) {
      const isTick = name === "TickMissingAlarm";
      expect(inputs["comparisonOperator"], name).toBe(isTick ? "LessThanThreshold" : "GreaterThanThreshold");
      // Seen within a quarter of an hour.
      expect(inputs["period"] * inputs["evaluationPeriods"], name).toBeLessThanOrEqual(900);
      expect(inputs["okActions"], name).toEqual(inputs["alarmActions"]);
    }
    for (const { inputs } of of("ApproximateNumberOfMessagesVisible")) {
      expect(inputs).toMatchObject({ namespace: "AWS/SQS", statistic: "Maximum", threshold: 0, period: 60 });
    }
    for (const { inputs } of of("ApproximateAgeOfOldestMessage")) {
      expect(inputs).toMatchObject({ namespace: "AWS/SQS", statistic: "Maximum" });
      const queue = production.of("sqs/queue").find((one) => one.inputs["name"] === inputs["dimensions"].QueueName);
      // One in hand counts, and may be for as long as the function runs, which is no fault.
      const runsFor = production.function("WorkerShort").inputs["timeout"];
      expect(inputs["threshold"]).toBeGreaterThan(runsFor);
      // A message that is held counts as well: the alarm comes before the first of them is handed over again.
      expect(inputs["threshold"]).toBeLessThan(queue?.inputs["visibilityTimeoutSeconds"]);
    }
    for (const metric of ["Errors", "Throttles"]) {
      for (const { inputs } of of(metric)) {
        expect(inputs).toMatchObject({ namespace: "AWS/Lambda", statistic: "Sum", threshold: 0 });
      }
    }
    for (const { inputs } of of("Duration")) {
      const watched = production
        .of("lambda/function")
        .find((one) => one.inputs["name"] === inputs["dimensions"].FunctionName);
      expect(inputs).toMatchObject({ namespace: "AWS/Lambda", extendedStatistic: "p99" });
      expect(inputs["threshold"]).toBeLessThan(1_000 * watched?.inputs["timeout"]);
    }
    for (const [metric, namespace] of [
      ["5XXError", "AWS/ApiGateway"],
      ["RealtimeFaults", "Toolyard/production"],
    ] as const) {
      expect(of(metric), metric).toHaveLength(1);
      for (const { inputs } of of(metric)) {
        expect(inputs).toMatchObject({ namespace, statistic: "Sum" });
        expect(inputs["threshold"]).toBeLessThanOrEqual(5);
      }
    }
    expect(of("Invocations")[0]?.inputs).toMatchObject({ namespace: "AWS/Lambda", statistic: "Sum", threshold: 1 });
  });

  test("look where AWS counts: at stages and at the group of the schedule", () => {
    const dimensionsOf = (name: string): unknown => production.one("cloudwatch/metricAlarm", name).inputs["dimensions"];
    expect(dimensionsOf("Http5xxAlarm")).toEqual({
      ApiName: production.one("apigateway/restApi").inputs["name"],
      Stage: production.one("apigateway/stage").inputs["stageName"],
    });
    expect(dimensionsOf("SchedulerDroppedAlarm")).toEqual({
      ScheduleGroup: production.one("scheduler/schedule").inputs["groupName"] ?? "default",
    });
  });

  test("count faults of WebSockets by the lines of their function, where refusals are none", async () => {
    const { pattern, logGroupName, metricTransformation } = production.one("cloudwatch/logMetricFilter").inputs;
    expect(logGroupName).toBe(production.function("Ws").inputs["loggingConfig"].logGroup);
    const alarm = production.one("cloudwatch/metricAlarm", "RealtimeFaultsAlarm").inputs;
    expect(metricTransformation).toEqual({ namespace: alarm["namespace"], name: alarm["metricName"], value: "1" });
    expect(alarm["dimensions"]).toEqual({});
    const [, level, message = ""] = /^\{ \$\.level = "(\w+)" && \$\.msg = "([^"]+)" \}$/.exec(String(pattern)) ?? [];
    expect(level).toBe("error");
    expect(await readFile(join(root, "functions/realtime/lambda.ts"), "utf8")).toContain(`"${message}"`);
  });

  test("take silence for a fault of the tick alone", () => {
    for (const { name, inputs } of alarms()) {
      expect(inputs["treatMissingData"], name).toBe(name === "TickMissingAlarm" ? "breaching" : "notBreaching");
    }
  });

  test("and the dashboard cost nothing in other stages", () => {
    expect(dev.of("cloudwatch/metricAlarm")).toEqual([]);
    expect(dev.of("cloudwatch/dashboard")).toEqual([]);
  });

  test("have a page that shows the same", () => {
    const { widgets } = JSON.parse(String(production.one("cloudwatch/dashboard").inputs["dashboardBody"]));
    const titles = widgets.map(
      (widget: { readonly properties: { readonly title: string } }) => widget.properties.title,
    );
    expect(titles).toEqual(expect.arrayContaining(["Requests", "Errors", "Queued", "Dead letters"]));
    for (const { properties } of widgets) {
      for (const metric of properties.metrics) expect(metric.length).toBeGreaterThanOrEqual(5);
    }
  });
});

describe("a domain of one's own", () => {
  test("is served with its WebSocket beside it, and no longer under the address of AWS", () => {
    expect(named.outputs["url"]).toBe("https://tools.example.com");
    expect(variablesOf("Chat", named)["TOOLYARD_PUBLIC_URL"]).toBe("https://tools.example.com");
    expect(named.one("apigateway/domainName").inputs).toMatchObject({
      domainName: "tools.example.com",
      endpointConfiguration: { types: "REGIONAL" },
    });
    expect(named.one("apigateway/restApi").inputs["disableExecuteApiEndpoint"]).toBe(true);
    expect(named.one("apigatewayv2/domainName").inputs).toMatchObject({
      domainName: "ws.tools.example.com",
      domainNameConfiguration: { securityPolicy: "TLS_1_2", endpointType: "REGIONAL" },
    });
    // Neither takes anything older than TLS 1.2.
    expect(named.one("apigateway/domainName").inputs["securityPolicy"]).toBe("TLS_1_2");
    // Frames are pushed through the API's own address, so that one stays open.
    expect(named.of("apigatewayv2/api")[0]?.inputs["disableExecuteApiEndpoint"] ?? false).toBe(false);
    expect(variablesOf("Chat", named)["PUSH_URL"]).toContain(".execute-api.");
  });

  test("may come with a certificate, and then DNS is left alone", () => {
    expect(everything.one("apigateway/domainName").inputs["regionalCertificateArn"]).toBe(certificate);
    expect(everything.of("route53/record")).toEqual([]);
    expect(named.of("route53/record")).not.toEqual([]);
  });
});
