/**
 * The program that runs modules of VCP plugins (VCP specification s. 4.3, 4.4; VCP-6, VCP-7), as a process of its
 * own: `once` reads one question from stdin, answers it and ends; `held` loads a module and answers lines for as long
 * as it lives. It is bundled into one file (functions/build-module-host.ts) that goes wherever plugins run.
 */
import { readFileSync } from "node:fs";
import { isMainThread } from "node:worker_threads";
import { messageOf } from "./faults.ts";
import { runHeld } from "./held.ts";
import { runOnce } from "./once.ts";
import { parseText } from "./plain.ts";
import { runInThread } from "./thread.ts";
import type { OnceQuestion } from "@toolyard/core/vcp/modules/wire";

async function main(): Promise<void> {
  if (!isMainThread) return runInThread();
  if (process.argv[2] === "held") return runHeld();
  // Written by the gateway alone.
  const question = parseText(readFileSync(0, "utf8")) as unknown as OnceQuestion;
  await runOnce(question);
  process.exit(0);
}

main().catch((thrown: unknown) => {
  process.stderr.write(`${messageOf(thrown)}\n`);
  process.exit(1);
});
