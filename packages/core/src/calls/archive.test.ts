import { describe, expect, test } from "vitest";
import { createFakeCore, unscripted } from "../../../../test/support/fake-core.ts";
import { createMemoryBlobStore } from "../../../../test/support/memory-ports.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import type { ArchiveRepo, ClaimedArchive } from "../ports/archives.ts";
import type { CallRepo } from "../ports/calls.ts";
import { archiveCalls } from "./archive.ts";

const day = Date.parse("2026-10-01T00:00:00Z");

function archiveOf(id: string): ClaimedArchive {
  return {
    tenant: "ten_a",
    id,
    day,
    kept: true,
    calls: [{ id: `call_${id}`, call: undefined, blobKey: `ten_a/${id}` }],
  };
}

/** @param isThere what `finish` says: the tenant has not been erased */
function setup(blobs: BlobStore, { isThere = true } = {}) {
  const waiting = [archiveOf("1"), archiveOf("2")];
  const finished: string[] = [];
  const core = createFakeCore({
    core: { blobs },
    repos: {
      calls: { ...unscripted<CallRepo>("calls"), costsBelow: async () => new Map() },
      archives: {
        ...unscripted<ArchiveRepo>("archives"),
        claim: async () => waiting.splice(0, 1),
        finish: async (_tenant, id, { calls }) => {
          if (isThere) finished.push(`${id}: ${calls}`);
          return isThere;
        },
      },
    },
  });
  return { core, finished, waiting };
}

describe(`archiving calls ${verifies("CHAT-13")}`, () => {
  test("writes each archive before its calls go, and the results' blobs in between", async () => {
    const memory = createMemoryBlobStore();
    const steps: string[] = [];
    const blobs: BlobStore = {
      ...memory,
      put: async (key, ...rest) => (steps.push(`put ${key}`), memory.put(key, ...rest)),
      delete: async (key) => void steps.push(`delete ${key}`),
    };
    const { core, finished } = setup(blobs);
    expect([await archiveCalls(core), await archiveCalls(core), await archiveCalls(core)]).toEqual([true, true, false]);
    expect(steps).toEqual([
      "put ten_a/archive/calls/2026-10-01/1",
      "delete ten_a/1",
      "put ten_a/archive/calls/2026-10-01/2",
      "delete ten_a/2",
    ]);
    expect(finished).toEqual(["1: 1", "2: 1"]);
    const [{ bytes } = { bytes: 0 }] = await memory.list("ten_a/archive/");
    expect(bytes).toBe(Buffer.byteLength('{"id":"call_1","object":"call","unreadable":true}\n'));
  });

  test("lets no call go where its archive cannot be written, and begins no other one", async () => {
    const blobs: BlobStore = {
      ...createMemoryBlobStore(),
      put: () => Promise.reject(new GatewayError("blobs_unavailable", "The disk is full.")),
      delete: () => Promise.reject(new Error("nothing is to be deleted")),
    };
    const { core, finished, waiting } = setup(blobs);
    expect(await archiveCalls(core)).toBe(false);
    expect(finished).toEqual([]);
    expect(waiting).toHaveLength(1);
    expect(core.lines.at(-1)).toMatchObject({ level: "error", fields: { archive: "1", error: "blobs_unavailable" } });
  });

  test("leaves nothing of a tenant that was erased meanwhile", async () => {
    const blobs = createMemoryBlobStore();
    await archiveCalls(setup(blobs, { isThere: false }).core);
    expect(await blobs.list("")).toEqual([]);
  });
});
