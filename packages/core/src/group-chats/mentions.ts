/** Names that are said with an `@` before them. */
import type { NewGroupChatMember } from "./group-chat.ts";
import { shownName } from "./members.ts";

/** Members whose name, or shown name, is mentioned, each once, in the order of their first mention. */
export function mentionsIn(text: string, members: readonly NewGroupChatMember[]): readonly NewGroupChatMember[] {
  const names = members
    .flatMap((member) => [...new Set([shownName(member), member.name])].map((name) => ({ member, name: fold(name) })))
    // So that `@ada-two` does not mean `ada`.
    .sort((a, b) => b.name.length - a.name.length);
  const folded = fold(text);
  const mentioned: NewGroupChatMember[] = [];
  for (let at = folded.indexOf("@"); at >= 0; at = folded.indexOf("@", at + 1)) {
    // An address of mail mentions nobody.
    if (isWordCharacter(folded.charAt(at - 1))) continue;
    const found = names.find(({ name }) => folded.startsWith(name, at + 1) && endsAt(folded, at + 1, name));
    if (found !== undefined && !mentioned.includes(found.member)) mentioned.push(found.member);
  }
  return mentioned;
}

/** Same length, so that places in one are places in the other. */
function fold(text: string): string {
  return text.replaceAll(/[A-Z]/g, (letter) => letter.toLowerCase());
}

/** What follows must not go on with the name; scripts that write no spaces end it by themselves. */
function endsAt(text: string, from: number, name: string): boolean {
  return (
    !isWordCharacter(name.slice(-1)) ||
    !/^[A-Za-z0-9_-]?[A-Za-z0-9_]/.test(text.slice(from + name.length, from + name.length + 2))
  );
}

function isWordCharacter(character: string): boolean {
  return /[A-Za-z0-9_]/.test(character);
}
