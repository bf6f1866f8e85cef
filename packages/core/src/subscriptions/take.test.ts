import { describe, expect, test } from "vitest";
import { createFakeCore, unscripted } from "../../../../test/support/fake-core.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import type { Beginning, SubscriptionRepo } from "../ports/subscriptions.ts";
import { broughtMessageSchema } from "./message.ts";
import { noCounts, subscriptionOptionsSchema } from "./subscription.ts";
import { bodyKey, takeMessage, type Taken } from "./take.ts";

const begun = (change: Partial<Beginning> = {}): Beginning => ({
  subscription: {
    id: "sub_1",
    name: "orders",
    description: null,
    serviceId: "bus",
    topic: "orders",
    target: { uri: "plugin://create_order", arguments: {} },
    options: subscriptionOptionsSchema.parse({}),
    enabled: true,
    role: "member",
    version: 1,
    totals: noCounts,
    lastMessageAt: null,
    createdAt: 0,
    updatedAt: 0,
  },
  configVersion: 1,
  isHolder: true,
  callId: null,
  openCalls: 0,
  isNext: true,
  failed: null,
  ...change,
});

/** @returns what became of a message whose body was uploaded, and the blobs that were deleted */
async function taken(begin: () => Promise<Beginning | undefined>): Promise<[Taken["kind"] | "thrown", string[]]> {
  const deleted: string[] = [];
  const core = createFakeCore({
    repos: { subscriptions: { ...unscripted<SubscriptionRepo>("subscriptions"), begin } },
    core: {
      blobs: { ...unscripted<BlobStore>("blobs"), delete: (key) => Promise.resolve(void deleted.push(key)) },
    },
  });
  const message = broughtMessageSchema.parse({ delivery: "delivery-number-1", bytes: 20_000, uploaded: true });
  const bringing = { subscription: "sub_1", fingerprint: "f", instance: "instance-1", message };
  const kind = await takeMessage(core, "ten_1", bringing).then(
    (answer) => answer.kind,
    () => "thrown" as const,
  );
  return [kind, deleted];
}

describe(`the uploaded body of a message ${verifies("MQ-3")}`, () => {
  test.for<readonly [Taken["kind"] | "thrown", () => Promise<Beginning | undefined>]>([
    ["duplicate", () => Promise.resolve(begun({ callId: "call_1" }))],
    ["withdrawn", () => Promise.resolve(begun({ isHolder: false }))],
    ["withdrawn", () => Promise.resolve(undefined)],
    // There is no such service; the node may stop before it brings the message again.
    ["later", () => Promise.resolve(begun())],
    ["thrown", () => Promise.reject(new GatewayError("database_unavailable", "The database is away."))],
  ])("is gone once it was answered with '%s'", async ([kind, begin]) => {
    expect(await taken(begin)).toEqual([kind, [bodyKey("ten_1", "sub_1", "delivery-number-1")]]);
  });
});
