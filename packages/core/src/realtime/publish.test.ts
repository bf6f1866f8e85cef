import { describe, expect, test } from "vitest";
import { createFakeCore } from "../../../../test/support/fake-core.ts";
import type { NewEvent } from "./connection.ts";
import { publish } from "./publish.ts";
import type { Publication } from "./publication.ts";

async function published(publication: Publication): Promise<readonly NewEvent[]> {
  const written: NewEvent[] = [];
  const { repos } = createFakeCore();
  const write = (_tenant: string, events: readonly NewEvent[]): Promise<number> =>
    Promise.resolve(written.push(...events));
  await publish({ repos: { ...repos, connections: { ...repos.connections, publish: write } } }, "ten_a", [publication]);
  return written;
}

const large = { text: "字".repeat(12_000) };

describe("what is published", () => {
  test("is written with whom it is for and what it is about", async () => {
    const about = { callId: "call_1", callerId: "key_1", sessionId: "sess_1" };
    const audience = { kind: "client_type", value: "Console" } as const;
    expect(await published({ type: "note", audience, data: { a: 1 }, ...about })).toEqual([
      { type: "note", audience, data: '{"a":1}', ...about },
    ]);
    expect(await published({ type: "note", audience: { kind: "tenant" }, data: {} })).toMatchObject([
      { callId: null, callerId: null, sessionId: null },
    ]);
  });

  test("names its call where it is too large, and is refused where it is about none", async () => {
    const [event] = await published({ type: "note", audience: { kind: "tenant" }, data: large, callId: "call_1" });
    expect(JSON.parse(event?.data ?? "")).toEqual({ id: "call_1", truncated: true, url: "/v1/calls/call_1" });
    await expect(published({ type: "note", audience: { kind: "tenant" }, data: large })).rejects.toMatchObject({
      code: "payload_too_large",
    });
  });
});
