import { beforeEach, describe, expect, test } from "vitest";
import { callRow } from "../../../../test/support/call-row.ts";
import { createFakeCore, emptyConfig, unscripted } from "../../../../test/support/fake-core.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import type { Caller } from "../callers/caller.ts";
import type { CallContext } from "../context.ts";
import type { CallRepo, NewCall, RecordResult } from "../ports/calls.ts";
import type { SessionRepo } from "../ports/sessions.ts";
import type { TaskQueue } from "../ports/task-queue.ts";
import { Redactor } from "../secrets/redactor.ts";
import { Sealer } from "../secrets/sealer.ts";
import type { ToolAdapter } from "../tools/adapter.ts";
import type { Tool } from "../tools/tool.ts";
import type { Call, SealedInput } from "./call.ts";
import { inputAad } from "./new-call.ts";
import { replayCall } from "./replay.ts";

const clock = { now: () => 0, sleep: () => Promise.resolve() };
const sealer = new Sealer(
  {
    currentKeyId: "test",
    wrap: (_tenant, key) => Promise.resolve(Buffer.from(key).toString("base64")),
    unwrap: (_tenant, wrapped) => Promise.resolve(Buffer.from(wrapped, "base64")),
  },
  clock,
);
const original: Caller = { kind: "key", id: "key_1", role: "member", scopes: ["tools"], tools: null, userId: "ann" };
const asker: Caller = { ...original, id: "key_2", scopes: ["calls"], userId: "bob" };

interface World {
  readonly wrappedKey: string;
  readonly recorded: NewCall[];
  readonly sent: unknown[];
  tool: Partial<Tool>;
  /** Of the session that the call worked in; undefined: it is begun by whoever asks. */
  sessionOwner?: string;
  answer: (call: NewCall) => RecordResult;
  replay(call: Partial<Call>, confirm?: boolean, caller?: Caller): Promise<Call>;
}

function createWorld(wrappedKey: string): World {
  const recorded: NewCall[] = [];
  const sent: unknown[] = [];
  const world: World = {
    wrappedKey,
    recorded,
    sent,
    tool: {},
    answer: ({ id }) => ({ id, kind: "recorded" }),
    async replay(change, confirm = false, caller = asker) {
      const row = callRow({ input: await seal(change.id ?? "call_1"), ...change });
      const calls: Partial<CallRepo> = {
        get: (_tenant, id) =>
          Promise.resolve(id === row.id ? row : callRow({ id, state: recorded[0]?.state ?? "queued" })),
        record: (_tenant, _caller, rows) => {
          recorded.push(...rows);
          return Promise.resolve(rows.map(world.answer));
        },
      };
      const touch: SessionRepo["touch"] = (_tenant, id, callerId) =>
        Promise.resolve({
          id,
          callerId: world.sessionOwner ?? callerId,
          bytes: 0,
          createdAt: 0,
          lastUsedAt: 0,
          expired: false,
        });
      const core = createFakeCore({
        repos: {
          calls: { ...unscripted<CallRepo>("calls"), ...calls },
          sessions: { ...unscripted("sessions"), touch },
        },
        core: {
          sealer,
          adapters: { plugin: adapter() },
          queue: {
            ...unscripted<TaskQueue>("queue"),
            send: (...message) => Promise.resolve(void sent.push(message)),
          },
        },
      });
      return replayCall(core, contextOf(caller), { callId: row.id, confirm }).then(({ call }) => call);
    },
  };
  const contextOf = (caller: Caller): CallContext => ({
    tenant: "ten_1",
    caller,
    config: { ...emptyConfig("ten_1"), wrappedKey },
    requestId: "req_2",
    traceId: "2".repeat(32),
    redactor: new Redactor(),
  });
  const seal = (id: string): Promise<string> => {
    const input: SealedInput = {
      arguments: { city: "Paris" },
      uri: "plugin://weather",
      sessionId: "s1",
      caller: original,
    };
    return sealer.seal("ten_1", wrappedKey, inputAad(id), JSON.stringify(input));
  };
  const adapter = (): ToolAdapter => ({
    ...unscripted<ToolAdapter>("adapter"),
    resolve: () => ({
      uri: "plugin://weather",
      name: "weather",
      description: "",
      parameters: { type: "object", properties: { city: { type: "string" } } },
      kind: "HTTP",
      enabled: true,
      roles: [],
      effect: "read",
      repeat: "never",
      sensitive: false,
      service: "https://weather.example.com",
      requiredCredentials: [],
      outputTrust: "outside",
      hash: "hash",
      ...world.tool,
    }),
  });
  return world;
}

describe(`replaying a call ${verifies("CHAT-13", "CHAT-11")}`, () => {
  let world: World;

  beforeEach(async () => {
    world = createWorld(await sealer.newTenantKey("ten_1"));
  });

  test("records a new call with the same arguments, made by whoever asks, and queues it", async () => {
    const call = await world.replay({});
    expect(call).toMatchObject({ state: "queued" });
    expect(call.id).not.toBe("call_1");
    expect(world.recorded).toMatchObject([
      { id: call.id, async: true, sessionId: "s1", parentId: null, effectKey: null },
    ]);
    expect(world.recorded[0]?.callerChain).toEqual([
      { kind: "key", id: "key_2" },
      { kind: "user", id: "bob" },
      { kind: "replay", id: "call_1" },
    ]);
    expect(world.sent).toEqual([["short", [{ tenant: "ten_1", callId: call.id }], {}]]);
  });

  test("seals the asker's identity, never that of the first caller", async () => {
    const call = await world.replay({});
    const row = world.recorded[0];
    const opened = await sealer.open("ten_1", world.wrappedKey, inputAad(call.id), row?.input ?? "");
    expect(JSON.parse(opened)).toMatchObject({ arguments: { city: "Paris" }, caller: { id: "key_2", userId: "bob" } });
  });

  test("wants a confirmation for a write that a repetition would do twice", async () => {
    for (const repeat of ["never", "key"] as const) {
      await expect(world.replay({ effect: "write", repeat })).rejects.toMatchObject({
        code: "confirmation_required",
        details: { param: "confirm" },
      });
    }
    expect(world.recorded).toEqual([]);
    await world.replay({ effect: "write" }, true);
    await world.replay({ effect: "write", repeat: "natural" });
    expect(world.recorded).toHaveLength(2);
  });

  test("waits for approval again where the tool is sensitive", async () => {
    world.tool = { sensitive: true };
    await world.replay({ approval: { by: "key_9", at: 0, decision: "approved" } });
    expect(world.recorded).toMatchObject([{ state: "input_required" }]);
    expect(world.sent).toEqual([]);
  });

  test("refuses a call that has not ended, a chat, lost arguments and an inline configuration", async () => {
    await expect(world.replay({ state: "running" })).rejects.toMatchObject({ code: "call_not_finished" });
    await expect(world.replay({ kind: "chat" })).rejects.toMatchObject({ code: "invalid_request" });
    await expect(world.replay({ input: null })).rejects.toMatchObject({ code: "conflict" });
    const callerChain = [{ kind: "runtime_config", id: "inline" }];
    await expect(world.replay({ callerChain })).rejects.toMatchObject({ code: "runtime_config_required" });
    expect(world.recorded).toEqual([]);
  });

  test("asks again whether the asker may use the tool", async () => {
    await expect(world.replay({}, false, { ...asker, tools: ["other"] })).rejects.toMatchObject({
      code: "tool_not_found",
    });
    world.tool = { enabled: false };
    await expect(world.replay({})).rejects.toMatchObject({ code: "service_disabled" });
  });

  test("hides a call of somebody else, and needs a scope for one's own", async () => {
    await expect(world.replay({}, false, { ...asker, scopes: ["tools"] })).rejects.toMatchObject({ code: "not_found" });
    await expect(world.replay({}, false, { ...original, scopes: ["chat"] })).rejects.toMatchObject({
      code: "permission_denied",
    });
    await world.replay({}, false, original);
  });

  test("works in no session of somebody else, unless the asker manages the tenant", async () => {
    world.sessionOwner = "key_1";
    await expect(world.replay({})).rejects.toMatchObject({
      code: "session_not_found",
      details: { param: "session_id" },
    });
    expect(world.recorded).toEqual([]);
    await world.replay({}, false, { ...asker, scopes: ["calls", "tools", "manage"] });
    expect(world.recorded).toHaveLength(1);
  });

  test("gives the earlier call for the same idempotency key, and refuses another request under it", async () => {
    const existing = (row: NewCall, change: Partial<Call> = {}) => {
      const { id, inputHash, callerChain } = row;
      return { id, kind: "existing" as const, call: callRow({ id: "call_7", inputHash, callerChain, ...change }) };
    };
    world.answer = (row) => existing(row);
    await expect(world.replay({})).resolves.toMatchObject({ id: "call_7" });
    for (const other of [{ inputHash: "other" }, { callerChain: [{ kind: "replay", id: "call_2" }] as const }]) {
      world.answer = (row) => existing(row, other);
      await expect(world.replay({})).rejects.toMatchObject({ code: "idempotency_key_reused" });
    }
  });
});
