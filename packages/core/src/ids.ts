/**
 * Identifiers: a prefix that names the kind and 26 characters of Crockford base 32, of which the
 * first ten are the time, so that ids of one kind sort by creation (`call_01J…`).
 */
import { randomFillSync } from "node:crypto";

const alphabet = "0123456789abcdefghjkmnpqrstvwxyz";

export const idPrefixes = {
  tenant: "ten",
  apiKey: "key",
  provider: "prv",
  issuer: "iss",
  call: "call",
  chat: "chat",
  session: "sess",
  request: "req",
  turn: "turn",
  worker: "wrk",
  budget: "bud",
  connection: "conn",
  webhook: "whk",
  upload: "upl",
  toolService: "svc",
  archive: "arc",
  socket: "sock",
  node: "node",
  nodeRun: "nrun",
  subscription: "sub",
  failedMessage: "fmsg",
  tavern: "tav",
  variable: "var",
  flow: "flow",
  flowHook: "fhk",
  agent: "agt",
  groupChat: "grp",
  message: "msg",
  knowledgeBase: "kb",
  document: "doc",
  schedule: "sched",
} as const;

export type IdKind = keyof typeof idPrefixes;

/** Each draw from the system costs microseconds. */
const block = new Uint8Array(4_096);
let drawn = block.length;

/** What the ids of one millisecond have in common, and the number of the last one. */
let lastTime = 0;
let head = "";
let last = 0;
const highest = 2 ** 20 - 1;

/** A new id of a kind. Ids made in one process are strictly increasing. */
export function newId(kind: IdKind): string {
  return `${idPrefixes[kind]}_${ulid()}`;
}

function ulid(): string {
  const now = Date.now();
  if (now > lastTime) startMillisecond(now);
  // Counted up, so that "after this id" is a well-defined page boundary.
  else if (last === highest) startMillisecond(lastTime + 1);
  else last += 1;
  return head + digit(last >> 15) + digit(last >> 10) + digit(last >> 5) + digit(last);
}

function startMillisecond(now: number): void {
  lastTime = now;
  head = "";
  for (let rest = now, at = 0; at < 10; at += 1) {
    head = digit(rest % 32) + head;
    rest = Math.floor(rest / 32);
  }
  for (let at = 0; at < 12; at += 1) head += digit(randomByte());
  // The upper half stays free to count in.
  last = ((randomByte() << 16) | (randomByte() << 8) | randomByte()) & (highest >> 1);
}

function digit(value: number): string {
  return alphabet.charAt(value & 31);
}

function randomByte(): number {
  if (drawn === block.length) {
    randomFillSync(block);
    drawn = 0;
  }
  drawn += 1;
  return block[drawn - 1] ?? 0;
}

/** True for a string that `newId(kind)` could have made. */
export function isId(kind: IdKind, value: string): boolean {
  const prefix = `${idPrefixes[kind]}_`;
  return value.startsWith(prefix) && /^[0-9a-hjkmnp-tv-z]{26}$/.test(value.slice(prefix.length));
}
