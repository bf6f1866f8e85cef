import { describe, expect, test } from "vitest";
import { createFakeCore } from "../../../../../test/support/fake-core.ts";
import { verifies } from "../../../../../test/support/verifies.ts";
import type { JsonValue } from "../../json.ts";
import type { NewEvent } from "../../realtime/connection.ts";
import { Redactor } from "../../secrets/redactor.ts";
import { frameOf, publicationOf, pushResult, type WebSocketPush } from "./web-socket-push.ts";

const plain: WebSocketPush = { enabled: true, usePluginResultAsMessage: false, targetClientType: null };

describe(`what a plugin came to ${verifies("VCP-12")}`, () => {
  test.for<[string, Partial<WebSocketPush>, "callback" | "result", JsonValue, JsonValue]>([
    ["in an envelope", {}, "callback", { a: 1 }, { type: "plugin_callback_notification", data: { a: 1 } }],
    ["in an envelope of its own type", { messageType: "video" }, "callback", "x", { type: "video", data: "x" }],
    ["as a synchronous result", {}, "result", { a: 1 }, { type: "vcp_tool_result_Video", data: { a: 1 } }],
    ["as it is", { usePluginResultAsMessage: true, messageType: "no" }, "result", { type: "t" }, { type: "t" }],
    [
      "as it is where a callback has a type",
      { usePluginResultAsMessage: true },
      "callback",
      { type: "t" },
      { type: "t" },
    ],
    [
      "in an envelope where a callback has no type",
      { usePluginResultAsMessage: true, messageType: "video_generation_status" },
      "callback",
      { requestId: "t1", status: "Succeed" },
      { type: "video_generation_status", data: { requestId: "t1", status: "Succeed" } },
    ],
    [
      "in an envelope where it is no object",
      { usePluginResultAsMessage: true, messageType: "list" },
      "result",
      [1],
      { type: "list", data: [1] },
    ],
  ])("is told %s", ([, push, from, result, frame]) => {
    expect(frameOf({ ...plain, ...push }, { plugin: "Video", from, result })).toEqual(frame);
  });

  const pushed = async (manifest: WebSocketPush, heard = 1): Promise<{ events: NewEvent[]; told: number }> => {
    const { repos, log } = createFakeCore();
    const events: NewEvent[] = [];
    let told = 0;
    const connections = {
      ...repos.connections,
      publish: (_tenant: string, given: readonly NewEvent[]) => {
        events.push(...given);
        return Promise.resolve(heard);
      },
    };
    await pushResult(
      { repos: { ...repos, connections }, log, tellNow: () => Promise.resolve(void (told += 1)) },
      { tenant: "ten_a", redactor: new Redactor() },
      { plugin: { name: "Video", manifest: { webSocketPush: manifest } }, callId: "call_1", result: { a: 1 } },
    );
    return { events, told };
  };

  test("goes to one kind of clients or to all, as a frame without an envelope of ours", async () => {
    const frame = '{"type":"vcp_tool_result_Video","data":{"a":1}}';
    expect(await pushed({ ...plain, targetClientType: "VCPLog" })).toMatchObject({
      events: [{ audience: { kind: "client_type", value: "VCPLog" }, frame, callId: "call_1" }],
      told: 1,
    });
    expect(await pushed(plain)).toMatchObject({ events: [{ audience: { kind: "tenant" }, frame }] });
  });

  test("is not told where nobody listens, or where the manifest does not want it", async () => {
    expect((await pushed(plain, 0)).told).toBe(0);
    expect((await pushed({ ...plain, enabled: false })).events).toEqual([]);
    const said = { plugin: "Video", callId: "call_1", result: 1, from: "callback" } as const;
    expect(publicationOf({ ...plain, enabled: false }, said)).toBeUndefined();
  });

  test("does not become a failure where it cannot be told", async () => {
    const { repos, log, lines } = createFakeCore();
    const plugin = { name: "Video", manifest: { webSocketPush: plain } };
    const context = { tenant: "ten_a", redactor: new Redactor() };
    await pushResult({ repos, log, tellNow: () => Promise.resolve() }, context, {
      plugin,
      callId: "call_1",
      result: 1,
    });
    expect(lines).toMatchObject([{ level: "warn", fields: { call_id: "call_1" } }]);
  });
});
