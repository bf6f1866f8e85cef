/**
 * Identifiers: a prefix that names the kind and 26 characters of Crockford base 32, of which the
 * first ten are the time, so that ids of one kind sort by creation (`call_01J…`).
 */
import { randomBytes } from "node:crypto";

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
} as const;

export type IdKind = keyof typeof idPrefixes;

let lastTime = 0;
let lastRandom = new Uint8Array(16);

/** A new id of a kind. Ids made in one process are strictly increasing. */
export function newId(kind: IdKind): string {
  return `${idPrefixes[kind]}_${ulid()}`;
}

function ulid(): string {
  const now = Date.now();
  if (now > lastTime) {
    lastTime = now;
    lastRandom = Uint8Array.from(randomBytes(16), (byte) => byte & 31);
  } else {
    // Same millisecond: count up, so that "after this id" is a well-defined page boundary.
    for (let at = 15; at >= 0; at -= 1) {
      const next = ((lastRandom[at] ?? 0) + 1) & 31;
      lastRandom[at] = next;
      if (next !== 0) break;
    }
  }
  let time = "";
  for (let rest = lastTime, at = 0; at < 10; at += 1) {
    time = alphabet.charAt(rest % 32) + time;
    rest = Math.floor(rest / 32);
  }
  let random = "";
  for (const part of lastRandom) random += alphabet.charAt(part);
  return time + random;
}

/** True for a string that `newId(kind)` could have made. */
export function isId(kind: IdKind, value: string): boolean {
  const prefix = `${idPrefixes[kind]}_`;
  return value.startsWith(prefix) && /^[0-9a-hjkmnp-tv-z]{26}$/.test(value.slice(prefix.length));
}
