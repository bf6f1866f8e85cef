/** What every carrier of replies promises, with the one who delivers and the one who waits apart or together. */
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { Replies } from "@toolyard/core/ports/replies";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

export interface ReplyPeers {
  /** Two instances that carry the same replies. */
  readonly replies: readonly [Replies, Replies];
  close(): Promise<void>;
}

const patient = { timeoutMs: 5_000 };

export function describeReplies(name: string, make: () => Promise<ReplyPeers>): void {
  describe(`replies: ${name}`, () => {
    let peers: ReplyPeers;
    beforeAll(async () => {
      peers = await make();
    });
    afterAll(() => peers.close());

    describe.for([
      ["to the same instance", 0],
      ["to another instance", 1],
    ] as const)("%s", ([, receiver]) => {
      const deliver: Replies["deliver"] = (tenant, key, payload) =>
        peers.replies[receiver].deliver(tenant, key, payload);
      const wait: Replies["wait"] = (tenant, key, options) => peers.replies[0].wait(tenant, key, options);

      test("a reply reaches who waits for it", async () => {
        const key = randomUUID();
        const waiting = wait("ten_a", key, patient);
        await sleep(60);
        expect(await deliver("ten_a", key, '{"text":"你好 🙂"}')).toBe(true);
        expect(await waiting).toBe('{"text":"你好 🙂"}');
      });

      test("a reply may come before anyone waits, and may be empty", async () => {
        const key = randomUUID();
        await deliver("ten_a", key, "");
        expect(await wait("ten_a", key, { timeoutMs: 0 })).toBe("");
      });

      test("the first delivery wins, also when it has been taken already", async () => {
        const key = randomUUID();
        const outcomes = await Promise.all(
          Array.from({ length: 8 }, (_none, index) =>
            peers.replies[index % 2 === 0 ? 0 : 1].deliver("ten_a", key, `${index}`),
          ),
        );
        expect(outcomes.filter(Boolean)).toHaveLength(1);
        expect(await deliver("ten_a", key, "late")).toBe(false);
        expect(await wait("ten_a", key, patient)).toBe(String(outcomes.indexOf(true)));
        expect(await deliver("ten_a", key, "later")).toBe(false);
        expect(await wait("ten_a", key, { timeoutMs: 0 })).toBeUndefined();
      });

      test("of several who wait, one takes it", async () => {
        const key = randomUUID();
        const waiting = Array.from({ length: 6 }, (_none, index) =>
          peers.replies[index % 2 === 0 ? 0 : 1].wait("ten_a", key, { timeoutMs: 600 }),
        );
        await deliver("ten_a", key, "one");
        expect((await Promise.all(waiting)).filter((payload) => payload !== undefined)).toEqual(["one"]);
      });

      test("each tenant and each key has its own", async () => {
        const [key, other] = [randomUUID(), randomUUID()];
        expect(await deliver("ten_a", key, "a")).toBe(true);
        expect(await deliver("ten_b", key, "b")).toBe(true);
        expect(await wait("ten_a", other, { timeoutMs: 0 })).toBeUndefined();
        expect(await wait("ten_b", key, patient)).toBe("b");
        expect(await wait("ten_a", key, patient)).toBe("a");
      });

      test("nothing comes of waiting too long, and a later reply can still be had", async () => {
        const key = randomUUID();
        expect(await wait("ten_a", key, { timeoutMs: 80 })).toBeUndefined();
        await deliver("ten_a", key, "late");
        expect(await wait("ten_a", key, patient)).toBe("late");
      });

      test("who gives up leaves the reply to others", async () => {
        const key = randomUUID();
        const controller = new AbortController();
        const waiting = wait("ten_a", key, { timeoutMs: 5_000, signal: controller.signal });
        setTimeout(() => controller.abort(new Error("client left")), 40);
        await expect(waiting).rejects.toThrow("client left");
        await deliver("ten_a", key, "kept");
        expect(await wait("ten_a", key, patient)).toBe("kept");
        const gone = wait("ten_a", key, { timeoutMs: 5_000, signal: AbortSignal.abort(new Error("gone")) });
        await expect(gone).rejects.toThrow("gone");
      });
    });
  });
}
