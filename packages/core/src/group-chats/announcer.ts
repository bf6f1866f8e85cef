/**
 * Tells of a turn: whoever waits for it at once, and connections that listen to the room (realtime/). What is for
 * those is written together, a few times a second, beside the turn; while nobody is there nothing is written but
 * what shows whether somebody has come.
 */
import type { CoreDeps } from "../core-deps.ts";
import { toGatewayError } from "../errors/gateway-error.ts";
import type { JsonObject, JsonValue } from "../json.ts";
import { publish } from "../realtime/publish.ts";
import type { Publication } from "../realtime/publication.ts";
import { mergeChunks, type GroupChatEvent } from "./events.ts";
import type { NewGroupChatMember } from "./group-chat.ts";
import { toSpeaker } from "./members.ts";

const pauseMs = 200;
/** Leaves room for the rest of the frame, which has at most 32 KiB. */
const longestData = 30_000;

type AnnouncerDeps = Pick<CoreDeps, "repos" | "clock" | "log" | "tellNow" | "publicUrl">;

export class Announcer {
  readonly #deps: AnnouncerDeps;
  readonly #room: { readonly tenant: string; readonly id: string };
  readonly #onEvent: ((event: GroupChatEvent) => void) | undefined;
  #waiting: GroupChatEvent[] = [];
  #writing: Promise<void> | undefined;
  #isHeard = true;

  constructor(
    deps: AnnouncerDeps,
    room: { readonly tenant: string; readonly id: string },
    onEvent: ((event: GroupChatEvent) => void) | undefined,
  ) {
    this.#deps = deps;
    this.#room = room;
    this.#onEvent = onEvent;
  }

  tell(event: GroupChatEvent): void {
    this.#onEvent?.(event);
    if (!this.#isHeard && (event.type === "agent:stream" || event.type === "agent:thinking")) return;
    const merged = mergeChunks(this.#waiting.at(-1), event);
    if (merged === undefined) this.#waiting.push(event);
    else this.#waiting[this.#waiting.length - 1] = merged;
    this.#writing ??= this.#write();
  }

  /** Until all is written. */
  async end(): Promise<void> {
    await this.#writing;
  }

  async #write(): Promise<void> {
    while (this.#waiting.length > 0) {
      const events = this.#waiting;
      this.#waiting = [];
      await this.#publish(events);
      if (this.#waiting.length > 0) await this.#deps.clock.sleep(pauseMs).catch(() => undefined);
    }
    this.#writing = undefined;
  }

  async #publish(events: readonly GroupChatEvent[]): Promise<void> {
    const { tenant, id } = this.#room;
    try {
      const publications = events.map((event) => toPublication(event, id, this.#deps.publicUrl));
      this.#isHeard = (await publish(this.#deps, tenant, publications)) > 0;
      if (this.#isHeard) await this.#deps.tellNow();
    } catch (thrown) {
      // Who listens reads the history when it misses something.
      this.#deps.log.log("warn", "events of a group chat were not told", {
        tenant,
        group_chat: id,
        code: toGatewayError(thrown).code,
      });
    }
  }
}

/** Whoever listens to a room hears who came and who went. */
export async function publishMember(
  deps: AnnouncerDeps,
  tenant: string,
  change: { readonly type: "agent:join" | "agent:leave"; readonly room: string; readonly member: NewGroupChatMember },
): Promise<void> {
  const { type, room, member } = change;
  if (member.kind !== "agent") return;
  const announcer = new Announcer(deps, { tenant, id: room }, undefined);
  announcer.tell({ type, chatId: room, agent: toSpeaker(member) });
  await announcer.end();
}

function toPublication(event: GroupChatEvent, room: string, publicUrl: string): Publication {
  const { type, ...data } = event;
  return {
    type,
    audience: { kind: "group_chat", value: room },
    data: fitFrame(data as unknown as JsonObject, `${publicUrl}/v1/group_chats/${room}/messages`),
  };
}

/** Texts that do not fit into a frame are left out, with the address of the message that has them. */
function fitFrame(data: JsonObject, messagesUrl: string): JsonObject {
  if (fits(data)) return data;
  const { messageId, message } = data;
  const id = typeof messageId === "string" ? messageId : idOf(message);
  const cut: JsonObject = { ...data, truncated: true, ...(id === undefined ? {} : { url: `${messagesUrl}/${id}` }) };
  if (typeof cut["accumulatedContent"] === "string") {
    cut["accumulatedLength"] = cut["accumulatedContent"].length;
    cut["accumulatedContent"] = null;
  }
  if (message !== undefined && message !== null && typeof message === "object" && !Array.isArray(message)) {
    cut["message"] = { ...message, content: null };
  }
  if (fits(cut)) return cut;
  return { ...cut, ...(typeof cut["chunk"] === "string" ? { chunk: null } : {}), members: [] };
}

function fits(data: JsonObject): boolean {
  return Buffer.byteLength(JSON.stringify(data)) <= longestData;
}

function idOf(message: JsonValue | undefined): string | undefined {
  if (message === null || typeof message !== "object" || Array.isArray(message)) return undefined;
  return typeof message["id"] === "string" ? message["id"] : undefined;
}
