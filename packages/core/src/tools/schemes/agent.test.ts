import { describe, expect, test } from "vitest";
import { callContext } from "../../../../../test/support/call-context.ts";
import { callRow } from "../../../../../test/support/call-row.ts";
import { createFakeCore, unscripted } from "../../../../../test/support/fake-core.ts";
import { verifies } from "../../../../../test/support/verifies.ts";
import type { CallRepo } from "../../ports/calls.ts";
import type { Tool } from "../tool.ts";
import { parseToolUri } from "../uri.ts";
import { createAgentAdapter } from "./agent.ts";

const tool: Tool = {
  uri: "agent://ada",
  name: "ada",
  description: "Asks the agent 'ada'.",
  parameters: { type: "object", properties: {} },
  kind: "AGENT",
  enabled: true,
  roles: [],
  effect: "write",
  repeat: "natural",
  sensitive: false,
  service: "agent:ada",
  requiredCredentials: [],
  outputTrust: "outside",
  hash: "hash",
};

describe(`an agent whose process is gone ${verifies("AGENT-1")}`, () => {
  test("is not asked again once it has written, however much it had read before", async () => {
    const chat = callRow({ id: "chat_1", kind: "chat", parentId: "call_1" });
    const reads = Array.from({ length: 150 }, (_, at) => callRow({ id: `call_read${at}`, parentId: chat.id }));
    const write = callRow({ id: "call_write", parentId: chat.id, effect: "write" });
    const calls: CallRepo = {
      ...unscripted<CallRepo>("repos.calls"),
      list(_tenant, { parentId }, { limit, after }) {
        const rows = parentId === chat.id ? [...reads, write] : [chat];
        const rest = rows.slice(rows.findIndex(({ id }) => id === after) + 1);
        return Promise.resolve({ data: rest.slice(0, limit), hasMore: rest.length > limit });
      },
    };
    const adapter = createAgentAdapter(() => createFakeCore({ repos: { calls } }));
    const call = { id: "call_1", tool, uri: parseToolUri(tool.uri), arguments: { prompt: "Order." }, attempt: 2 };
    const asked = adapter.invoke(call, { ...callContext(), signal: new AbortController().signal });
    await expect(asked).rejects.toMatchObject({
      code: "outcome_unknown",
      details: { extra: { calls: ["call_write"] } },
    });
  });
});
