import type { CallFilter } from "@toolyard/core/ports/calls";
import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import type { BatchOptions, Database } from "../database.ts";
import { list } from "./calls-control.ts";
import { callReader } from "./calls-rows.ts";

describe(`lists of calls ${verifies("CHAT-13")}`, () => {
  const optionsFor = async (filter: CallFilter): Promise<BatchOptions> => {
    let asked: BatchOptions = {};
    const database: Database = {
      batch: (_content, options = {}) => {
        asked = options;
        return Promise.resolve([{ rows: [], changes: 0 }]);
      },
      close: () => Promise.resolve(),
    };
    await list({ database, reader: callReader(() => undefined) }, "ten_1", {
      filter,
      page: { limit: 10, order: "desc" },
    });
    return asked;
  };

  test.each<CallFilter>([
    { state: "failed" },
    { kind: "tool" },
    { tool: "lookup" },
    { runs: true },
    { tool: "lookup", callerId: "key_1" },
  ])("that may have to go through all that a tenant has hold nobody up: %o", async (filter) => {
    expect(await optionsFor(filter)).toEqual({ readonly: true, long: { owner: "ten_1" } });
  });

  test.each<CallFilter>([
    {},
    { state: "running", tool: "lookup" },
    { state: "input_required" },
    { sessionId: "s", kind: "tool" },
    { parentId: "chat_1" },
    { requestId: "req_1" },
    { callerId: "key_1" },
    { from: 1, to: 2 },
  ])("that an index leads to are read at once: %o", async (filter) => {
    expect(await optionsFor(filter)).toEqual({ readonly: true });
  });
});
