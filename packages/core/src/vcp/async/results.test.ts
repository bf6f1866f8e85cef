import { beforeEach, describe, expect, test } from "vitest";
import { callRow } from "../../../../../test/support/call-row.ts";
import { createFakeCore } from "../../../../../test/support/fake-core.ts";
import { verifies } from "../../../../../test/support/verifies.ts";
import type { VcpTask } from "../../ports/vcp-callbacks.ts";
import { readAsyncText, textOfResult, type ResultReader } from "./results.ts";
import { createMemoryBlobStore } from "@toolyard/platform/memory/memory-blob-store";

const name = { plugin: "VideoGenerator", taskId: "p0abc" };
const textOf = (result: unknown): string => textOfResult(name, JSON.stringify(result));

describe(`the text of a result ${verifies("VCP-11")}`, () => {
  test.for<[unknown, string]>([
    [{ status: "Succeed", message: "视频好了 $& $1" }, "视频好了 $& $1"],
    [{ status: "Failed", message: "没有成功" }, "没有成功"],
    [
      { status: "Succeed", data: { url: "u" }, result: 1 },
      '任务 VideoGenerator (ID: p0abc) 已成功完成。详情: {"url":"u"}',
    ],
    [{ status: "Succeed", result: ["a"] }, '任务 VideoGenerator (ID: p0abc) 已成功完成。详情: ["a"]'],
    [
      { status: "Succeed", videoUrl: "u", message: "" },
      '任务 VideoGenerator (ID: p0abc) 已成功完成。详情: {"status":"Succeed","videoUrl":"u","message":""}',
    ],
    [{ status: "Failed", reason: "quota" }, "任务 VideoGenerator (ID: p0abc) 处理失败。原因: quota"],
    [{ status: "Failed", error: { code: 1 } }, '任务 VideoGenerator (ID: p0abc) 处理失败。原因: {"code":1}'],
    [{ status: "Failed" }, '任务 VideoGenerator (ID: p0abc) 处理失败。原因: {"status":"Failed"}'],
    [{ status: "error", error: "quota" }, '任务 VideoGenerator (ID: p0abc) 处理失败。原因: "quota"'],
    [{ status: "failed" }, '任务 VideoGenerator (ID: p0abc) 处理失败。原因: {"status":"failed"}'],
    [{ status: "done" }, "[任务 VideoGenerator (ID: p0abc) 已完成]"],
    [[1], "[任务 VideoGenerator (ID: p0abc) 已完成]"],
  ])("of %j is what upstream says, failed or done", ([result, text]) => {
    expect(textOf(result)).toBe(text);
  });

  test("that is no JSON says that it cannot be read", () => {
    expect(textOfResult(name, "{")).toBe("[获取任务 VideoGenerator (ID: p0abc) 结果时出错]");
  });
});

const pending = "[任务 VideoGenerator (ID: p0abc) 结果待更新...]";

describe(`a result ${verifies("VCP-11")}`, () => {
  const reader = (change: Partial<ResultReader> = {}): ResultReader => ({
    tenant: "ten_a",
    caller: { kind: "key", id: "key_a", role: "member", scopes: ["chat"], tools: null },
    ...change,
  });
  const madeAt = 1_000;
  /** When the reader's session was begun. */
  let begunAt = 0;
  beforeEach(() => {
    begunAt = madeAt;
  });
  const read = async (context: ResultReader, change: Partial<VcpTask> = {}, taskId = "p0abc"): Promise<string> => {
    const blobs = createMemoryBlobStore();
    if (change.done !== false) {
      await blobs.put("ten_a/VCPAsyncResults/VideoGenerator-p0abc.json", Buffer.from('{"message":"ready"}'));
    }
    const { repos, log } = createFakeCore();
    const task: VcpTask = {
      ...name,
      callId: "call_1",
      attempt: 1,
      callerId: "key_a",
      userId: null,
      sessionId: null,
      done: true,
      ...change,
    };
    const vcpCallbacks = {
      ...repos.vcpCallbacks,
      task: (tenant: string) => Promise.resolve(tenant === "ten_a" ? task : undefined),
    };
    const call = callRow({ id: task.callId, sessionId: task.sessionId, createdAt: madeAt });
    const calls = { ...repos.calls, get: () => Promise.resolve(call) };
    const session = { bytes: 0, callerId: "key_b", lastUsedAt: 0, expired: false };
    const sessions = {
      ...repos.sessions,
      get: (_tenant: string, id: string) => Promise.resolve({ ...session, id, createdAt: begunAt }),
    };
    const deps = { repos: { ...repos, vcpCallbacks, calls, sessions }, blobs, log };
    return readAsyncText(deps, context, "VideoGenerator", taskId);
  };
  const other = { kind: "key", id: "key_b", role: "member", scopes: ["chat"], tools: null } as const;

  test("is read by the caller, the user and the session that asked for it", async () => {
    expect(await read(reader())).toBe("ready");
    expect(await read(reader({ caller: { ...other, userId: "ada" } }), { userId: "ada" })).toBe("ready");
    expect(await read(reader({ caller: other, sessionId: "sess_a" }), { sessionId: "sess_a" })).toBe("ready");
  });

  test("is pending in a session that has begun since under the name of the one that asked for it", async () => {
    begunAt = madeAt + 1;
    expect(await read(reader({ caller: other, sessionId: "sess_a" }), { sessionId: "sess_a" })).toBe(pending);
    expect(await read(reader({ sessionId: "sess_a" }), { sessionId: "sess_a" })).toBe("ready");
  });

  test("is pending for everybody else", async () => {
    expect(await read(reader({ tenant: "ten_b" }))).toBe(pending);
    expect(await read(reader({ caller: other }))).toBe(pending);
    expect(await read(reader({ caller: other, sessionId: "sess_b" }), { sessionId: "sess_a" })).toBe(pending);
    expect(await read(reader({ caller: { ...other, id: "key_a", userId: "bob" } }), { userId: "ada" })).toBe(pending);
  });

  test("is pending until it is stored", async () => {
    expect(await read(reader(), { done: false })).toBe(pending);
  });

  test("of a name that is none is looked for nowhere", async () => {
    const escaping = await read(reader(), {}, "../../x");
    expect(escaping).toBe("[任务 VideoGenerator (ID: ../../x) 结果待更新...]");
  });

  test("that cannot be read says so, and is logged", async () => {
    const { repos, log, lines } = createFakeCore();
    const text = await readAsyncText(
      { repos, blobs: createMemoryBlobStore(), log },
      reader(),
      "VideoGenerator",
      "p0abc",
    );
    expect(text).toBe("[获取任务 VideoGenerator (ID: p0abc) 结果时出错]");
    expect(lines).toMatchObject([{ level: "error", fields: { plugin: "VideoGenerator" } }]);
  });
});
