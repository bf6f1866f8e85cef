/** What an instance of the kill suite does at its kill points: nothing, write them down, or stop there. */
import { writeSync } from "node:fs";
import type { KillPoint } from "@toolyard/core/calls/kill-points";
import { defaultTiming, type Timing } from "@toolyard/core/deps";

export type Order =
  /** Stop when this point is reached the next time. */
  | { readonly kind: "stop"; readonly at: KillPoint; readonly with: "SIGKILL" | "SIGSTOP" }
  /** Write down every point from now on. */
  | { readonly kind: "report" };

/** Leases run out within the time of a test. */
export const killableTiming: Timing = { ...defaultTiming, leaseMs: 2_000, heartbeatMs: 400, cancelPollMs: 200 };

/** Written before the process goes on: the next thing may be its end. */
function say(line: string): void {
  writeSync(1, `${line}\n`);
}

/** @param carriedOut called before the process stops: whoever is thawed tells what else it does */
export function obey(order: Order | undefined, point: KillPoint, carriedOut: () => void): void {
  if (order?.kind === "report") say(`reached ${point}`);
  if (order?.kind !== "stop" || order.at !== point) return;
  carriedOut();
  say(`stopped at ${point}`);
  process.kill(process.pid, order.with);
  say(`reached ${point}`);
}
