import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { openDatabase } from "@toolyard/db/client";
import { migrate } from "@toolyard/db/migrate";
import type { Sealer } from "@toolyard/core/secrets/sealer";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { encodeBoxFrame } from "@toolyard/core/boxes/box-protocol";
import { newSigner } from "../support/aws/aws-server.ts";
import { startConnectionsServer } from "../support/aws/connections-server.ts";
import { startKmsServer } from "../support/aws/kms-server.ts";
import { startLambdaServer } from "../support/aws/lambda-server.ts";
import { startS3Server } from "../support/aws/s3-server.ts";
import type { Signer } from "../support/aws/sigv4.ts";
import { startSqsServer } from "../support/aws/sqs-server.ts";
import { startHranaServer } from "../support/hrana-server.ts";
import { startHttpStub } from "../support/http-stub.ts";
import { verifies } from "../support/verifies.ts";
import { compose, ensureTenant, requireKeys, type Composition, type Home } from "../../functions/compose.ts";
import { EnvironmentError, readEnvironment } from "../../functions/env.ts";

let directory: string;
const closing: (() => Promise<void>)[] = [];

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "toolyard-compose-"));
});
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
  vi.unstubAllEnvs();
  await rm(directory, { recursive: true, force: true });
});

async function composed(env: Record<string, string> = {}, home: Partial<Home> = {}): Promise<Composition> {
  const composition = await compose(readEnvironment(env), {
    log: { log: () => undefined },
    metrics: { count: () => undefined, observe: () => undefined },
    publicUrl: "http://127.0.0.1:8787",
    adminKey: "an-operator-key-of-some-length",
    masterKey: "ab".repeat(32),
    dataDir: directory,
    egressAllow: ["127.0.0.0/8"],
    migrates: true,
    readsAllSchemes: true,
    sendsTraces: false,
    ...home,
  });
  closing.push(() => composition.close());
  return composition;
}

async function codeOf(promise: Promise<unknown>): Promise<string> {
  return promise.then(
    () => "no error",
    (error: unknown) => (error instanceof GatewayError ? error.code : String(error)),
  );
}

/** The SDK reads these by itself. */
function stubAws(signer: Signer, endpoints: Readonly<Record<string, string>>): void {
  const { accessKeyId, secretAccessKey } = signer;
  const all = { AWS_REGION: "eu-west-1", AWS_ACCESS_KEY_ID: accessKeyId, AWS_SECRET_ACCESS_KEY: secretAccessKey };
  for (const [name, value] of Object.entries({ ...all, ...endpoints })) vi.stubEnv(name, value);
}

const ask = (composition: Composition, url: string): Promise<unknown> =>
  composition.app.core.egress.request({ method: "GET", url, headers: [], timeoutMs: 2_000 });

describe("a gateway put together from settings", () => {
  test("keeps database and blobs in the data directory where nothing else is said", async () => {
    const { app } = await composed();
    await app.core.repos.ping();
    await app.core.blobs.put("ten_a/x", Buffer.from("1"));
    expect(await readdir(directory)).toEqual(expect.arrayContaining(["toolyard.db", "blobs"]));
    expect(app.core.defaultProvider).toBeUndefined();
  });

  test("puts them where it is told, absolute or from the working directory", async () => {
    const { app } = await composed(
      { DATABASE_URL: `file:${directory}/elsewhere/a.db`, BLOBS_URL: `file:${directory}/my%20blobs` },
      { dataDir: undefined },
    );
    await app.core.blobs.put("ten_a/x", Buffer.from("1"));
    expect((await readdir(directory)).sort()).toEqual(["elsewhere", "my blobs"]);
  });

  test("without a data directory asks for both by name", async () => {
    await expect(composed({}, { dataDir: undefined })).rejects.toThrow(/DATABASE_URL: must be set/);
    await expect(composed({ DATABASE_URL: `file:${directory}/a.db` }, { dataDir: undefined })).rejects.toThrow(
      /BLOBS_URL: must be set/,
    );
  });

  test("tells of variables that are spelled like settings and are none", async () => {
    const lines: unknown[] = [];
    const log: Home["log"] = { log: (level, message, fields) => void lines.push({ level, message, fields }) };
    await composed({ TOOLYARD_EGRESS_ALOW: "10.0.0.0/8", TOOLYARD_EGRESS_ALLOW: "10.1.0.0/16" }, { log });
    expect(lines).toEqual([
      {
        level: "warn",
        message: "a variable that is no setting was passed over",
        fields: { reason: "There is no 'TOOLYARD_EGRESS_ALOW'; 'TOOLYARD_EGRESS_ALLOW' may be meant." },
      },
    ]);
  });

  test("does not migrate where that is another step's work", async () => {
    expect(await codeOf(composed({}, { migrates: false }))).toBe("conflict");
  });

  test(`mirrors the native tools into the plugin table ${verifies("BLIND-4", "NATIVE-1")}`, async () => {
    await composed();
    const database = await openDatabase({ url: `file:${directory}/toolyard.db` });
    closing.push(() => database.close());
    const [found] = await database.batch([
      { sql: "SELECT name, type FROM sys_ai_plugin WHERE tenant IS NULL", args: [] },
    ]);
    expect(found?.rows).toContainEqual({ name: "write_file", type: "NATIVE" });
  });

  test("takes the operator's model back end from the settings", async () => {
    const { app } = await composed({ OPENAI_API_KEY: "sk-1", TOOLYARD_DEFAULT_MODEL: "m" });
    expect(app.core.defaultProvider).toEqual({ baseUrl: "https://api.openai.com/v1", apiKey: "sk-1", model: "m" });
    const other = await composed({ OPENAI_BASE_URL: "http://127.0.0.1:11434/v1" });
    expect(other.app.core.defaultProvider).toEqual({ baseUrl: "http://127.0.0.1:11434/v1" });
  });

  test("lets tools reach what the home allows, what the setting says instead, and never our own services", async () => {
    const server = await startHranaServer({ file: join(directory, "server.db") });
    closing.push(() => server.close());
    const opened = await openDatabase({ url: server.url });
    await migrate(opened);
    await opened.close();
    const stub = await startHttpStub();
    closing.push(() => stub.close());

    const collector = await startHttpStub();
    closing.push(() => collector.close());

    const open = await composed({ DATABASE_URL: server.url, OTEL_EXPORTER_OTLP_ENDPOINT: collector.url });
    expect(await codeOf(ask(open, stub.url))).toBe("no error");
    expect(await codeOf(ask(open, collector.url))).toBe("egress_denied");
    expect(await codeOf(ask(open, server.url))).toBe("egress_denied");
    expect(await codeOf(ask(open, server.url.replace("127.0.0.1", "localhost")))).toBe("egress_denied");

    const closed = await composed({ DATABASE_URL: server.url, TOOLYARD_EGRESS_ALLOW: "" });
    expect(await codeOf(ask(closed, stub.url))).toBe("egress_denied");
  });

  test("uses services of AWS one by one as the settings name them, and keeps tools away from them", async () => {
    const signer = newSigner();
    const [s3, sqs] = [await startS3Server("bucket", { signer }), await startSqsServer(signer)];
    const connections = await startConnectionsServer(signer);
    const lambda = await startLambdaServer(
      "box",
      async function* () {
        yield encodeBoxFrame({ type: "exit", exitCode: 7, ended: "exit", durationMs: 1 });
      },
      signer,
    );
    for (const server of [s3, sqs, connections, lambda]) closing.push(() => server.close());
    const endpoints = { AWS_ENDPOINT_URL_S3: s3.url, AWS_ENDPOINT_URL_LAMBDA: lambda.url };
    stubAws(signer, endpoints);
    const composition = await composed({
      ...endpoints,
      BLOBS_URL: "s3://bucket/some/prefix/",
      QUEUE_URL: sqs.urls.short,
      QUEUE_LONG_URL: sqs.urls.long,
      PUSH_URL: connections.stageUrl,
      PLUGIN_BOX_FUNCTION: "box",
    });
    await composition.app.core.blobs.put("ten_a/x", Buffer.from("1"));
    expect([...s3.objects.keys()]).toEqual(["some/prefix/ten_a/x"]);
    // Links lead to the bucket, and where an answer would be too large, clients are sent there.
    const link = await composition.app.core.blobs.presign("ten_a/x", { method: "GET", expiresInMs: 60_000 });
    expect([new URL(link.url).origin, composition.app.blobLinks]).toEqual([s3.url, undefined]);
    await composition.queue.send("long", [{ tenant: "ten_a", callId: "call_1" }]);
    expect(sqs.bodies("long")).toHaveLength(1);
    expect(await composition.push?.send("aGVsbG8=", "frame")).toBe("gone");
    const run = { tenant: "ten_a", environment: {}, stdin: "", timeoutMs: 1_000, maxOutputBytes: 1_000 };
    expect(await composition.app.core.tenantPlugins?.run({ ...run, command: ["true"] })).toMatchObject({ exitCode: 7 });
    for (const url of [s3.url, sqs.url, lambda.url, connections.url]) {
      expect(await codeOf(ask(composition, url))).toBe("egress_denied");
    }
    const local = await composed();
    expect([local.push, local.app.blobLinks]).toEqual([undefined, expect.objectContaining({})]);
  });

  test(`moves from a master key of its own to KMS and back, and reads everything on the way ${verifies("BLIND-5")}`, async () => {
    const kms = await startKmsServer();
    closing.push(() => kms.close());
    stubAws(kms.credentials, { AWS_ENDPOINT_URL_KMS: kms.url });
    kms.addKey("alias/toolyard");
    const [local, cloud] = ["ab".repeat(32), "kms:alias/toolyard"];
    const withKeys = async (masterKey: string, ...previous: readonly string[]): Promise<Sealer> =>
      (await composed({ TOOLYARD_PREVIOUS_MASTER_KEYS: previous.join(" ") }, { masterKey })).app.core.sealer;

    const before = await withKeys(local);
    const first = await before.newTenantKey("ten_1");
    const sealed = await before.seal("ten_1", first, ["x"], "a value");
    const moved = await withKeys(cloud, local);
    expect(await moved.open("ten_1", first, ["x"], sealed)).toBe("a value");
    const second = await moved.rewrapTenantKey("ten_1", first);
    expect(await (await withKeys(cloud)).open("ten_1", second, ["x"], sealed)).toBe("a value");
    expect(await codeOf((await withKeys(cloud)).open("ten_1", first, ["x"], sealed))).toBe("credential_unreadable");
    const back = await withKeys(local, cloud);
    expect(await back.open("ten_1", second, ["x"], sealed)).toBe("a value");
    expect(
      await (await withKeys(local)).open("ten_1", await back.rewrapTenantKey("ten_1", second), ["x"], sealed),
    ).toBe("a value");
  });

  test("tells who listens when a message has been sent", async () => {
    const composition = await composed();
    let sent = 0;
    composition.onSent = () => {
      sent += 1;
    };
    await composition.queue.send("short", [{ tenant: "ten_a", callId: "call_1" }]);
    expect(sent).toBe(1);
    expect(await composition.queue.receive("short", { limit: 1, visibilityMs: 1_000 })).toMatchObject([
      { callId: "call_1" },
    ]);
  });
});

describe("the first tenant", () => {
  test("is made once, by however many processes at a time, and left as it is afterwards", async () => {
    const [one, two] = [await composed(), await composed()];
    const tenant = { id: "ten_default", name: "default" };
    await Promise.all([one, two, one, two].map(({ app }) => ensureTenant(app.core, tenant)));
    await one.app.core.repos.tenants.update("ten_default", { name: "renamed" });
    await ensureTenant(two.app.core, tenant);
    expect((await one.app.core.repos.tenants.get("ten_default"))?.name).toBe("renamed");
  });
});

test("a function is told which keys it lacks", () => {
  expect(() => requireKeys(readEnvironment({}))).toThrow(EnvironmentError);
  expect(() => requireKeys(readEnvironment({ TOOLYARD_ADMIN_KEY: "an-operator-key-of-some-length" }))).toThrow(
    /TOOLYARD_MASTER_KEY: must be set/,
  );
});
