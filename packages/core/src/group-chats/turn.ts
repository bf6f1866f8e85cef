/**
 * One turn of a group chat: what was said, and the answers of the agents to it, one after the other. All that it
 * knows is in the rows: where its process dies, another one goes on behind the last answer that was finished, and
 * begins the one that was not anew, under its id.
 */
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError, toGatewayError } from "../errors/gateway-error.ts";
import { isOutage } from "../errors/outage.ts";
import { toOpenAiError } from "../errors/to-openai.ts";
import { newId } from "../ids.ts";
import type { BegunTurn } from "../ports/group-chats.ts";
import type { InvocationContext } from "../tools/tool-call.ts";
import { Announcer } from "./announcer.ts";
import { Chunks, mostSaidBytes } from "./chunks.ts";
import type { GroupChatEvent, TurnReason } from "./events.ts";
import type { GroupChat, GroupChatMessage, NewGroupChatMember } from "./group-chat.ts";
import { agentsOf, toSpeaker } from "./members.ts";
import { Moderator } from "./moderator.ts";
import { nextSpeaker } from "./speakers.ts";
import { LeadingName, transcriptFor } from "./transcript.ts";
import { viewMember, viewMessage } from "./view.ts";
import { Voices, type Saying } from "./voices.ts";

export interface TurnCall {
  readonly id: string;
  readonly attempt: number;
}

export interface TurnEnd {
  readonly reason: TurnReason;
  /** Of agents. */
  readonly messages: readonly GroupChatMessage[];
  readonly error?: GatewayError;
}

/** How often what was said so far is kept, for who reads the history meanwhile. */
const noteEveryMs = 2_000;

/** Codes of errors that say that nothing more may be spent, whoever would speak. */
const budgetCodes: ReadonlySet<string> = new Set(["budget_exceeded", "cost_exceeded"]);

interface Said extends Saying {
  readonly content: string;
}

type Next =
  | { readonly kind: "speaker"; readonly agent: NewGroupChatMember; readonly reason: string | null }
  | { readonly kind: "end"; readonly reason: TurnReason; readonly error?: GatewayError };

export class Turn {
  readonly #deps: CoreDeps;
  readonly #context: InvocationContext;
  readonly #call: TurnCall;
  readonly #begun: BegunTurn;
  readonly #announcer: Announcer;
  readonly #voices: Voices;
  readonly #moderator: Moderator;
  readonly #stop = new AbortController();
  readonly #spoken: GroupChatMessage[];
  #groupChat: GroupChat;
  #outOfTime = false;
  #tokens = 0;
  #micros = 0;

  constructor(
    deps: CoreDeps,
    context: InvocationContext,
    turn: { readonly call: TurnCall; readonly begun: BegunTurn },
  ) {
    const { groupChat, spoken } = turn.begun;
    this.#deps = deps;
    this.#context = context;
    this.#call = turn.call;
    this.#begun = turn.begun;
    this.#groupChat = groupChat;
    this.#spoken = spoken.filter(({ state }) => state !== "streaming");
    this.#announcer = new Announcer(deps, { tenant: context.tenant, id: groupChat.id }, context.onEvent);
    this.#voices = new Voices(deps, context, { turnId: turn.call.id, groupChat: groupChat.id });
    this.#moderator = new Moderator(this.#voices);
  }

  /** Never throws but where what it is recorded with is away, or another process has the turn. */
  async run(): Promise<TurnEnd> {
    const { signal } = this.#context;
    const stop = (): void => this.#stop.abort(signal.reason);
    if (signal.aborted) stop();
    else signal.addEventListener("abort", stop, { once: true });
    const left = this.#groupChat.limits.wall_clock_ms - this.#begun.elapsedMs;
    const timer = setTimeout(
      () => {
        this.#outOfTime = true;
        stop();
      },
      Math.max(1, left),
    );
    try {
      this.#tell({
        type: "chat:start",
        ...this.#place,
        mode: this.#groupChat.mode,
        members: this.#groupChat.members.map(viewMember),
        message: viewMessage(this.#begun.trigger),
      });
      const end = await this.#speakInTurns();
      this.#tell({
        type: "chat:end",
        ...this.#place,
        reason: end.reason,
        messages: end.messages.length,
        ...(end.error === undefined ? {} : { error: toOpenAiError(end.error).error }),
      });
      return end;
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", stop);
      await this.#announcer.end();
    }
  }

  get #place(): { readonly chatId: string; readonly turnId: string } {
    return { chatId: this.#groupChat.id, turnId: this.#call.id };
  }

  #tell(event: GroupChatEvent): void {
    this.#announcer.tell(event);
  }

  async #speakInTurns(): Promise<TurnEnd> {
    let last: GatewayError | undefined;
    for (;;) {
      const next = this.#mustEnd(last) ?? (await this.#wasCancelled(last)) ?? (await this.#next());
      if (next.kind === "end") {
        const { reason, error } = next;
        return { reason, messages: this.#spoken, ...(error === undefined ? {} : { error }) };
      }
      last = await this.#letSpeak(next.agent, next.reason);
    }
  }

  /** What ends a turn whoever would be next. */
  #mustEnd(last: GatewayError | undefined): Extract<Next, { kind: "end" }> | undefined {
    if (this.#outOfTime) return { kind: "end", reason: "wall_clock" };
    if (this.#stop.signal.aborted) return { kind: "end", reason: "stopped" };
    if (last !== undefined && budgetCodes.has(last.code)) return { kind: "end", reason: "budget", error: last };
    return undefined;
  }

  /** A cancel reaches the runs below before it is heard of here. */
  async #wasCancelled(last: GatewayError | undefined): Promise<Next | undefined> {
    if (last === undefined || !isCancel(last)) return undefined;
    const isOver = await this.#deps.repos.calls.isCancelRequested(this.#context.tenant, this.#call.id);
    return isOver ? { kind: "end", reason: "stopped" } : undefined;
  }

  async #next(): Promise<Next> {
    const { mode, limits } = this.#groupChat;
    const so = { groupChat: this.#groupChat, trigger: this.#begun.trigger, spoken: this.#spoken };
    // A moderator is not asked for what there is no room for.
    if (mode === "invited") return this.#atLimit(limits) ?? this.#invited();
    const agent = nextSpeaker(so);
    if (agent === undefined) return this.#completed();
    return this.#atLimit(limits) ?? { kind: "speaker", agent, reason: null };
  }

  /** Where every answer has failed, so has the turn. */
  #completed(): Next {
    const failed = this.#spoken.filter(({ state }) => state === "failed");
    const error = failed.at(-1)?.error;
    if (error === null || error === undefined || failed.length < this.#spoken.length)
      return { kind: "end", reason: "completed" };
    const why = `No agent has answered; the last one: ${error.message}`;
    return { kind: "end", reason: "failed", error: new GatewayError("tool_failed", why) };
  }

  #atLimit(limits: GroupChat["limits"]): Next | undefined {
    if (this.#spoken.length >= limits.messages) return { kind: "end", reason: "max_messages" };
    const overTokens = limits.tokens !== undefined && this.#tokens >= limits.tokens;
    const overCost = limits.cost_micros !== undefined && this.#micros >= limits.cost_micros;
    return overTokens || overCost ? { kind: "end", reason: "budget" } : undefined;
  }

  async #invited(): Promise<Next> {
    try {
      const decision = await this.#moderator.decide(
        { groupChat: this.#groupChat, said: [...this.#begun.history, this.#begun.trigger, ...this.#spoken] },
        this.#stop.signal,
      );
      this.#count(decision);
      if (decision.invited === undefined) return { kind: "end", reason: "ended_by_moderator" };
      return { kind: "speaker", agent: decision.invited, reason: decision.reason };
    } catch (thrown) {
      const error = toGatewayError(thrown);
      const ended = this.#mustEnd(error);
      if (ended !== undefined) return ended;
      if (isOutage(error)) throw error;
      this.#tell({ type: "error", ...this.#place, error: toOpenAiError(error).error });
      return { kind: "end", reason: "failed", error };
    }
  }

  #count({ tokens, micros }: Pick<Saying, "tokens" | "micros">): void {
    this.#tokens += tokens;
    this.#micros += micros;
  }

  /** @returns why the agent could not speak */
  async #letSpeak(agent: NewGroupChatMember, reason: string | null): Promise<GatewayError | undefined> {
    const { tenant } = this.#context;
    const opened = await this.#deps.repos.groupChats.open(tenant, this.#groupChat.id, {
      id: newId("message"),
      turn: this.#call.id,
      attempt: this.#call.attempt,
      trigger: this.#begun.trigger.id,
      position: this.#spoken.length + 1,
      author: agent,
      reason,
    });
    if (opened === undefined) throw takenOver();
    const speaker = { agent: toSpeaker(agent), messageId: opened.message.id };
    this.#tell({ type: "agent:thinking", ...this.#place, ...speaker, ...(reason === null ? {} : { reason }) });
    const saying = await this.#listen(agent, opened.message, speaker);
    const state = this.#stateOf(saying);
    // It was not the agent that failed: it begins anew when the turn goes on.
    if (state === "failed" && saying.error !== undefined && isOutage(saying.error)) throw saying.error;
    const closed = await this.#deps.repos.groupChats.close(tenant, this.#groupChat.id, {
      id: opened.message.id,
      attempt: this.#call.attempt,
      state,
      content: saying.content,
      error: saying.error !== undefined && (state === "failed" || isCut(saying.error)) ? brief(saying.error) : null,
      callId: saying.callId,
      readOutside: saying.readOutside,
    });
    if (closed === undefined) throw takenOver();
    this.#count(saying);
    this.#spoken.push(closed.message);
    if (saying.error !== undefined && state === "failed") {
      this.#tell({ type: "error", ...this.#place, ...speaker, error: toOpenAiError(saying.error).error });
    }
    this.#tell({ type: "agent:speak", ...this.#place, ...speaker, message: viewMessage(closed.message) });
    this.#follow(closed.groupChat);
    return saying.error;
  }

  #stateOf({ error }: Saying): "completed" | "failed" | "stopped" {
    if (error === undefined) return "completed";
    return this.#stop.signal.aborted || isCancel(error) || isCut(error) ? "stopped" : "failed";
  }

  async #listen(
    agent: NewGroupChatMember,
    message: GroupChatMessage,
    speaker: { readonly agent: ReturnType<typeof toSpeaker>; readonly messageId: string },
  ): Promise<Said> {
    const { clock } = this.#deps;
    const chunks = new Chunks(() => clock.now());
    const name = new LeadingName(agent);
    const notes = new Notes(this.#deps, this.#context.tenant, { id: message.id, attempt: this.#call.attempt });
    const tell = (chunk: ReturnType<Chunks["rest"]>): void => {
      if (chunk !== undefined) this.#tell({ type: "agent:stream", ...this.#place, ...speaker, ...chunk });
    };
    const said = [...this.#begun.history, this.#begun.trigger, ...this.#spoken];
    const saying = await this.#voices.speak(agent.name, {
      messages: transcriptFor({
        groupChat: this.#groupChat,
        agent,
        descriptions: this.#voices.descriptions(agentsOf(this.#groupChat)),
        said,
        invitation: message.reason,
      }),
      messageId: message.id,
      isRepeated: this.#call.attempt > 1,
      readOutside: said.some(({ readOutside }) => readOutside),
      signal: this.#stop.signal,
      onText: (text) => {
        const shown = name.read(text);
        if (shown !== "") tell(chunks.add(shown));
        notes.write(chunks.said, this.#voices.callId);
        return !chunks.isFull;
      },
      onPause: () => tell(chunks.rest()),
    });
    const rest = name.end();
    if (rest !== "") chunks.add(rest);
    tell(chunks.rest());
    await notes.end();
    return { ...saying, content: chunks.said, error: chunks.isFull ? tooLong() : saying.error };
  }

  /** Who came and went while an agent spoke. */
  #follow(now: GroupChat): void {
    const before = agentsOf(this.#groupChat);
    const after = agentsOf(now);
    for (const agent of after) {
      if (!before.some(({ name }) => name === agent.name)) this.#tellOf("agent:join", agent);
    }
    for (const agent of before) {
      if (!after.some(({ name }) => name === agent.name)) this.#tellOf("agent:leave", agent);
    }
    this.#groupChat = now;
  }

  /** Connections have heard of it from who made the change. */
  #tellOf(type: "agent:join" | "agent:leave", agent: NewGroupChatMember): void {
    this.#context.onEvent?.({ type, chatId: this.#groupChat.id, agent: toSpeaker(agent) });
  }
}

function brief({ code, message }: GatewayError): { readonly code: string; readonly message: string } {
  return { code, message };
}

function takenOver(): GatewayError {
  const why = "The group chat was deleted, or another process has taken this turn over.";
  return new GatewayError("call_interrupted", why);
}

function tooLong(): GatewayError {
  return new GatewayError(
    "message_too_long",
    `A message of a group chat holds ${mostSaidBytes} bytes of UTF-8, and the agent has said more; it was cut there. Have it say less at once, by its instructions or its parameter 'max_completion_tokens'.`,
  );
}

function isCut({ code }: GatewayError): boolean {
  return code === "message_too_long";
}

function isCancel({ code }: GatewayError): boolean {
  return code === "request_cancelled" || code === "call_cancelled";
}

/** Keeps what was said so far, now and then, beside the saying. */
class Notes {
  readonly #deps: Pick<CoreDeps, "repos" | "clock">;
  readonly #tenant: string;
  readonly #message: { readonly id: string; readonly attempt: number };
  #writtenAt: number;
  #writing: Promise<void> = Promise.resolve();
  #isWriting = false;

  constructor(
    deps: Pick<CoreDeps, "repos" | "clock">,
    tenant: string,
    message: { readonly id: string; readonly attempt: number },
  ) {
    this.#deps = deps;
    this.#tenant = tenant;
    this.#message = message;
    this.#writtenAt = deps.clock.now();
  }

  write(content: string, callId: string | null): void {
    const now = this.#deps.clock.now();
    if (this.#isWriting || now - this.#writtenAt < noteEveryMs) return;
    this.#writtenAt = now;
    this.#isWriting = true;
    // The message itself is written when it is complete; a note that is lost is made up for by the next one.
    this.#writing = this.#deps.repos.groupChats
      .note(this.#tenant, { ...this.#message, content, callId })
      .catch(() => undefined)
      .finally(() => {
        this.#isWriting = false;
      });
  }

  end(): Promise<void> {
    return this.#writing;
  }
}
