import { hashApiKey } from "@toolyard/core/callers/api-key";
import type { BlobStore } from "@toolyard/core/ports/blob-store";
import type { Clock } from "@toolyard/core/ports/clock";
import type { KeyVault } from "@toolyard/core/ports/key-vault";
import { Sealer } from "@toolyard/core/secrets/sealer";
import { createLocalKeyVault } from "@toolyard/platform/local/local-key-vault";
import { createFakeClock } from "@toolyard/platform/memory/fake-clock";
import { createMemoryBlobStore } from "@toolyard/platform/memory/memory-blob-store";
import { describe, expect, test } from "vitest";
import { createFakeCore, type FakeCore } from "../../test/support/fake-core.ts";
import { createApp } from "./app.ts";

interface Setup {
  readonly vault?: KeyVault;
  readonly blobs?: BlobStore;
  readonly clock?: Clock;
  readonly ping?: () => Promise<void>;
  readonly isDraining?: () => boolean;
}

const key = (fill: number): Uint8Array => new Uint8Array(32).fill(fill);

function setup({
  vault = createLocalKeyVault({ masterKey: key(1) }),
  blobs = createMemoryBlobStore(),
  clock = createFakeClock(),
  ping = () => Promise.resolve(),
  isDraining = () => false,
}: Setup): {
  readonly core: FakeCore;
  readonly ask: () => Promise<{ readonly status: number; readonly body: unknown }>;
} {
  const core = createFakeCore({ core: { blobs, clock, sealer: new Sealer(vault, clock) }, repos: { ping } });
  const app = createApp({ core, adminKeyHash: hashApiKey("operator"), version: "1", isDraining });
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
  test("is green where database, blobs and master key answer", async () => {
    expect(await setup({}).ask()).toEqual({
      status: 200,
      body: {
        status: "ok",
        checks: [
          { name: "database", ok: true },
          { name: "blobs", ok: true },
          { name: "master_key", ok: true },
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

  test("turns red when the blob store is away", async () => {
    const blobs = { ...createMemoryBlobStore(), head: () => Promise.reject(new Error("away")) };
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
