import { hashApiKey } from "@toolyard/core/callers/api-key";
import type { BlobStore } from "@toolyard/core/ports/blob-store";
import type { Clock } from "@toolyard/core/ports/clock";
import type { KeyVault } from "@toolyard/core/ports/key-vault";
import type { CredentialRepo, Tenant, TenantRepo } from "@toolyard/core/ports/repos";
import type { StoredCredential } from "@toolyard/core/secrets/credential";
import type { TaskQueue } from "@toolyard/core/ports/task-queue";
import { Sealer } from "@toolyard/core/secrets/sealer";
import { createLocalKeyVault } from "@toolyard/platform/local/local-key-vault";
import { createFakeClock } from "@toolyard/platform/memory/fake-clock";
import { createMemoryBlobStore } from "@toolyard/platform/memory/memory-blob-store";
import { describe, expect, test } from "vitest";
import { createFakeCore, unscripted, type FakeCore } from "../../test/support/fake-core.ts";
import { verifies } from "../../test/support/verifies.ts";
import { createApp } from "./app.ts";
import { routes } from "./routes/index.ts";

interface Setup {
  readonly vault?: KeyVault;
  readonly blobs?: BlobStore;
  readonly clock?: Clock;
  readonly ping?: () => Promise<void>;
  readonly queuePing?: () => Promise<void>;
  readonly isDraining?: () => boolean;
  readonly tenant?: Tenant;
  readonly credentials?: () => StoredCredential[];
}

const key = (fill: number): Uint8Array => new Uint8Array(32).fill(fill);

function setup({
  vault = createLocalKeyVault({ masterKey: key(1) }),
  blobs = createMemoryBlobStore(),
  clock = createFakeClock(),
  ping = () => Promise.resolve(),
  queuePing = () => Promise.resolve(),
  isDraining = () => false,
  tenant,
  credentials = () => [],
}: Setup): {
  readonly core: FakeCore;
  readonly ask: () => Promise<{ readonly status: number; readonly body: unknown }>;
} {
  const core = createFakeCore({
    core: {
      blobs,
      clock,
      queue: { ...unscripted<TaskQueue>("queue"), ping: queuePing },
      sealer: new Sealer(vault, clock),
    },
    repos: {
      ping,
      tenants: { ...unscripted<TenantRepo>("tenants"), get: () => Promise.resolve(tenant) },
      credentials: { ...unscripted<CredentialRepo>("credentials"), all: () => Promise.resolve(credentials()) },
    },
  });
  const app = createApp({ core, adminKeyHash: hashApiKey("operator"), version: "1", isDraining }, routes);
  return {
    core,
    async ask() {
      const answer = await app.request("/health/ready");
      return { status: answer.status, body: await answer.json() };
    },
  };
}

const failing = (name: string): object => ({
  status: 503,
  body: { status: "failing", checks: expect.arrayContaining([expect.objectContaining({ name, ok: false })]) },
});

describe("readiness", () => {
  test("is green where database, blobs, queue and master key answer", async () => {
    expect(await setup({}).ask()).toEqual({
      status: 200,
      body: {
        status: "ok",
        checks: [
          { name: "database", ok: true },
          { name: "blobs", ok: true },
          { name: "queue", ok: true },
          { name: "master_key", ok: true },
          { name: "credentials", ok: true },
        ],
      },
    });
  });

  test("turns red and says which when the database is away, without telling why to strangers", async () => {
    const { ask, core } = setup({ ping: () => Promise.reject(new Error("connect libsql://secret-host")) });
    const answer = await ask();
    expect(answer).toEqual(failing("database"));
    expect(JSON.stringify(answer)).not.toContain("secret-host");
    expect(core.lines.find(({ message }) => message === "not ready")?.fields).toMatchObject({ check: "database" });
  });

  test("turns red when the blob store or the queue is away, and names the setting", async () => {
    const blobs = { ...createMemoryBlobStore(), list: () => Promise.reject(new Error("away")) };
    const withoutBlobs = await setup({ blobs }).ask();
    expect(withoutBlobs).toEqual(failing("blobs"));
    expect(JSON.stringify(withoutBlobs)).toContain("BLOBS_URL");
    const withoutQueue = await setup({ queuePing: () => Promise.reject(new Error("away")) }).ask();
    expect(withoutQueue).toEqual(failing("queue"));
    expect(JSON.stringify(withoutQueue)).toContain("QUEUE_URL");
  });

  test("turns red when the blob store overwrites what it was told to keep", async () => {
    const kept = createMemoryBlobStore();
    const blobs: BlobStore = { ...kept, put: (name, body) => kept.put(name, body) };
    expect(await setup({ blobs }).ask()).toEqual(failing("blobs"));
  });

  test("turns red when an earlier master key is missing, and green when it is given", async () => {
    const blobs = createMemoryBlobStore();
    expect((await setup({ blobs }).ask()).status).toBe(200);
    const other = setup({ blobs, vault: createLocalKeyVault({ masterKey: key(2) }) });
    expect(await other.ask()).toEqual(failing("master_key"));
    const rotated = createLocalKeyVault({ masterKey: key(2), previousKeys: [key(1)] });
    expect((await setup({ blobs, vault: rotated }).ask()).status).toBe(200);
  });

  test("turns red when what was sealed has been changed", async () => {
    const blobs = createMemoryBlobStore();
    await setup({ blobs }).ask();
    const [canary] = await blobs.list("_canary/");
    await blobs.put(canary?.key ?? "", Buffer.from('{"wrappedKey":"x","sealed":"y"}'));
    expect(await setup({ blobs }).ask()).toEqual(failing("master_key"));
  });

  test(`shows how many credentials cannot be opened, and goes on serving ${verifies("BLIND-5")}`, async () => {
    const clock = createFakeClock();
    const vault = createLocalKeyVault({ masterKey: key(1) });
    const sealer = new Sealer(vault, clock);
    const wrappedKey = await sealer.newTenantKey("ten_1");
    const rowOf = async (name: string, sealedAs: string): Promise<StoredCredential> => ({
      name,
      level: "tenant",
      version: 1,
      sealed: await sealer.seal("ten_1", wrappedKey, ["tenant", "", sealedAs, "1"], "a value"),
    });
    const rows = [
      await rowOf("GOOD", "GOOD"),
      await rowOf("MOVED", "OTHER"),
      { ...(await rowOf("CUT", "CUT")), sealed: "{" },
    ];
    const { core, ask } = setup({
      clock,
      vault,
      tenant: { id: "ten_1", name: "one", status: "active", wrappedKey, settings: {}, configVersion: 1, createdAt: 0 },
      credentials: () => rows,
    });
    // Nothing is looked for as long as nobody has met one.
    expect(await ask()).toMatchObject({ status: 200, body: { status: "ok" } });
    await core.sealer
      .open("ten_1", wrappedKey, ["tenant", "", "MOVED", "1"], rows[1]?.sealed ?? "")
      .catch(() => undefined);
    await clock.advance(2_000);
    const answer = await ask();
    expect(answer).toMatchObject({
      status: 200,
      body: {
        status: "degraded",
        checks: expect.arrayContaining([expect.objectContaining({ name: "credentials", ok: false })]),
      },
    });
    expect(JSON.stringify(answer)).toContain("2 stored credentials");
    expect(JSON.stringify(answer)).not.toMatch(/MOVED|CUT|ten_1/);
    rows.splice(1, 2);
    await clock.advance(2_000);
    expect(await ask()).toMatchObject({ status: 200, body: { status: "ok" } });
    expect(core.sealer.doubtfulTenants).toEqual([]);
  });

  test("turns red once the process has been told to stop", async () => {
    expect(await setup({ isDraining: () => true }).ask()).toEqual(failing("draining"));
  });

  test("asked often, asks the back ends once in two seconds", async () => {
    let pings = 0;
    const clock = createFakeClock();
    const { ask } = setup({
      clock,
      ping: () => {
        pings += 1;
        return Promise.resolve();
      },
    });
    await Promise.all([ask(), ask(), ask()]);
    expect(pings).toBe(1);
    await clock.advance(2_000);
    await ask();
    expect(pings).toBe(2);
  });
});
