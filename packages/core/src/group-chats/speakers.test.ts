import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import type { GroupChat, GroupChatMessage, GroupChatMode } from "./group-chat.ts";
import { nextSpeaker } from "./speakers.ts";

const members = ["ada", "bob", "cleo"].map(
  (name) => ({ kind: "agent", name, displayName: null, joinedAt: 0 }) as const,
);

const room = (mode: GroupChatMode): GroupChat => ({
  id: "grp_1",
  name: "room",
  mode,
  topic: null,
  moderator: null,
  access: "tenant",
  limits: { messages: 12, wall_clock_ms: 1_000, history: 50 },
  ownerId: "key_1",
  members: [{ kind: "user", name: "ann", displayName: null, joinedAt: 0 }, ...members],
  currentTurn: null,
  createdAt: 0,
  updatedAt: 0,
});

const said = (kind: "agent" | "user", name: string, content: string): GroupChatMessage => ({
  id: "msg_1",
  groupChat: "grp_1",
  turn: "call_1",
  position: 0,
  author: { kind, name, displayName: null },
  content,
  state: "completed",
  reason: null,
  error: null,
  callId: null,
  readOutside: false,
  supersededBy: null,
  createdAt: 0,
  finishedAt: 0,
});

function orderOf(
  mode: GroupChatMode,
  question: string,
  answers: Readonly<Record<string, readonly string[]>>,
): string[] {
  const spoken: GroupChatMessage[] = [];
  const trigger = said("user", "ann", question);
  while (spoken.length < 8) {
    const next = nextSpeaker({ groupChat: room(mode), trigger, spoken });
    if (next === undefined) break;
    const count = spoken.filter(({ author }) => author.name === next.name).length;
    spoken.push(said("agent", next.name, answers[next.name]?.[count] ?? "Yes."));
  }
  return spoken.map(({ author }) => author.name);
}

describe(`who speaks next ${verifies("VCP-14")}`, () => {
  test("in order is every agent, once", () => {
    expect(orderOf("sequential", "How many?", { ada: ["@cleo"] })).toEqual(["ada", "bob", "cleo"]);
  });

  test("by mention is whoever was called first and has not answered since", () => {
    expect(orderOf("mentioned", "@bob, @ada?", { bob: ["@cleo, @ada?"], ada: ["@bob"], cleo: ["@ann"] })).toEqual([
      "bob",
      "ada",
      "cleo",
      "bob",
    ]);
    expect(orderOf("mentioned", "Anybody?", {})).toEqual([]);
    expect(orderOf("mentioned", "@ada", { ada: ["I, @ada, am done."] })).toEqual(["ada"]);
  });
});
