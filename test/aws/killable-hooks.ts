/**
 * Stands in the built functions of the kill suite where functions/function-hooks.ts stands in ours: the
 * functions do what they are told by a file, which all environments of one deployment read.
 */
import { readFileSync, renameSync } from "node:fs";
import { flushCompileCache } from "node:module";
import type { Home } from "../../functions/compose.ts";
import { killableTiming, obey, type Order } from "../support/kill-orders.ts";

/** Where the order stands, if there is one. */
const file = process.env["KILL_ORDER_FILE"] ?? "";
let taken: Order | undefined;

function readOrder(): Order | undefined {
  try {
    return JSON.parse(readFileSync(file, "utf8")) as Order;
  } catch {
    return undefined;
  }
}

/** Only one environment carries out an order to stop. */
function take(): void {
  taken = { kind: "report" };
  renameSync(file, `${file}.taken`);
}

/** @public Stands in the place of a module of the product. */
export const functionHooks: Pick<Home, "reach" | "timing"> = {
  timing: killableTiming,
  reach(point) {
    // Nobody who is killed writes it at the end, and the next environment starts in half the time.
    flushCompileCache();
    obey(taken ?? readOrder(), point, take);
  },
};
