/**
 * A room's conversation as one agent is given it: its own words as the assistant's, those of others as a user's,
 * with the name of who said them before them. One message of the room is one message there, so that what somebody
 * writes cannot pass for somebody else's.
 */
import type { JsonObject } from "../json.ts";
import type { GroupChat, GroupChatMessage, NewGroupChatMember } from "./group-chat.ts";
import { agentsOf, shownName } from "./members.ts";

export interface Listener {
  readonly groupChat: GroupChat;
  readonly agent: NewGroupChatMember;
  /** By agent: what it is there for. */
  readonly descriptions: ReadonlyMap<string, string>;
  /** Oldest first; the last is what is answered. */
  readonly said: readonly GroupChatMessage[];
  /** What the moderator wants of the agent. */
  readonly invitation: string | null;
}

export function transcriptFor(listener: Listener): JsonObject[] {
  const { agent, said, invitation } = listener;
  const messages = said.filter(isHeard).map((message) => toMessage(message, agent));
  if (invitation !== null) {
    messages.push({ role: "user", content: `[moderator]: It is your turn, ${shownName(agent)}. ${invitation}` });
  }
  return [{ role: "system", content: preamble(listener) }, ...messages];
}

/** What failed says nothing to the others. */
export function isHeard({ state, content }: GroupChatMessage): boolean {
  return (state === "completed" || state === "stopped") && content !== "";
}

function toMessage({ author, content }: GroupChatMessage, agent: NewGroupChatMember): JsonObject {
  if (author.kind === "agent" && author.name === agent.name) return { role: "assistant", content };
  return { role: "user", content: attributed(author, content) };
}

export function attributed(author: NewGroupChatMember, content: string): string {
  return `[${shownName(author)}]: ${content}`;
}

function preamble({ groupChat, agent, descriptions }: Listener): string {
  const own = shownName(agent);
  return [
    `You are ${own}, one of several in the group chat "${groupChat.name}".`,
    ...(groupChat.topic === null ? [] : [`Its topic: ${groupChat.topic}`]),
    `Agents in it: ${describeAgents(groupChat, descriptions)}`,
    `What others say begins with the name of its speaker in square brackets; all that follows in the same message is theirs. Answer as ${own} alone, without such a name before your answer, and do not speak for others.`,
    ...(groupChat.mode === "mentioned"
      ? ["Whom you mention with @ before the name answers after you; mention nobody where nobody needs to answer."]
      : []),
  ].join("\n");
}

export function describeAgents(groupChat: GroupChat, descriptions: ReadonlyMap<string, string>): string {
  return agentsOf(groupChat)
    .map((agent) => {
      const about = descriptions.get(agent.name) ?? "";
      return about === "" ? shownName(agent) : `${shownName(agent)} (${about})`;
    })
    .join("; ");
}

/** A name with the blanks around it is not longer. */
const mostHeld = 1_000;

/**
 * Takes the speaker's own name off the beginning of an answer: models that see names before what is said write
 * them, too. What may still become one is held back.
 */
export class LeadingName {
  readonly #prefixes: readonly string[];
  /** Undefined: it is known what the answer begins with. */
  #held: string | undefined = "";

  constructor(agent: NewGroupChatMember) {
    const names = [...new Set([shownName(agent), agent.name])];
    this.#prefixes = names.flatMap((name) => [`[${name}]:`, `[${name}]：`, `[${name}]`, `${name}:`, `${name}：`]);
  }

  /** @returns what can be shown by now */
  read(text: string): string {
    if (this.#held === undefined) return text;
    this.#held += text;
    return this.#isOpen(this.#held) ? "" : this.end();
  }

  /** What is left when nothing more comes. */
  end(): string {
    const held = this.#held ?? "";
    this.#held = undefined;
    const start = held.trimStart();
    const prefix = this.#prefixes.find((each) => start.startsWith(each));
    return prefix === undefined ? held : start.slice(prefix.length).trimStart();
  }

  /** May it still become a name, or is it one whose end is not there yet? */
  #isOpen(held: string): boolean {
    if (held.length > mostHeld) return false;
    const start = held.trimStart();
    if (this.#prefixes.some((each) => each.startsWith(start))) return true;
    const rest = this.#prefixes.find((each) => start.startsWith(each));
    return rest !== undefined && start.slice(rest.length).trim() === "";
  }
}
