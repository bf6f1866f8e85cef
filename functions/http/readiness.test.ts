import { hashApiKey } from "@toolyard/core/callers/api-key";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { BlobStore } from "@toolyard/core/ports/blob-store";
import type { Clock } from "@toolyard/core/ports/clock";
import type { KeyVault } from "@toolyard/core/ports/key-vault";
import type { CredentialRepo } from "@toolyard/core/ports/credentials";
import type { Repos } from "@toolyard/core/ports/repos";
import type { Tenant, TenantRepo, WrappedKeySample } from "@toolyard/core/ports/tenants";
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
  readonly ping?: Repos["ping"];
  readonly queuePing?: () => Promise<void>;
  readonly isDraining?: () => boolean;
  readonly tenant?: Tenant;
  readonly getTenant?: TenantRepo["get"];
  /** Wrapped keys of tenants, by tenant. */
  readonly wrapped?: () => Promise<Readonly<Record<string, string>>>;
  readonly credentials?: () => StoredCredential[];
}

const masterKey = (fill: number, ...previous: number[]): KeyVault =>
  createLocalKeyVault({ masterKey: key(fill), previousKeys: previous.map(key) });

const toSamples = (wrapped: Readonly<Record<string, string>>): readonly WrappedKeySample[] =>
  Object.entries(wrapped).map(([tenant, wrappedKey]) => ({
    tenant,
    wrappedKey,
    wrappedBy: wrappedKey.slice(0, wrappedKey.lastIndexOf(".") + 1),
  }));

const key = (fill: number): Uint8Array => new Uint8Array(32).fill(fill);

function setup({
  vault = createLocalKeyVault({ masterKey: key(1) }),
  blobs = createMemoryBlobStore(),
  clock = createFakeClock(),
  ping = () => Promise.resolve(),
  queuePing = () => Promise.resolve(),
  isDraining = () => false,
  tenant,
  getTenant = () => Promise.resolve(tenant),
  wrapped = () => Promise.resolve({}),
  credentials = () => [],
}: Setup): {
  readonly core: FakeCore;
  readonly ask: () => Promise<{ readonly status: number; readonly body: unknown }>;
  /** A request of the operator's that looks at a tenant; its status. */
  readonly look: () => Promise<number>;
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
      tenants: {
        ...unscripted<TenantRepo>("tenants"),
        get: getTenant,
        sampleWrappedKeys: async () => toSamples(await wrapped()),
      },
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
    async look() {
      const headers = { authorization: "Bearer operator" };
      return (await app.request("/v1/tenants/ten_default", { headers })).status;
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

  test.each(["database", "blobs"] as const)(
    "%s that a request has failed at has to be written at once",
    async (part) => {
      const clock = createFakeClock();
      const store = createMemoryBlobStore();
      let isFull = false;
      const write = (): Promise<void> => (isFull ? Promise.reject(new Error("no space")) : Promise.resolve());
      const { ask, look } = setup({
        clock,
        ping: (options) => (part === "database" && options?.writes === true ? write() : Promise.resolve()),
        blobs: {
          ...store,
          put: async (...given) => (part === "blobs" ? await write() : undefined, store.put(...given)),
        },
        getTenant: () => Promise.reject(new GatewayError(`${part}_unavailable`, "There is no room.")),
      });
      expect(await ask()).toMatchObject({ status: 200 });
      isFull = true;
      await clock.advance(2_000);
      expect(await look()).toBe(503);
      expect(await ask()).toEqual(failing(part));
      await clock.advance(2_000);
      expect(await ask()).toEqual(failing(part));
      isFull = false;
      await clock.advance(2_000);
      expect(await ask()).toMatchObject({ status: 200 });
    },
  );

  test("turns red and says which when the database is away, without telling why to strangers", async () => {
    const { ask, core } = setup({ ping: () => Promise.reject(new Error("connect libsql://secret-host")) });
    const answer = await ask();
    expect(answer).toEqual(failing("database"));
    expect(JSON.stringify(answer)).not.toContain("secret-host");
    expect(core.lines.find(({ message }) => message === "not ready")?.fields).toMatchObject({ check: "database" });
  });

  test("turns red when the database can be read and not written, which it tries once a minute", async () => {
    const clock = createFakeClock();
    const asked: boolean[] = [];
    let isFull = false;
    const ping: Repos["ping"] = ({ writes = false } = {}) => {
      asked.push(writes);
      return isFull && writes ? Promise.reject(new Error("SQLITE_FULL")) : Promise.resolve();
    };
    const { ask } = setup({ clock, ping });
    expect((await ask()).status).toBe(200);
    isFull = true;
    await clock.advance(59_000);
    expect((await ask()).status).toBe(200);
    await clock.advance(2_000);
    expect(await ask()).toEqual(failing("database"));
    await clock.advance(2_000);
    expect(await ask()).toEqual(failing("database"));
    isFull = false;
    await clock.advance(2_000);
    expect((await ask()).status).toBe(200);
    expect(asked).toEqual([true, false, true, true, true]);
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

  describe(`on master keys ${verifies("BLIND-5")}`, () => {
    const wrap = async (vault: KeyVault, tenant: string): Promise<string> => vault.wrap(tenant, key(9));
    const isReady = async (given: Setup): Promise<boolean> => (await setup(given).ask()).status === 200;

    test("turns red where one is missing under which a tenant's key is wrapped, and says which to the log alone", async () => {
      const wrapped = { ten_1: await wrap(masterKey(1), "ten_1"), ten_2: await wrap(masterKey(2), "ten_2") };
      const { ask, core } = setup({ vault: masterKey(2), wrapped: () => Promise.resolve(wrapped) });
      const answer = await ask();
      expect(answer).toEqual(failing("master_key"));
      expect(JSON.stringify(answer)).toContain("TOOLYARD_PREVIOUS_MASTER_KEYS");
      expect(JSON.stringify(answer)).not.toMatch(/ten_|[0-9a-f]{12}/);
      expect(core.lines.find(({ message }) => message === "not ready")?.fields).toMatchObject({
        check: "master_key",
        code: "credential_unreadable",
        reason: expect.stringContaining(masterKey(1).currentKeyId),
      });
      expect(await isReady({ vault: masterKey(2, 1), wrapped: () => Promise.resolve(wrapped) })).toBe(true);
    });

    test("asks for none that nothing is wrapped under any more, whoever was ready with it", async () => {
      const blobs = createMemoryBlobStore();
      const old = { ten_1: await wrap(masterKey(1), "ten_1") };
      expect(await isReady({ blobs, vault: masterKey(1), wrapped: () => Promise.resolve(old) })).toBe(true);
      const rotated = { ten_1: await wrap(masterKey(2), "ten_1") };
      expect(await isReady({ blobs, vault: masterKey(2), wrapped: () => Promise.resolve(rotated) })).toBe(true);
    });

    test("stays green for one damaged key among others, and turns red where none of them opens", async () => {
      const moved = await wrap(masterKey(1), "ten_other");
      const wrapped: Record<string, string> = { ten_1: moved, ten_2: await wrap(masterKey(1), "ten_2") };
      expect(await isReady({ wrapped: () => Promise.resolve(wrapped) })).toBe(true);
      expect(await isReady({ wrapped: () => Promise.resolve({ ten_1: moved }) })).toBe(false);
    });

    test("turns red where today's cannot wrap, although there is no tenant yet", async () => {
      const vault = { ...masterKey(1), wrap: () => Promise.reject(new Error("no kms:Encrypt")) };
      expect(await setup({ vault }).ask()).toEqual(failing("master_key"));
    });

    test("reads tenants once a minute where all is well, and each ten seconds where it is not", async () => {
      const clock = createFakeClock();
      let reads = 0;
      let stored = await wrap(masterKey(1), "ten_1");
      const wrapped = (): Promise<Record<string, string>> => {
        reads += 1;
        return Promise.resolve({ ten_1: stored });
      };
      const { ask } = setup({ clock, vault: masterKey(2), wrapped });
      for (let count = 0; count < 2; count += 1) {
        expect((await ask()).status).toBe(503);
        await clock.advance(5_000);
      }
      expect(reads).toBe(1);
      expect((await ask()).status).toBe(503);
      expect(reads).toBe(2);
      stored = await wrap(masterKey(2), "ten_1");
      await clock.advance(10_000);
      for (let count = 0; count < 3; count += 1) {
        expect((await ask()).status).toBe(200);
        await clock.advance(2_000);
      }
      expect(reads).toBe(3);
      await clock.advance(60_000);
      await ask();
      expect(reads).toBe(4);
    });

    test("is not blamed where the database cannot tell which are needed", async () => {
      const away = new GatewayError("database_unavailable", "The database is away.");
      const { body } = await setup({ wrapped: () => Promise.reject(away) }).ask();
      expect(body).toMatchObject({
        checks: expect.arrayContaining([
          { name: "master_key", ok: false, detail: "Check DATABASE_URL; see the log line 'not ready'." },
        ]),
      });
    });
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

  test("asked often, asks the back ends once in two seconds, also when the clock was set back", async () => {
    let pings = 0;
    const clock = createFakeClock();
    let setBackMs = 0;
    const { ask } = setup({
      clock: { ...clock, now: () => clock.now() - setBackMs },
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
    setBackMs = 3_600_000;
    await ask();
    expect(pings).toBe(3);
  });
});
