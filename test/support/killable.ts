/**
 * A gateway process that can be stopped at any of its kill points: the real server, with short leases,
 * and a `reach` that sends the process itself a signal where it was told to. Started and told what to
 * do by test/kill/instance.ts, and gone as soon as whoever started it is.
 */
import { writeSync } from "node:fs";
import { flushCompileCache } from "node:module";
import type { KillPoint } from "@toolyard/core/calls/kill-points";
import { defaultTiming } from "@toolyard/core/deps";
import { readEnvironment } from "../../functions/env.ts";
import { startServer } from "../../functions/local.ts";

export type Order =
  /** Stop when this point is reached the next time. */
  | { readonly kind: "stop"; readonly at: KillPoint; readonly with: "SIGKILL" | "SIGSTOP" }
  /** Write down every point from now on. */
  | { readonly kind: "report" };

export type Notice = { readonly kind: "listening"; readonly url: string } | { readonly kind: "ordered" };

const timing = { ...defaultTiming, leaseMs: 2_000, heartbeatMs: 400, cancelPollMs: 200 };
const tickEveryMs = 300;

let order: Order | undefined;

/** Written before the process goes on: the next thing may be its end. */
function say(line: string): void {
  writeSync(1, `${line}\n`);
}

function reach(point: KillPoint): void {
  if (order?.kind === "report") say(`reached ${point}`);
  if (order?.kind !== "stop" || order.at !== point) return;
  const signal = order.with;
  // Who is thawed tells what else it does.
  order = { kind: "report" };
  say(`stopped at ${point}`);
  process.kill(process.pid, signal);
  say(`reached ${point}`);
}

function tell(notice: Notice): void {
  process.send?.(notice);
}

process.on("disconnect", () => process.exit(0));
process.on("message", (message: Order) => {
  order = message;
  tell({ kind: "ordered" });
});
const server = await startServer(readEnvironment(), {
  join: process.argv.includes("--join"),
  reach,
  timing,
  tickEveryMs,
});
// Nobody who is killed writes it at the end, and the next process starts in half the time.
flushCompileCache();
tell({ kind: "listening", url: server.url });
