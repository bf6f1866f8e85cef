/** Who speaks next in a turn, from what was said in it. Pure, so that a turn can be taken up where it was cut off. */
import type { GroupChat, GroupChatMessage, NewGroupChatMember } from "./group-chat.ts";
import { agentsOf } from "./members.ts";
import { mentionsIn } from "./mentions.ts";

export interface TurnSoFar {
  readonly groupChat: GroupChat;
  readonly trigger: GroupChatMessage;
  /** What agents have said in it to its end, oldest first. */
  readonly spoken: readonly GroupChatMessage[];
}

/** Undefined: nobody is left. For the modes that need no moderator. */
export function nextSpeaker(turn: TurnSoFar): NewGroupChatMember | undefined {
  return turn.groupChat.mode === "mentioned" ? nextMentioned(turn) : nextInOrder(turn);
}

function nextInOrder({ groupChat, spoken }: TurnSoFar): NewGroupChatMember | undefined {
  return agentsOf(groupChat).find(({ name }) => !spoken.some(({ author }) => author.name === name));
}

/** Each message calls up those whom it mentions, behind those who were called before. */
function nextMentioned({ groupChat, trigger, spoken }: TurnSoFar): NewGroupChatMember | undefined {
  const agents = agentsOf(groupChat);
  const waiting: NewGroupChatMember[] = [];
  for (const { author, content } of [trigger, ...spoken]) {
    const at = waiting.findIndex(({ name }) => author.kind === "agent" && name === author.name);
    if (at >= 0) waiting.splice(at, 1);
    for (const agent of mentionsIn(content, agents)) {
      const isSelf = author.kind === "agent" && agent.name === author.name;
      if (!isSelf && !waiting.includes(agent)) waiting.push(agent);
    }
  }
  return waiting[0];
}
