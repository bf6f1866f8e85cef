/**
 * A gateway process that can be stopped at any of its kill points: the real server, with short leases,
 * and a `reach` that sends the process itself a signal where it was told to. Started and told what to
 * do by test/kill/instance.ts, and gone as soon as whoever started it is.
 */
import { flushCompileCache } from "node:module";
import { readEnvironment } from "../../functions/env.ts";
import { startServer } from "../../functions/local.ts";
import { killableTiming, obey, type Order } from "./kill-orders.ts";

export type Notice = { readonly kind: "listening"; readonly url: string } | { readonly kind: "ordered" };

const tickEveryMs = 300;

let order: Order | undefined;

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
  reach: (point) => obey(order, point, () => (order = { kind: "report" })),
  timing: killableTiming,
  tickEveryMs,
});
// Nobody who is killed writes it at the end, and the next process starts in half the time.
flushCompileCache();
tell({ kind: "listening", url: server.url });
