import type { GroupChatEvent } from "@toolyard/core/group-chats/events";
import { describe, expect, test } from "vitest";
import { sseEvents } from "../../test/support/sse.ts";
import { verifies } from "../../test/support/verifies.ts";
import type { ResponseSink } from "./sink.ts";
import { TurnStream } from "./turn-stream.ts";

const place = { chatId: "grp_1", turnId: "call_1" };
const speaker = { agent: { name: "ada", displayName: "Ada" }, messageId: "msg_1" };
const said = (chunk: string, accumulatedContent: string): GroupChatEvent => ({
  type: "agent:stream",
  ...place,
  ...speaker,
  chunk,
  accumulatedContent,
});
const end: GroupChatEvent = { type: "chat:end", ...place, reason: "completed", messages: 1 };

/** A client that has taken so much as it is let. */
function slowClient() {
  const written: string[] = [];
  let room: PromiseWithResolvers<void> | undefined;
  const sink: ResponseSink = {
    closed: false,
    headSent: true,
    head: () => undefined,
    beginWhenQuiet: () => undefined,
    onClose: () => undefined,
    write(text) {
      written.push(String(text));
      room = Promise.withResolvers();
      return room.promise;
    },
    end: (text = "") => void written.push(String(text)),
  };
  const read = async (): Promise<void> => {
    room?.resolve();
    await new Promise(setImmediate);
  };
  return { sink, read, events: () => sseEvents(written.join("")) };
}

describe(`a turn's stream to a client that is slower than it ${verifies("VCP-14")}`, () => {
  test("keeps one piece of what is said for it, with all that it has missed", async () => {
    const { sink, read, events } = slowClient();
    const stream = new TurnStream(sink);
    stream.write(said("a", "a"));
    stream.write(said("b", "ab"));
    stream.write(said("c", "abc"));
    expect(events()).toEqual([said("a", "a")]);
    await read();
    expect(events()).toEqual([said("a", "a"), said("bc", "abc")]);
  });

  test("tells it everything else in its order, and ends behind it", async () => {
    const { sink, read, events } = slowClient();
    const stream = new TurnStream(sink);
    const thinking: GroupChatEvent = { type: "agent:thinking", ...place, ...speaker };
    const all = [thinking, said("a", "a"), end];
    for (const event of all) stream.write(event);
    const over = stream.end({
      callId: "call_1",
      callerId: "key_1",
      rate: { limit: 60, remaining: 59, resetMs: 60_000 },
      replayed: false,
      messages: [],
      reason: "completed",
    });
    for (let at = 0; at < all.length; at += 1) await read();
    await over;
    expect(events()).toEqual([...all, "[DONE]"]);
  });
});
