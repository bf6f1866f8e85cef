/** Chance that can be repeated: the same seed gives the same numbers, so a chat can be looked into afterwards. */
import { createHash } from "node:crypto";

/** Numbers from 0 up to, not including, 1. */
export function seededRandom(seed: string): () => number {
  let state = createHash("sha256").update(seed).digest().readUInt32LE(0);
  return () => {
    // A 32-bit counter through a mixing function: enough for drawing lots, not for secrets.
    state = (state + 0x9e3779b9) | 0;
    let mixed = state ^ (state >>> 16);
    mixed = Math.imul(mixed, 0x21f0aaad);
    mixed ^= mixed >>> 15;
    mixed = Math.imul(mixed, 0x735a2d97);
    mixed ^= mixed >>> 15;
    return (mixed >>> 0) / 2 ** 32;
  };
}
