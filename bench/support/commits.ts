/**
 * What one commit costs: by the gateway's own database layer, in a process of its own on the gateway's core. It is
 * asked in turns with what a benchmark does beside it, because a commit that comes now and then, to a processor that
 * has done something else in the meantime, costs several times what one of thousands in a row does.
 */
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { join } from "node:path";
import { cores, keepToCore } from "./processes.ts";
import { median } from "./statistics.ts";

const script = join(import.meta.dirname, "commit-process.ts");
const warmUp = 200;

export interface CommitProcess {
  /** Median milliseconds of a commit. @param between what is done before each */
  measure(seconds: number, between: () => Promise<unknown>): Promise<number>;
  end(): void;
}

/** @param directory for the database */
export async function startCommits(directory: string): Promise<CommitProcess> {
  const child = spawn(process.execPath, [script, directory], { stdio: ["pipe", "pipe", "inherit"] });
  keepToCore(child.pid ?? 0, cores.measured);
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const once = async (): Promise<number> => {
    child.stdin.write("\n");
    const { value, done } = await lines.next();
    if (done === true) throw new Error("the process that commits has ended");
    return Number(value);
  };
  for (let count = 0; count < warmUp; count += 1) await once();
  return {
    async measure(seconds, between) {
      const times: number[] = [];
      for (const until = performance.now() + seconds * 1_000; performance.now() < until;) {
        await between();
        times.push(await once());
      }
      return median(times);
    },
    end: () => void child.kill(),
  };
}
