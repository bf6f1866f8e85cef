/** Ids of traces and spans, and what makes one sealing differ from the next: random, no secrets. Drawn from a block, since each draw from the system costs microseconds. */
import { randomFillSync } from "node:crypto";

const block = Buffer.alloc(4_096);
let used = block.length;

export function randomHex(bytes: number): string {
  if (used + bytes > block.length) {
    randomFillSync(block);
    used = 0;
  }
  used += bytes;
  return block.toString("hex", used - bytes, used);
}
