/**
 * Group chats by their public surface: turns of each mode as recorded, over a stream, over `/ws` and as JSON; what
 * stops them, what is made anew, and what others may see.
 */
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { openDatabase } from "@toolyard/db/client";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import type { Client, Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { calls, chunk, done, startLlmStub, text, type LlmStub, type Round } from "../support/llm-stub.ts";
import { connectSocket, type SocketClient } from "../support/socket-client.ts";
import { sseEvents } from "../support/sse.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let other: Gateway;
let model: LlmStub;
let tenant: TestTenant;

const timing = { cancelPollMs: 50, heartbeatMs: 200 };
const socketTiming = { pollMs: 50, renewMs: 1_000 };

beforeAll(async () => {
  model = await startLlmStub();
  gateway = await startGateway({ timing, socketTiming });
  other = await startGateway({ timing, socketTiming, sharedWith: gateway });
  tenant = await gateway.newTenant();
  await tenant.addProvider(model.url);
  for (const [name, description] of agents) {
    await tenant.client.post("/v1/agents", { name, description, model: "stub-1", instructions: `Be ${name}.` });
  }
});
afterAll(async () => {
  await other.close();
  await gateway.close();
  await model.close();
});

const agents = [
  ["ada", "knows numbers"],
  ["bob", "knows ships"],
  ["cleo", "leads"],
] as const;

const pair = [
  { kind: "agent", name: "ada", display_name: "Ada" },
  { kind: "agent", name: "bob", display_name: "Bob" },
];

async function openRoom(change: Json = {}, client: Client = tenant.client): Promise<string> {
  return (await client.post("/v1/group_chats", { name: "harbour", members: pair, ...change })).id as string;
}

/** Whose instructions a request brings. */
function speakerOf(body: Record<string, unknown>): string {
  const [first] = body["messages"] as { content: string }[];
  return /^Be (\w+)\./.exec(first?.content ?? "")?.[1] ?? "";
}

/** What request number `at` told the model. */
function told(at: number): Json[] {
  return (model.requests[at]?.["messages"] ?? []) as Json[];
}

/** What each agent answers, in the order of its answers. */
function say(answers: Readonly<Record<string, readonly (string | Round)[]>>): void {
  const at = new Map<string, number>();
  model.requests.length = 0;
  model.respond((body) => {
    const name = speakerOf(body);
    const count = at.get(name) ?? 0;
    at.set(name, count + 1);
    const answer = answers[name]?.[count] ?? `nothing more from ${name}`;
    return typeof answer === "string" ? text(answer) : answer;
  });
}

const slow = (words: string, gapMs = 40): Round => ({ ...text(words), gapMs });

async function streamed(room: string, body: Json, client: Client = tenant.client): Promise<Json[]> {
  const reply = await client.send("post", `/v1/group_chats/${room}/messages`, { ...body, stream: true });
  expect(reply.headers.get("content-type")).toBe("text/event-stream");
  return sseEvents(reply.text);
}

async function history(room: string, query = ""): Promise<Json[]> {
  return (await tenant.client.get(`/v1/group_chats/${room}/messages?order=asc&limit=100${query}`)).data;
}

async function listen(room: string, at = gateway, key = tenant.key): Promise<SocketClient> {
  const client = await connectSocket(`${at.url.replace(/^http/, "ws")}/ws`, {
    headers: { authorization: `Bearer ${key}` },
  });
  onTestFinished(() => client.socket.terminate());
  expect(await client.ask({ type: "subscribe", topic: "group_chat", group_chat_id: room })).toMatchObject({
    type: "subscribed",
  });
  return client;
}

/** Ids and times by the order in which they first come; what comes in pieces as one. */
function normalised(events: readonly Json[]): string {
  const names = new Map<string, string>();
  const merged: Json[] = [];
  for (const event of events) {
    const last = merged.at(-1);
    if (event.type === "agent:stream" && last?.type === "agent:stream" && last.messageId === event.messageId) {
      merged[merged.length - 1] = { ...event, chunk: last.chunk + event.chunk };
    } else merged.push(event);
  }
  return `${JSON.stringify(merged, null, 2)
    .replaceAll(/\b(grp|msg|call|chat|key)_[0-9a-z]{26}\b/g, (id: string, kind: string) => {
      const known = names.get(id) ?? `${kind}_${[...names.keys()].filter((each) => each.startsWith(kind)).length + 1}`;
      names.set(id, known);
      return known;
    })
    .replaceAll(/"\d{4}-\d\d-\d\dT[\d:.]+Z"/g, '"<time>"')}\n`;
}

const golden = (mode: string): string => `../fixtures/group-chats/${mode}.json`;

describe(`a turn of a group chat ${verifies("VCP-14")}`, () => {
  test("has every agent speak once, in order, each with what was said before", async () => {
    say({ ada: ["Three ships are due."], bob: ["[Bob]: Two have come, Ada."] });
    const room = await openRoom({ topic: "Ships" });
    const events = await streamed(room, { content: "How many ships?", name: "Ann" });
    expect(events.at(-1)).toBe("[DONE]");
    await expect(normalised(events.slice(0, -1))).toMatchFileSnapshot(golden("sequential"));
    const asked = model.requests.map(({ messages }) => messages as Json[]);
    expect(asked[0]?.slice(2)).toEqual([{ role: "user", content: "[Ann]: How many ships?" }]);
    expect(asked[1]?.slice(2)).toEqual([
      { role: "user", content: "[Ann]: How many ships?" },
      { role: "user", content: "[Ada]: Three ships are due." },
    ]);
    say({ ada: ["Still three."], bob: ["Yes."] });
    await tenant.client.post(`/v1/group_chats/${room}/messages`, { content: "And now?", wait: true });
    expect(told(0).slice(2)).toEqual([
      { role: "user", content: "[Ann]: How many ships?" },
      { role: "assistant", content: "Three ships are due." },
      { role: "user", content: "[Bob]: Two have come, Ada." },
      { role: "user", content: expect.stringMatching(/^\[.+\]: And now\?$/) },
    ]);
  });

  test("has those speak who are mentioned, by people and by agents, to its bound", async () => {
    say({ bob: ["Ask @Ada about it.", "Thank you, @Ada."], ada: ["I know, @bob.", "No, I thank you, @Bob."] });
    const room = await openRoom({ mode: "mentioned", limits: { messages: 3 } });
    const events = await streamed(room, { content: "@Bob, how many? (not mail@ada.example)", name: "Ann" });
    await expect(normalised(events.slice(0, -1))).toMatchFileSnapshot(golden("mentioned"));
    expect(events.at(-2)).toMatchObject({ type: "chat:end", reason: "max_messages", messages: 3 });
    const quiet = await tenant.client.post(`/v1/group_chats/${room}/messages`, { content: "Nobody?", wait: true });
    expect(quiet).toMatchObject({ reason: "completed", messages: [{ content: "Nobody?" }] });
  });

  test("has its moderator invite who is next, and end it", async () => {
    say({
      cleo: [
        calls({ name: "invite", arguments: { agent: "bob", reason: "He knows ships." } }),
        calls({ name: "invite", arguments: { agent: "nemo", reason: "?" } }),
        calls({ name: "end", arguments: { reason: "It is said." } }),
      ],
      bob: ["Two."],
    });
    const room = await openRoom({ mode: "invited", moderator: "cleo" });
    const events = await streamed(room, { content: "How many ships?", name: "Ann" });
    await expect(normalised(events.slice(0, -1))).toMatchFileSnapshot(golden("invited"));
    const tools = ["invite", "end"].map((name) => ({ function: { name } }));
    expect(model.requests[0]).toMatchObject({ tool_choice: "required", tools });
    expect(told(1).at(-1).content).toContain("He knows ships.");
    expect(told(2).some(({ content }) => content === "[Bob]: Two.")).toBe(true);
    expect(told(3).at(-1).content).toContain("'nemo' is not in this group chat");
  });

  test("tells the reason of an invitation as far as one may be long", async () => {
    const reason = "He knows ships. ".repeat(1_000);
    say({
      cleo: [
        calls({ name: "invite", arguments: { agent: "bob", reason } }),
        calls({ name: "end", arguments: { reason } }),
      ],
      bob: ["Two."],
    });
    const room = await openRoom({ mode: "invited", moderator: "cleo" });
    await streamed(room, { content: "How many ships?" });
    const [, answer] = await history(room);
    expect(answer.reason).toMatch(/^He knows ships\. .*…$/);
    expect(answer.reason).toHaveLength(2_000);
    expect(told(1).at(-1).content).toContain(answer.reason);
  });

  test("names a message by one id from the first that is heard of it to the message itself", async () => {
    say({ ada: [slow("One two three four five six.", 20)], bob: ["Seven."] });
    const room = await openRoom();
    const events = await streamed(room, { content: "Count." });
    const spoken = events.filter(({ type }) => type === "agent:speak");
    expect(spoken).toHaveLength(2);
    for (const { messageId, message } of spoken) {
      expect(message).toMatchObject({ id: messageId, state: "completed" });
      const own = events.filter((event) => event.messageId === messageId);
      expect(own.map(({ type }) => type)).toEqual([
        "agent:thinking",
        ...own.slice(1, -1).map(() => "agent:stream"),
        "agent:speak",
      ]);
      let whole = "";
      for (const { chunk, accumulatedContent } of own.slice(1, -1)) {
        whole += chunk;
        expect(accumulatedContent).toBe(whole);
      }
      expect(whole).toBe(message.content);
      expect(await tenant.client.get(`/v1/group_chats/${room}/messages/${messageId}`)).toEqual(message);
    }
    expect(events.filter(({ type, agent }) => type === "agent:stream" && agent.name === "ada").length).toBeGreaterThan(
      1,
    );
  });

  test("is a call, with the runs of its agents below it", async () => {
    say({ ada: ["One."], bob: ["Two."] });
    const room = await openRoom();
    const turn = await tenant.client.post(`/v1/group_chats/${room}/messages`, { content: "Count.", wait: true });
    expect(await tenant.client.get(`/v1/calls/${turn.id}`)).toMatchObject({
      state: "completed",
      uri: `group://${room}`,
      caller: { chain: expect.arrayContaining([{ kind: "group_chat", id: room }]) },
    });
    const runs = (await tenant.client.get(`/v1/calls?parent_id=${turn.id}&order=asc`)).data as Json[];
    expect(runs.map(({ id }) => id)).toEqual(turn.messages.slice(1).map((message: Json) => message.call_id));
  });
});

describe(`who listens to a group chat ${verifies("VCP-14")}`, () => {
  test("hears of a turn that another instance streams, and reads the history when it comes back", async () => {
    say({ ada: [slow("One two three four five six seven eight.", 60)], bob: ["Nine."] });
    const room = await openRoom();
    const listener = await listen(room, other);
    const events = await streamed(room, { content: "Count." });
    await expect.poll(() => listener.of("chat:end").length).toBe(1);
    const types = new Set(events.map(({ type }) => type).filter(Boolean));
    expect(new Set(listener.frames.map(({ type }) => type))).toEqual(new Set(["subscribed", ...types]));
    const [speak] = listener.of("agent:speak");
    const heard = listener.of("agent:stream").filter(({ data }) => data.messageId === speak.data.messageId);
    expect(heard.length).toBeGreaterThan(1);
    expect(heard.map(({ data }) => data.chunk).join("")).toBe(speak.data.message.content);
    expect(speak).toMatchObject({
      id: expect.stringMatching(/^evt_/),
      data: { message: { id: speak.data.messageId } },
    });
    const read = await other.client(tenant.key).get(`/v1/group_chats/${room}/messages?order=asc`);
    expect(read.data.slice(1)).toEqual(
      events.filter(({ type }) => type === "agent:speak").map(({ message }) => message),
    );
  });

  test("hears of a turn that a worker has, and of who comes and goes", async () => {
    say({ ada: ["One."], bob: ["Two."], cleo: ["Three."] });
    const room = await openRoom();
    const listener = await listen(room);
    const accepted = await tenant.client.send("post", `/v1/group_chats/${room}/messages`, { content: "Count." });
    expect(accepted.status).toBe(202);
    expect(accepted.json).toMatchObject({ state: "queued", messages: [{ content: "Count." }] });
    await expect.poll(() => listener.of("chat:end").length).toBe(1);
    expect(listener.of("agent:speak").map(({ data }) => data.message.content)).toEqual(["One.", "Two."]);
    await tenant.client.post(`/v1/group_chats/${room}/members`, { kind: "agent", name: "cleo" });
    await tenant.client.expect("delete", `/v1/group_chats/${room}/members/agent/ada`);
    await expect.poll(() => listener.of("agent:leave").length).toBe(1);
    expect(listener.of("agent:join", "agent:leave").map(({ type, data }) => [type, data.agent.name])).toEqual([
      ["agent:join", "cleo"],
      ["agent:leave", "ada"],
    ]);
    const turn = await tenant.client.post(`/v1/group_chats/${room}/messages`, { content: "Again.", wait: true });
    expect(turn.messages.slice(1).map(({ author }: Json) => author.name)).toEqual(["bob", "cleo"]);
  });

  test("is given the address of what does not fit into a frame", async () => {
    const long = "long ".repeat(9_000);
    const writes = [chunk({ role: "assistant", content: "" }), chunk({ content: long }), chunk({}, "stop"), done];
    say({ ada: [{ writes }], bob: ["Short."] });
    const room = await openRoom();
    const listener = await listen(room);
    await tenant.client.post(`/v1/group_chats/${room}/messages`, { content: "Speak.", wait: true });
    await expect.poll(() => listener.of("chat:end").length).toBe(1);
    const [cut, short] = listener.of("agent:speak").map(({ data }) => data);
    expect(cut).toMatchObject({ truncated: true, message: { content: null } });
    const path = new URL(cut.url).pathname;
    expect((await tenant.client.get(path)).content).toBe(long);
    const [stream] = listener.of("agent:stream").map(({ data }) => data);
    expect(stream).toMatchObject({ truncated: true, accumulatedContent: null, accumulatedLength: long.length });
    expect(short.message.content).toBe("Short.");
    for (const frame of listener.frames) expect(Buffer.byteLength(JSON.stringify(frame))).toBeLessThanOrEqual(32_768);
  });

  test("causes nothing to be written where nobody does", async () => {
    say({ ada: ["One."], bob: ["Two."] });
    const room = await openRoom();
    const since = gateway.logged.length;
    await tenant.client.post(`/v1/group_chats/${room}/messages`, { content: "Count.", wait: true });
    const listener = await listen(room);
    await new Promise((done) => setTimeout(done, 200));
    expect(listener.frames.map(({ type }) => type)).toEqual(["subscribed"]);
    expect(gateway.logged.slice(since).filter(({ level }) => level === "error")).toEqual([]);
  });
});

describe(`a turn that does not come to its own end ${verifies("VCP-14")}`, () => {
  test("is stopped where it stands; what was said stays", async () => {
    say({ ada: ["One."], bob: [slow("Two and three and four and five and six and seven and eight and nine.", 150)] });
    const room = await openRoom();
    const listener = await listen(room);
    const running = streamed(room, { content: "Count." });
    await expect.poll(() => listener.of("agent:stream").some(({ data }) => data.agent.name === "bob")).toBe(true);
    const { current_turn: turn } = await tenant.client.get(`/v1/group_chats/${room}`);
    expect(await other.client(tenant.key).post(`/v1/group_chats/${room}/stop`)).toEqual({
      object: "group_chat.stop",
      turn_id: turn,
    });
    const events = await running;
    expect(events.at(-2)).toMatchObject({ type: "chat:end", reason: "stopped", messages: 2 });
    const said = await history(room);
    expect(said.map(({ state }) => state)).toEqual(["completed", "completed", "stopped"]);
    expect(said[2].content).toMatch(/^Two/);
    expect(events.at(-3)).toMatchObject({ type: "agent:speak", messageId: said[2].id, message: said[2] });
    await expect.poll(async () => (await tenant.client.get(`/v1/calls/${turn}`)).state).toBe("cancelled");
    expect(await tenant.client.post(`/v1/group_chats/${room}/stop`)).toMatchObject({ turn_id: null });
  });

  test("goes on behind an agent that says more than a message holds: it is cut there, and its model is left", async () => {
    const most = 262_144;
    const piece = "€".repeat(10_000);
    const endless: Round = {
      writes: [
        chunk({ role: "assistant", content: "" }),
        ...Array.from({ length: 200 }, () => chunk({ content: piece })),
      ],
      gapMs: 5,
    };
    const left = model.aborted.length;
    say({ ada: [endless], bob: ["Enough, Ada."] });
    const room = await openRoom();
    const events = await streamed(room, { content: "Talk." });
    expect(events.at(-2)).toMatchObject({ type: "chat:end", reason: "completed", messages: 2 });
    expect(model.aborted.length).toBe(left + 1);
    const said = await history(room);
    expect(said).toMatchObject([
      { state: "completed" },
      { state: "stopped", error: { code: "message_too_long", message: expect.stringContaining(String(most)) } },
      { state: "completed", content: "Enough, Ada.", error: null },
    ]);
    // No half of a character.
    expect(said[1].content).toBe("€".repeat(Math.floor(most / 3)));
    const cut = events.filter(({ messageId }) => messageId === said[1].id);
    expect(cut.at(-1)).toMatchObject({ type: "agent:speak", message: said[1] });
    expect(cut.at(-2)).toMatchObject({ type: "agent:stream", accumulatedContent: said[1].content });
    // The others have heard it.
    expect(told(1).at(-1)).toEqual({ role: "user", content: `[Ada]: ${said[1].content}` });
  });

  test("counts what a message has cost that was cut", async () => {
    const endless: Round = {
      writes: Array.from({ length: 40 }, () => chunk({ content: "word ".repeat(2_000) })),
      gapMs: 5,
    };
    say({ ada: [endless], bob: ["Two."] });
    const poor = await openRoom({ limits: { tokens: 1_000 } });
    expect((await streamed(poor, { content: "Talk." })).at(-2)).toMatchObject({ reason: "budget", messages: 1 });
  });

  test("ends at its wall clock and at its budget, and says which", async () => {
    say({ ada: [slow("One two three four five six seven eight nine ten eleven twelve.", 200)], bob: ["Two."] });
    const late = await openRoom({ limits: { wall_clock_ms: 1_000 } });
    expect((await streamed(late, { content: "Count." })).at(-2)).toMatchObject({ reason: "wall_clock", messages: 1 });
    say({ ada: ["One."], bob: ["Two."] });
    const poor = await openRoom({ limits: { tokens: 10 } });
    expect((await streamed(poor, { content: "Count." })).at(-2)).toMatchObject({ reason: "budget", messages: 1 });
  });

  test("goes on without an agent that fails, and fails where all do", async () => {
    const broken: Round = { json: { error: { message: "no", type: "x", code: "x" } }, status: 400 };
    say({ ada: [broken], bob: ["Two."] });
    const room = await openRoom();
    const events = await streamed(room, { content: "Count." });
    expect(events.filter(({ type }) => type === "error")).toMatchObject([
      { agent: { name: "ada" }, error: { code: "provider_rejected" } },
    ]);
    expect(events.at(-2)).toMatchObject({ type: "chat:end", reason: "completed", messages: 2 });
    expect((await history(room)).map(({ state }) => state)).toEqual(["completed", "failed", "completed"]);
    expect(told(1).at(-1).content).toContain("Count.");
    say({ ada: [broken], bob: [broken] });
    const all = await tenant.client.send("post", `/v1/group_chats/${room}/messages`, { content: "Count.", wait: true });
    expect([all.status, all.json]).toMatchObject([200, { reason: "failed" }]);
  });
});

describe(`a turn whose process dies ${verifies("VCP-14")}`, () => {
  test("is taken up by another one behind what was finished, and nothing is doubled", async () => {
    const deaf = { cancelPollMs: 600_000, heartbeatMs: 600_000 };
    const doomed = await startGateway({ timing: deaf, sharedWith: gateway, requestsOnly: true });
    say({ ada: ["One."], bob: [slow("Two and three and four and five.", 400), "Two, anew."] });
    const room = await openRoom();
    const listener = await listen(room, other);
    const left = new AbortController();
    const running = doomed
      .client(tenant.key)
      .send("post", `/v1/group_chats/${room}/messages`, { content: "Count.", stream: true }, { signal: left.signal })
      .catch(() => undefined);
    await expect.poll(() => listener.of("agent:stream").some(({ data }) => data.agent.name === "bob")).toBe(true);
    const [, first, cut] = await history(room);
    const { current_turn: turn } = await tenant.client.get(`/v1/group_chats/${room}`);
    // As if its process stood still: another one takes the row over.
    const database = await openDatabase({ url: gateway.databaseUrl });
    const takeAway = "UPDATE calls SET lease_until = 1, sent_at = 1 WHERE id = ?1";
    await database.batch([{ sql: takeAway, args: [turn] }]);
    await database.close();
    await gateway.tick();
    await expect.poll(async () => (await history(room)).at(-1).content, { timeout: 10_000 }).toBe("Two, anew.");
    await expect.poll(async () => (await tenant.client.get(`/v1/calls/${turn}`)).state).toBe("completed");
    left.abort();
    await running;
    await doomed.close();
    const said = await history(room);
    expect(said.map(({ content }) => content)).toEqual(["Count.", "One.", "Two, anew."]);
    expect(said.slice(1).map(({ id }) => id)).toEqual([first.id, cut.id]);
    expect(listener.of("agent:speak").map(({ data }) => data.messageId)).toEqual([first.id, cut.id]);
    expect((await tenant.client.get(`/v1/calls/${turn}`)).attempt).toBe(2);
  });
});

describe(`a turn that meets a database that is away ${verifies("VCP-14")}`, () => {
  /** Once, at whichever instance. */
  function withoutDatabase(
    name: "groupChats" | "calls",
    method: string,
    isMeant: (...given: Json[]) => boolean,
  ): { readonly wasAway: boolean } {
    const state = { wasAway: false };
    for (const { core } of [gateway, other]) {
      const repo = core.repos[name];
      const get = (of: Json, asked: string): unknown => {
        if (asked !== method) return of[asked];
        return (...given: Json[]): unknown => {
          if (state.wasAway || !isMeant(...given)) return of[method](...given);
          state.wasAway = true;
          return Promise.reject(new GatewayError("database_unavailable", "The database is away."));
        };
      };
      Object.assign(core.repos, { [name]: new Proxy(repo, { get }) });
      onTestFinished(() => void Object.assign(core.repos, { [name]: repo }));
    }
    return state;
  }
  const answers = async (room: string): Promise<unknown> => {
    const body = { content: "Count.", wait: true };
    const { reason } = await tenant.client.post(`/v1/group_chats/${room}/messages`, body);
    return [reason, (await history(room)).map(({ content }) => content), model.requests.length];
  };

  test("waits, and goes on behind what was said, once it is there again", async () => {
    say({ ada: ["One."], bob: ["Two."] });
    const room = await openRoom();
    const state = withoutDatabase("groupChats", "open", (_tenant, _room, message) => message.position === 2);
    expect(await answers(room)).toEqual(["completed", ["Count.", "One.", "Two."], 2]);
    expect(state.wasAway).toBe(true);
  });

  test("has the agent begin anew whose run could not be recorded", async () => {
    say({ ada: ["One."], bob: ["Two."] });
    const room = await openRoom();
    const state = withoutDatabase("calls", "admit", (input) => input.call?.kind === "chat");
    expect(await answers(room)).toEqual(["completed", ["Count.", "One.", "Two."], 2]);
    expect(state.wasAway).toBe(true);
  });
});

describe(`what was said last ${verifies("VCP-14")}`, () => {
  test("is answered anew; the answers until then are kept as superseded", async () => {
    say({ ada: ["One.", "Uno."], bob: ["Two.", "Due."] });
    const room = await openRoom();
    const first = await tenant.client.post(`/v1/group_chats/${room}/messages`, { content: "Count.", wait: true });
    const again = await tenant.client.post(`/v1/group_chats/${room}/redo`, { wait: true });
    expect(again.messages.map(({ content }: Json) => content)).toEqual(["Uno.", "Due."]);
    // Who answers anew is told nothing of the old answers.
    expect(told(2).slice(2)).toHaveLength(1);
    expect((await history(room)).map(({ content }) => content)).toEqual(["Count.", "Uno.", "Due."]);
    const all = await history(room, "&superseded=true");
    expect(all.filter(({ state }) => state === "superseded")).toMatchObject([
      { content: "One.", turn_id: first.id, superseded_by: again.id },
      { content: "Two.", turn_id: first.id, superseded_by: again.id },
    ]);
    expect(await tenant.client.send("post", `/v1/group_chats/${await openRoom()}/redo`, { wait: true })).toMatchObject({
      status: 409,
      json: { error: { code: "conflict" } },
    });
  });

  test("is answered once, however often the same request is sent", async () => {
    say({ ada: ["One."], bob: ["Two."] });
    const room = await openRoom();
    const path = `/v1/group_chats/${room}/messages`;
    const send = () =>
      tenant.client.send("post", path, { content: "Count.", wait: true }, { headers: { "idempotency-key": "once" } });
    const [first, second] = [await send(), await send()];
    expect(second.headers.get("idempotent-replayed")).toBe("true");
    expect(second.json).toEqual(first.json);
    expect(await history(room)).toHaveLength(3);
  });
});

describe(`people in a group chat ${verifies("VCP-14")}`, () => {
  test("who speak at once are answered one after the other", async () => {
    say({ ada: [slow("First answer of Ada.", 60), "Second answer."], bob: ["First of Bob.", "Second of Bob."] });
    const room = await openRoom();
    const turns = await Promise.all([
      streamed(room, { content: "First question." }),
      streamed(room, { content: "Second question." }, other.client(tenant.key)),
    ]);
    expect(turns.map((events) => events.at(-2))).toMatchObject([{ reason: "completed" }, { reason: "completed" }]);
    const spans = turns.map((events) => {
      const times = events.flatMap(({ message }) => (message?.author.kind === "agent" ? [message.created_at] : []));
      return [times[0], times.at(-1)];
    });
    spans.sort(([a], [b]) => (a < b ? -1 : 1));
    expect(spans[0]?.[1] <= spans[1]?.[0]).toBe(true);
    // The second was told of the first, and nobody of what had not had its turn.
    const sizes = model.requests.map(({ messages }) => (messages as Json[]).slice(2).length);
    expect(sizes).toEqual([1, 2, 4, 5]);
  });

  test("are its members only, where it is for members", async () => {
    say({ ada: ["One."], bob: ["Two."] });
    const ann = await tenant.newKey({ scopes: ["chat"], user_id: "ann" });
    const eve = await tenant.newKey({ scopes: ["chat"], user_id: "eve" });
    const room = await openRoom({
      access: "members",
      members: [...pair, { kind: "user", name: "ann", display_name: "Ann" }],
    });
    const listener = await listen(room, gateway, ann.key);
    await ann.client.post(`/v1/group_chats/${room}/messages`, { content: "Hello.", wait: true });
    expect((await history(room))[0].author).toEqual({ kind: "user", name: "ann", display_name: "Ann" });
    const path = `/v1/group_chats/${room}`;
    for (const [method, target, body] of [
      ["get", path, undefined],
      ["get", `${path}/messages`, undefined],
      ["post", `${path}/messages`, { content: "Let me in." }],
      ["post", `${path}/members`, {}],
      ["post", `${path}/stop`, {}],
    ] as const) {
      expect((await eve.client.send(method, target, body)).status).toBe(404);
    }
    expect((await eve.client.get("/v1/group_chats?limit=100")).data.map(({ id }: Json) => id)).not.toContain(room);
    const away = await connectSocket(`${gateway.url.replace(/^http/, "ws")}/ws`, {
      headers: { authorization: `Bearer ${eve.key}` },
    });
    onTestFinished(() => away.socket.terminate());
    expect(await away.ask({ type: "subscribe", topic: "group_chat", group_chat_id: room })).toMatchObject({
      type: "error",
      error: { code: "not_found" },
    });
    await tenant.client.expect("delete", `${path}/members/user/ann`);
    const heard = listener.frames.length;
    await tenant.client.post(`${path}/messages`, { content: "Is she gone?", wait: true });
    await new Promise((done) => setTimeout(done, 200));
    expect(listener.frames).toHaveLength(heard);
    expect((await ann.client.send("get", path)).status).toBe(404);
  });

  test("who may not chat hear nothing that is said, wherever they ask", async () => {
    const room = await openRoom();
    const { key, client } = await tenant.newKey({ role: "admin", scopes: ["tools", "calls", "node", "manage"] });
    expect((await client.send("get", `/v1/group_chats/${room}/messages`)).status).toBe(403);
    const deaf = await connectSocket(`${gateway.url.replace(/^http/, "ws")}/ws`, {
      headers: { authorization: `Bearer ${key}` },
    });
    onTestFinished(() => deaf.socket.terminate());
    expect(await deaf.ask({ type: "subscribe", topic: "group_chat", group_chat_id: room })).toMatchObject({
      type: "error",
      error: { code: "permission_denied", param: "chat" },
    });
  });

  test("need no tool to speak, and lend agents none that they have not", async () => {
    const bound = await tenant.newKey({ scopes: ["chat"], tools: ["nothing_of_this_name"] });
    say({ ada: [calls({ name: "read_file", arguments: { path: "a.txt" } }), "I could not."], bob: ["Two."] });
    const room = await openRoom();
    const accepted = await bound.client.send("post", `/v1/group_chats/${room}/messages`, { content: "Read it." });
    expect(accepted.status).toBe(202);
    await expect.poll(async () => (await history(room)).map(({ state }) => state)).toEqual(Array(3).fill("completed"));
    expect((await history(room))[1].content).toBe("I could not.");
  });
});

describe(`what the Tavern hides ${verifies("VCP-9", "VCP-14")}`, () => {
  test("is told to the model and to nobody in the room", async () => {
    const secret = "the vault's word is heliotrope";
    const hidden = await gateway.newTenant({ message_pipeline: "all" });
    await hidden.addProvider(model.url);
    const rule = { type: "depth", depth: 1, role: "hidden", content: secret };
    await hidden.client.expect("put", "/v1/vcp/presets/secret", { rules: [rule] });
    await hidden.client.post("/v1/agents", {
      name: "ada",
      model: "stub-1",
      instructions: "Be ada.\n{{VCPTavern::secret}}",
    });
    say({ ada: ["I may not say."] });
    const room = await openRoom({ members: [{ kind: "agent", name: "ada" }] }, hidden.client);
    const listener = await listen(room, gateway, hidden.key);
    const events = await streamed(room, { content: "Say it." }, hidden.client);
    await expect.poll(() => listener.of("chat:end").length).toBe(1);
    expect(JSON.stringify(model.requests)).toContain(secret);
    const read = await hidden.client.get(`/v1/group_chats/${room}/messages`);
    for (const heard of [events, listener.frames, read]) expect(JSON.stringify(heard)).not.toContain("heliotrope");
  });
});
