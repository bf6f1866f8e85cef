/**
 * The role divider, the last step: marks of roles inside a text split its message into several
 * (`<<<[ROLE_DIVIDE_USER]>>>…<<<[END_ROLE_DIVIDE_USER]>>>`). The first message stays whole, and so do marks
 * inside a TOOL_REQUEST block, which are an argument's text. What a user or a model has written never becomes a
 * system message: there such marks are text.
 */
import type { JsonObject } from "../../json.ts";
import { isOfSystem } from "../message-text.ts";

const marks = /<<<\[(END_)?(?:ROLE_DIVIDE_(SYSTEM|ASSISTANT|USER)|TOOL_REQUEST)\]>>>/g;

/** The messages that one message comes to; itself where nothing divides it. */
export function divideRoles(message: JsonObject): readonly JsonObject[] {
  const { role, content } = message;
  if (typeof content !== "string" || !content.includes("<<<[ROLE_DIVIDE_")) return [message];
  const isSystem = isOfSystem(message);
  if (typeof role !== "string" || !(isSystem || role === "user" || role === "assistant")) return [message];
  // Calls belong to the message as a whole.
  if (message["tool_calls"] !== undefined) return [message];
  const pieces = piecesOf(content, { own: role, isSystem }).filter(({ text }) => text !== "");
  const [only] = pieces;
  if (pieces.length === 0) return [message];
  if (pieces.length === 1 && only?.text === content) return [message];
  return pieces.map((piece) => ({ ...message, role: piece.role, content: piece.text }));
}

interface Piece {
  readonly role: string;
  readonly text: string;
}

/** One mark of a role, with where the division that it begins would end. */
interface Mark {
  readonly at: number;
  readonly after: number;
  readonly name: string;
  readonly isEnd: boolean;
}

/** Linear in the length of the text, whatever stands in it. */
function piecesOf(content: string, { own, isSystem }: { readonly own: string; readonly isSystem: boolean }): Piece[] {
  const roles = marksOf(content).filter(({ name }) => isSystem || name !== "SYSTEM");
  const ends = endsOf(roles);
  const pieces: Piece[] = [];
  let from = 0;
  roles.forEach((mark, index) => {
    if (mark.isEnd || mark.at < from) return;
    const end = ends[index];
    if (end === undefined) return;
    pieces.push({ role: own, text: content.slice(from, mark.at).trim() });
    pieces.push({ role: mark.name.toLowerCase(), text: content.slice(mark.after, end.at).trim() });
    from = end.after;
  });
  if (from === 0) return [{ role: own, text: content }];
  pieces.push({ role: own, text: content.slice(from).trim() });
  return pieces;
}

/** Marks of roles outside of TOOL_REQUEST blocks. */
function marksOf(content: string): readonly Mark[] {
  const all = [...content.matchAll(marks)];
  const lastBlockEnd = all.findLastIndex(([, end, name]) => name === undefined && end !== undefined);
  const found: Mark[] = [];
  let isInBlock = false;
  for (const [order, match] of all.entries()) {
    const [text, end, name] = match;
    if (name === undefined) {
      // A block that never ends is none.
      isInBlock = end === undefined && order < lastBlockEnd;
    } else if (!isInBlock) {
      const at = match.index;
      found.push({ at, after: at + text.length, name, isEnd: end !== undefined });
    }
  }
  return found;
}

/** For each mark the next end of the same role. */
function endsOf(found: readonly Mark[]): readonly (Mark | undefined)[] {
  const next = new Map<string, Mark>();
  const ends: (Mark | undefined)[] = [];
  for (let index = found.length - 1; index >= 0; index -= 1) {
    const mark = found[index];
    if (mark === undefined) continue;
    ends[index] = next.get(mark.name);
    if (mark.isEnd) next.set(mark.name, mark);
  }
  return ends;
}
