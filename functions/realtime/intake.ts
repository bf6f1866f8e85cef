/**
 * How much a connection may say: so much at once, and then so much a second. One that says more is read more slowly,
 * which its own host feels as a network that is slow, so nothing is lost and nobody has to be told.
 */
import { hasScope, type Caller } from "@toolyard/core/callers/caller";
import { longestMessage } from "@toolyard/core/realtime/frames";
import type { WebSocket } from "ws";

export interface Allowance {
  readonly perSecond: number;
  readonly atOnce: number;
}

/** Each message may be a write. People and pages say a few a minute, and subscribe to fifty things at once. */
const allowanceOfClients: Allowance = { perSecond: 20, atOnce: 128 };
/** Some for each call, and whole files: what a node says is what a tenant's calls need, several hundred a second. */
const allowanceOfNodes: Allowance = { perSecond: 1_000, atOnce: 2_000 };

export function allowanceOf(caller: Caller): Allowance {
  return hasScope(caller, "node") ? allowanceOfNodes : allowanceOfClients;
}

/** What is left of an allowance; it may be overdrawn, and is made up for by waiting. */
export class Intake {
  readonly #allowance: Allowance;
  #left: number;
  #at: number;

  constructor(allowance: Allowance, now: number) {
    this.#allowance = allowance;
    this.#left = allowance.atOnce;
    this.#at = now;
  }

  /** A message longer than one may be counts for as many as it fills. @returns milliseconds until more may be said */
  take(bytes: number, now: number): number {
    const { perSecond, atOnce } = this.#allowance;
    const gained = (Math.max(0, now - this.#at) / 1_000) * perSecond;
    this.#left = Math.min(atOnce, this.#left + gained) - Math.max(1, Math.ceil(bytes / longestMessage));
    this.#at = now;
    return this.#left >= 0 ? 0 : Math.ceil((-this.#left / perSecond) * 1_000);
  }
}

type Data = WebSocket.RawData;

/** Hears what a client says, as fast as it may say it; nothing more of one that is being sent away. */
export function hearSocket(
  socket: WebSocket,
  { allowance, now }: { readonly allowance: Allowance; readonly now: () => number },
  hear: (data: Data, isBinary: boolean) => void,
): void {
  const intake = new Intake(allowance, now());
  let resuming: NodeJS.Timeout | undefined;
  socket.once("close", () => clearTimeout(resuming));
  socket.on("message", (data, isBinary) => {
    if (socket.readyState !== socket.OPEN) return;
    const waitMs = intake.take(bytesOf(data), now());
    if (waitMs > 0) {
      // More may come of what was read with it.
      clearTimeout(resuming);
      socket.pause();
      resuming = setTimeout(() => socket.resume(), waitMs).unref();
    }
    hear(data, isBinary);
  });
}

function bytesOf(data: Data): number {
  return Array.isArray(data) ? data.reduce((sum, part) => sum + part.length, 0) : data.byteLength;
}
