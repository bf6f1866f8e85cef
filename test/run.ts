/**
 * `npm test`: every vitest project, with the time of each, and a last line that says what
 * passed. `npm test -- unit e2e` runs only those. TOOLYARD_TESTS=long makes them thorough.
 */
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { runStage, type StageResult } from "./stages.ts";
import { isLong } from "./support/long.ts";

const projects = ["unit", "contract", "e2e", "aws", "kill"] as const;
/** Those of one line run beside each other: they wait half of their time, but for their long forms. */
const lanes = isLong ? projects.map((project) => [project]) : [["unit"], ["contract"], ["e2e"], ["aws", "kill"]];

interface Counts {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
}

/** The part of vitest's JSON report that is read here. */
interface Report {
  readonly success: boolean;
  readonly numPassedTests: number;
  readonly numFailedTests: number;
  readonly numPendingTests: number;
  readonly numTodoTests: number;
  readonly testResults: readonly { readonly status: string; readonly assertionResults: readonly unknown[] }[];
}

async function runProject(project: string, reports: string, output: "show" | "tell"): Promise<Counts> {
  const file = join(reports, `${project}.json`);
  const parameters = ["run", "--project", project, "--passWithNoTests"];
  const reporters = ["--reporter=default", "--reporter=json", `--outputFile.json=${file}`];
  console.log(`\n— ${project}`);
  const result = await runStage({ name: project, command: ["vitest", ...parameters, ...reporters] }, output);
  return countsOf(result, await readFile(file, "utf8").catch(() => undefined));
}

function countsOf(result: StageResult, json: string | undefined): Counts {
  if (json === undefined) return { passed: 0, failed: result.ok ? 0 : 1, skipped: 0 };
  const report = JSON.parse(json) as Report;
  // A file that could not be loaded has failed without having a test to show for it.
  const broken = report.testResults.filter((file) => file.status === "failed" && file.assertionResults.length === 0);
  const failed = report.numFailedTests + broken.length;
  return {
    passed: report.numPassedTests,
    // Errors outside any test end vitest with 1; they must not look like success.
    failed: failed === 0 && !result.ok ? 1 : failed,
    skipped: report.numPendingTests + report.numTodoTests,
  };
}

const wanted = process.argv.slice(2);
const unknown = wanted.filter((name) => !projects.some((project) => project === name));
if (unknown.length > 0) {
  console.error(`There is no test project ${unknown.join(", ")}; there are ${projects.join(", ")}.`);
  process.exit(2);
}

const reports = await mkdtemp(join(tmpdir(), "toolyard-reports-"));
const total = { passed: 0, failed: 0, skipped: 0 };
try {
  for (const lane of lanes) {
    const chosen = lane.filter((project) => wanted.length === 0 || wanted.includes(project));
    const runs = chosen.map((project, at) => runProject(project, reports, at === 0 ? "show" : "tell"));
    for (const counts of await Promise.all(runs)) {
      total.passed += counts.passed;
      total.failed += counts.failed;
      total.skipped += counts.skipped;
    }
  }
} finally {
  await rm(reports, { recursive: true, force: true });
}
console.log(
  `\n${total.passed} passed, ${total.failed} failed${total.skipped === 0 ? "" : `, ${total.skipped} skipped`}`,
);
process.exitCode = total.failed === 0 ? 0 : 1;
