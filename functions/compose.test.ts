import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { openDatabase } from "@toolyard/db/client";
import { migrate } from "@toolyard/db/migrate";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { startHranaServer } from "../test/support/hrana-server.ts";
import { startHttpStub } from "../test/support/http-stub.ts";
import { verifies } from "../test/support/verifies.ts";
import { compose, ensureTenant, requireKeys, type Composition, type Home } from "./compose.ts";
import { EnvironmentError, readEnvironment } from "./env.ts";

let directory: string;
const closing: (() => Promise<void>)[] = [];

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "toolyard-compose-"));
});
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
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

  test("lets tools reach what the home allows, what the setting says instead, and never its own database", async () => {
    const server = await startHranaServer({ file: join(directory, "server.db") });
    closing.push(() => server.close());
    const opened = await openDatabase({ url: server.url });
    await migrate(opened);
    await opened.close();
    const stub = await startHttpStub();
    closing.push(() => stub.close());

    const open = await composed({ DATABASE_URL: server.url });
    expect(await codeOf(ask(open, stub.url))).toBe("no error");
    expect(await codeOf(ask(open, server.url))).toBe("egress_denied");
    expect(await codeOf(ask(open, server.url.replace("127.0.0.1", "localhost")))).toBe("egress_denied");

    const closed = await composed({ DATABASE_URL: server.url, TOOLYARD_EGRESS_ALLOW: "" });
    expect(await codeOf(ask(closed, stub.url))).toBe("egress_denied");
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
