/** Names that are said with an `@` before them. */
import type { NewGroupChatMember } from "./group-chat.ts";
import { shownName } from "./members.ts";

/** `@`s of one text behind which a name is looked for: far more than a room has members. */
export const mostSigns = 1_000;

/**
 * Members whose name, or shown name, is mentioned, each once, in the order of their first mention. What comes behind
 * `mostSigns` mentions nobody: whoever writes a text does not decide how long reading it takes.
 */
export function mentionsIn(text: string, members: readonly NewGroupChatMember[]): readonly NewGroupChatMember[] {
  const names = members
    .flatMap((member) => [...new Set([shownName(member), member.name])].map((name) => ({ member, name: fold(name) })))
    // So that `@ada-two` does not mean `ada`.
    .sort((a, b) => b.name.length - a.name.length);
  // With what must not go on with the name.
  const longest = (names[0]?.name.length ?? 0) + 2;
  const mentioned: NewGroupChatMember[] = [];
  let signs = 0;
  for (let at = text.indexOf("@"); at >= 0 && signs < mostSigns; at = text.indexOf("@", at + 1)) {
    // An address of mail mentions nobody.
    if (isWordCharacter(text.charAt(at - 1))) continue;
    signs += 1;
    const next = fold(text.slice(at + 1, at + 1 + longest));
    const found = names.find(({ name }) => next.startsWith(name) && endsAt(next, name));
    if (found !== undefined && !mentioned.includes(found.member)) mentioned.push(found.member);
  }
  return mentioned;
}

/** Same length, so that places in one are places in the other. */
function fold(text: string): string {
  return text.replaceAll(/[A-Z]/g, (letter) => letter.toLowerCase());
}

/** What follows must not go on with the name; scripts that write no spaces end it by themselves. */
function endsAt(text: string, name: string): boolean {
  return (
    !isWordCharacter(name.slice(-1)) || !/^[A-Za-z0-9_-]?[A-Za-z0-9_]/.test(text.slice(name.length, name.length + 2))
  );
}

function isWordCharacter(character: string): boolean {
  return /[A-Za-z0-9_]/.test(character);
}
