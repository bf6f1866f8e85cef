/**
 * `npm run check`: format, lint, types, knip, then the tests; CI runs the same. The cheap stages run
 * two at a time, and the tests only once they hold. `npm run check -- --static` leaves the tests out.
 */
import { runStage, type Stage, type StageResult } from "./stages.ts";

const cheap: readonly Stage[] = [
  { name: "types", command: ["tsc", "-p", "tsconfig.json"] },
  { name: "lint", command: ["oxlint", "--type-aware", "--deny-warnings"] },
  { name: "knip", command: ["knip", "--include-entry-exports"] },
  { name: "format", command: ["oxfmt", "--check", "."] },
];
const tests: Stage = { name: "tests", command: ["node", "test/run.ts"] };

async function runTwoAtATime(stages: readonly Stage[]): Promise<readonly StageResult[]> {
  const results: StageResult[] = [];
  const waiting = [...stages];
  const lane = async (): Promise<void> => {
    for (let stage = waiting.shift(); stage !== undefined; stage = waiting.shift()) {
      results.push(await runStage(stage, "keep"));
    }
  };
  await Promise.all([lane(), lane()]);
  return results;
}

const results = [...(await runTwoAtATime(cheap))];
if (results.every((result) => result.ok) && !process.argv.includes("--static")) {
  results.push(await runStage(tests, "show"));
}
const failed = results.filter((result) => !result.ok).map((result) => result.name);
console.log(failed.length === 0 ? "\ncheck: everything holds" : `\ncheck: ${failed.join(", ")} failed`);
process.exitCode = failed.length === 0 ? 0 : 1;
