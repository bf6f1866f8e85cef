import { expect, test } from "vitest";
import { createFakeCore } from "../../../../../test/support/fake-core.ts";
import { verifies } from "../../../../../test/support/verifies.ts";
import type { Call } from "../../calls/call.ts";
import type { Connection } from "../../realtime/connection.ts";
import { missedFrames } from "./client-frames.ts";
import { vcpLogClient } from "./client-types.ts";

test(`what still waits for a decision is said again, each call with its own time ${verifies("VCP-13")}`, async () => {
  const idOf = (at: number): string => `call_${String(at).padStart(26, "0")}`;
  const calls = [1, 2, 3].map((at) => ({
    id: idOf(at),
    createdAt: at * 1_000,
    state: "input_required",
    // Somebody decides the first one just now.
    approval: at === 1 ? { decision: "approved" } : null,
    error: null,
    tool: "svc://x/y",
    inputView: "{}",
    callerId: "key_1",
  })) as unknown as readonly Call[];
  const core = createFakeCore();
  const repos = {
    ...core.repos,
    calls: {
      ...core.repos.calls,
      list: () => Promise.resolve({ data: [...calls], nextCursor: null }),
      get: (_tenant: string, id: string) => Promise.resolve(calls.find((call) => call.id === id)),
    },
    connections: { ...core.repos.connections, missed: () => Promise.resolve([]) },
  };
  const caller = { kind: "key", id: "key_1", role: "member", scopes: ["approve"], tools: null };
  const connection = { id: "con_1", tenant: "ten_a", clientType: vcpLogClient, caller } as unknown as Connection;
  const frames = await missedFrames({ ...core, repos } as never, connection);
  expect(
    frames.map((frame) => [Reflect.get(Object(frame["data"]), "timestamp"), frame["_vcpReplayOriginalAt"]]),
  ).toEqual([
    ["1970-01-01T00:00:02.000Z", 2_000],
    ["1970-01-01T00:00:03.000Z", 3_000],
  ]);
});
