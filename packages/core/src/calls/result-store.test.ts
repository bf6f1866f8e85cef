import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { callContext } from "../../../../test/support/call-context.ts";
import { createMemoryBlobStore } from "../../../../test/support/memory-ports.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import type { CallContext } from "../context.ts";
import { readAll, type BlobStore } from "../ports/blob-store.ts";
import { deliveryOf } from "../errors/delivery.ts";
import type { Call, StoredOutcome } from "./call.ts";
import { openOwnResult, openResult, shapeReply } from "./result-store.ts";

const callId = "call_1";

function contextWith(settings: Record<string, number> = {}, secrets: readonly string[] = []): CallContext {
  return callContext({ settings, secrets });
}

function depsWith(blobs: BlobStore = createMemoryBlobStore()): {
  blobs: BlobStore;
  logged: string[];
  log: { log: (level: string, message: string) => void };
} {
  const logged: string[] = [];
  return { blobs, logged, log: { log: (_level, message) => void logged.push(message) } };
}

function ended(outcome: StoredOutcome | null, state: Call["state"] = "completed"): Call {
  return { id: callId, tenant: "ten_a", state, outcome, error: null } as unknown as Call;
}

async function wholeOf(blobs: BlobStore, stored: StoredOutcome): Promise<string> {
  const { body } = await openResult({ blobs }, "ten_a", ended(stored));
  return Buffer.from(await readAll(body)).toString("utf8");
}

describe(`results of tool calls ${verifies("BLIND-8", "CHAT-13")}`, () => {
  it("reach the model byte for byte where they are short", async () => {
    const deps = depsWith();
    const body = '{"id": 9007199254740993,  "name":"北京"}';
    const { outcome, stored } = await shapeReply(deps, contextWith(), callId, { mediaType: "application/json", body });
    expect(outcome).toEqual({ kind: "completed", text: body, mediaType: "application/json" });
    expect(stored).toEqual({ text: body, mediaType: "application/json", bytes: Buffer.byteLength(body) });
    expect(await deps.blobs.list("")).toEqual([]);
    expect(await wholeOf(deps.blobs, stored)).toBe(body);
  });

  it("are cut beyond the cap, with a handle to the whole", async () => {
    const deps = depsWith();
    const body = "0123456789".repeat(500);
    const { outcome, stored } = await shapeReply(deps, contextWith({ result_bytes: 1_000 }), callId, {
      mediaType: "text/plain",
      body,
    });
    expect(Buffer.byteLength(outcome.text)).toBeLessThanOrEqual(1_000);
    const [head = "", notice = ""] = outcome.text.split("\n");
    expect(body.startsWith(head)).toBe(true);
    expect(notice).toBe(
      `[cut: ${head.length} of 5000 bytes shown; read on with read_result {"call_id":"call_1","offset":${head.length}}, or with "line", "jsonpath" or "grep"]`,
    );
    expect(outcome.handle).toEqual({ callId, bytes: 5_000, mediaType: "text/plain" });
    expect(stored.text).toBe(outcome.text);
    expect(await wholeOf(deps.blobs, stored)).toBe(body);
  });

  it("are cut after a line where one ends near the cap", async () => {
    const body = "a line of text\n".repeat(500);
    const { outcome } = await shapeReply(depsWith(), contextWith({ result_bytes: 1_000 }), callId, {
      mediaType: "text/plain",
      body,
    });
    const head = outcome.text.slice(0, outcome.text.lastIndexOf("\n["));
    expect(head.endsWith("a line of text\n")).toBe(true);
  });

  it("are never cut inside a character", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.string({ unit: "grapheme", minLength: 300, maxLength: 900 }),
        fc.integer({ min: 256, max: 600 }),
        async (body, most) => {
          const { outcome } = await shapeReply(depsWith(), contextWith({ result_bytes: most }), callId, {
            mediaType: "text/plain",
            body,
          });
          expect(Buffer.byteLength(outcome.text)).toBeLessThanOrEqual(most);
          if (outcome.handle === undefined) return;
          const head = outcome.text.slice(0, outcome.text.lastIndexOf("\n["));
          expect(Buffer.from(body).subarray(0, Buffer.byteLength(head)).toString("utf8")).toBe(head);
        },
      ),
      { numRuns: 50 },
    );
  });

  it("that are not text are kept whole and described, never spelled out", async () => {
    const deps = depsWith();
    const image = Uint8Array.from([0x89, 0x50, 0x4e, 0x47, 0, 255, 254]);
    const { outcome, stored } = await shapeReply(deps, contextWith(), callId, { mediaType: "image/png", body: image });
    expect(outcome.text).toBe(
      "[binary result: image/png, 7 bytes; kept whole behind the handle call_1: GET /v1/calls/call_1/result]",
    );
    expect(outcome.handle).toEqual({ callId, bytes: 7, mediaType: "image/png" });
    const opened = await openResult(deps, "ten_a", ended(stored));
    expect(opened).toMatchObject({ mediaType: "image/png", bytes: 7 });
    expect([...(await readAll(opened.body))]).toEqual([...image]);
  });

  it("that are not text show what is known of them, without secrets", async () => {
    const details = { key: "a.png", etag: "abc", note: "sentinel-of-a-secret" };
    const reply = { mediaType: "image/png", body: Uint8Array.from([0x89, 0xff]), details };
    const { outcome } = await shapeReply(depsWith(), contextWith({}, ["sentinel-of-a-secret"]), callId, reply);
    const [described = "", known = ""] = outcome.text.split("\n");
    expect(described).toMatch(/^\[binary result: image\/png, 2 bytes; /);
    expect(JSON.parse(known)).toEqual({ key: "a.png", etag: "abc", note: "[redacted]" });
  });

  it("are refused beyond what the tenant keeps, as answered", async () => {
    const error: unknown = await shapeReply(depsWith(), contextWith({ result_max_bytes: 2_000 }), callId, {
      mediaType: "text/plain",
      body: "x".repeat(2_001),
    }).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({
      code: "tool_output_too_large",
      message: expect.stringContaining("result_max_bytes") as string,
    });
    expect(deliveryOf(error)).toBe("answered");
  });
});

describe(`secrets in results ${verifies("BLIND-6")}`, () => {
  const secret = "sk-sentinel-0123456789";

  it("are taken out before anything is cut or stored", async () => {
    const deps = depsWith();
    // The secret lies across the place of the cut.
    for (let before = 700; before < 1_000; before += 7) {
      const id = `call_${before}`;
      const body = `${"x".repeat(before)}${secret}${"y".repeat(500)}`;
      const shaped = await shapeReply(deps, contextWith({ result_bytes: 1_000 }, [secret]), id, {
        mediaType: "text/plain",
        body,
      });
      const texts = [shaped.outcome.text, await wholeOf(deps.blobs, shaped.stored)];
      for (const text of texts) expect(text).not.toMatch(/sk-sent|inel-01/);
    }
  });

  it("are taken out of bytes, too", async () => {
    const deps = depsWith();
    const body = Buffer.concat([Buffer.from([0, 255]), Buffer.from(secret), Buffer.from([254])]);
    const { stored } = await shapeReply(deps, contextWith({}, [secret]), callId, {
      mediaType: "application/zip",
      body,
    });
    expect(await wholeOf(deps.blobs, stored)).not.toContain("sentinel");
  });
});

describe(`a result stored by another attempt ${verifies("BLIND-8")}`, () => {
  it("is adopted by the one that comes second", async () => {
    const deps = depsWith();
    const context = contextWith({ result_bytes: 300 });
    const first = await shapeReply(deps, context, callId, {
      mediaType: "application/json",
      body: `["${"first ".repeat(100)}"]`,
    });
    const second = await shapeReply(deps, context, callId, { mediaType: "text/plain", body: "second ".repeat(100) });
    expect(second).toEqual(first);
  });

  it("is adopted by all of many at once", async () => {
    const deps = depsWith();
    const context = contextWith({ result_bytes: 300 });
    const shaped = await Promise.all(
      Array.from({ length: 20 }, (_, at) =>
        shapeReply(deps, context, callId, { mediaType: "text/plain", body: `${at} `.repeat(300) }),
      ),
    );
    expect(new Set(shaped.map((each) => each.outcome.text)).size).toBe(1);
  });

  it("is adopted where it is binary", async () => {
    const deps = depsWith();
    const first = await shapeReply(deps, contextWith(), callId, {
      mediaType: "image/png",
      body: Uint8Array.from([0x89, 255]),
    });
    const second = await shapeReply(deps, contextWith(), callId, {
      mediaType: "image/png",
      body: Uint8Array.from([0x89, 254, 1]),
    });
    expect(second).toEqual(first);
  });
});

describe("a blob store that fails", () => {
  it("does not make a tool's work look undone", async () => {
    const deps = depsWith({ ...createMemoryBlobStore(), put: () => Promise.reject(new Error("disk full")) });
    const { outcome, stored } = await shapeReply(deps, contextWith({ result_bytes: 300 }), callId, {
      mediaType: "text/plain",
      body: "x".repeat(900),
    });
    expect(outcome.text).toContain("the rest could not be kept");
    expect(outcome.handle).toBeUndefined();
    expect(stored.blobKey).toBeUndefined();
    expect(deps.logged).toEqual(["a tool result could not be stored"]);
  });
});

describe(`reading a result again ${verifies("CHAT-13")}`, () => {
  it("gives parts of inline and of stored results alike", async () => {
    const deps = depsWith();
    const long = await shapeReply(deps, contextWith({ result_bytes: 300 }), callId, {
      mediaType: "text/plain",
      body: "0123456789".repeat(50),
    });
    for (const stored of [long.stored, { text: "0123456789", mediaType: "text/plain", bytes: 10 }]) {
      const opened = await openResult(deps, "ten_a", ended(stored), { start: 2, end: 5 });
      expect(Buffer.from(await readAll(opened.body)).toString()).toBe("234");
      expect(opened.bytes).toBe(stored.bytes);
    }
  });

  it("says why there is none", async () => {
    const deps = depsWith();
    await expect(openResult(deps, "ten_a", ended(null, "running"))).rejects.toMatchObject({
      code: "call_not_finished",
    });
    await expect(openResult(deps, "ten_a", ended(null, "failed"))).rejects.toMatchObject({ code: "not_found" });
    const gone = { text: "head", mediaType: "text/plain", bytes: 9, blobKey: "ten_a/results/key_1/call_1" };
    await expect(openResult(deps, "ten_a", ended(gone))).rejects.toMatchObject({ code: "not_found" });
    await expect(openResult(deps, "ten_b", ended(gone))).rejects.toMatchObject({ code: "not_found" });
  });

  it("finds one's own before its row is written, and nobody else's", async () => {
    const deps = depsWith();
    const context = contextWith({ result_bytes: 300 });
    await shapeReply(deps, context, callId, { mediaType: "text/plain", body: "x".repeat(900) });
    expect((await openOwnResult(deps, context, callId))?.bytes).toBe(900);
    const other = { ...context, caller: { ...context.caller, id: "key_2" } };
    expect(await openOwnResult(deps, other, callId)).toBeUndefined();
    expect(await openOwnResult(deps, { ...context, tenant: "ten_b" }, callId)).toBeUndefined();
    expect(await openOwnResult(deps, context, "../key_1/call_1")).toBeUndefined();
  });
});
