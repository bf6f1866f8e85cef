import { describe, expect, test } from "vitest";
import { createFakeCore } from "../../../../test/support/fake-core.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { enqueue } from "./worker.ts";

describe(`a call on record ${verifies("API-5")}`, () => {
  test("is left to the tick where its message cannot be sent", async () => {
    const queue = { send: () => Promise.reject(new GatewayError("database_unavailable", "away")) };
    const core = createFakeCore({ core: { queue } });
    await enqueue(core, { tenant: "ten_1", callId: "call_1", expectedMs: 0 });
    expect(core.lines.map(({ fields }) => fields)).toEqual([
      { call_id: "call_1", queue: "short", code: "database_unavailable" },
    ]);
  });
});
