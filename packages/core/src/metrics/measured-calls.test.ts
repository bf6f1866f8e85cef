import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import type { Repos } from "../ports/repos.ts";
import { measureCalls } from "./measured-calls.ts";

interface Counted {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
}

/** The repository's part is to say yes. */
function measured(): { readonly calls: Repos["calls"]; readonly counted: Counted[] } {
  const counted: Counted[] = [];
  const repo = {
    record: (_tenant: string, _caller: string, calls: readonly { readonly id: string }[]) =>
      Promise.resolve(calls.map(({ id }) => ({ kind: "recorded", id }))),
    finish: () => Promise.resolve(true),
  };
  const { calls } = measureCalls(
    { calls: repo, flowRuns: {} } as unknown as Parameters<typeof measureCalls>[0],
    {
      count: (name: string, labels: Counted["labels"]) => counted.push({ name, labels }),
      observe: () => undefined,
    },
    { now: () => 0, sleep: () => Promise.resolve() },
  );
  return { calls, counted };
}

function call(id: string, kind: "chat" | "tool", parentId: string | null = null): never {
  return { id, kind, tool: kind, parentId } as never;
}

describe(`counted calls ${verifies("CHAT-15")}`, () => {
  test("a chat has tools where it had children", async () => {
    const { calls, counted } = measured();
    await calls.record("ten_1", "key_1", [call("chat_1", "chat")]);
    await calls.record("ten_1", "key_1", [call("call_1", "tool", "chat_1")]);
    await calls.finish("ten_1", "chat_1", 1, { state: "completed" });
    expect(counted.map(({ labels }) => labels["tools"])).toEqual(["yes"]);
  });

  test("parents whose end is not seen here are forgotten, the oldest first", async () => {
    const { calls, counted } = measured();
    await calls.record("ten_1", "key_1", [call("chat_1", "chat")]);
    await calls.record("ten_1", "key_1", [call("call_1", "tool", "chat_1")]);
    const elsewhere = Array.from({ length: 50_000 }, (_none, at) => {
      const ended: object = call(`step_${at}`, "tool", `run_${at}`);
      return { ...ended, end: { state: "completed" } } as never;
    });
    await calls.record("ten_1", "key_1", elsewhere);
    await calls.finish("ten_1", "chat_1", 1, { state: "completed" });
    expect(counted.at(-1)).toMatchObject({ name: "toolyard_chats_total", labels: { tools: "no" } });
  });

  test("the end of a run of a flow makes room: those that are open stay known", async () => {
    const { calls, counted } = measured();
    await calls.record("ten_1", "key_1", [call("chat_1", "chat")]);
    await calls.record("ten_1", "key_1", [call("call_1", "tool", "chat_1")]);
    for (let at = 0; at < 50_000; at += 1) {
      await calls.record("ten_1", "key_1", [call(`run_${at}`, "tool")]);
      await calls.record("ten_1", "key_1", [
        { ...(call(`step_${at}`, "tool", `run_${at}`) as object), end: { state: "completed" } } as never,
      ]);
      await calls.finish("ten_1", `run_${at}`, 1, { state: "completed" });
    }
    await calls.finish("ten_1", "chat_1", 1, { state: "completed" });
    expect(counted.at(-1)).toMatchObject({ name: "toolyard_chats_total", labels: { tools: "yes" } });
  });
});
