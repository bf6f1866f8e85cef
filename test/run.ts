/**
 * `npm test`: every vitest project, with the time of each, and a last line that says what
 * passed. `npm test -- unit e2e` runs only those. TOOLYARD_TESTS=long makes them thorough.
 *
 * Where a few of many tests fail, their files are run once more, alone: what passes only then hangs on how busy the
 * machine is. It fails nobody's change, and is named in the last lines for whoever mends it.
 */
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { runStage, type StageResult } from "./stages.ts";
import { isLong } from "./support/long.ts";

const projects = ["unit", "contract", "e2e", "aws", "kill"] as const;
/** Those of one line run beside each other: they wait half of their time, but for their long forms. */
const lanes = isLong ? projects.map((project) => [project]) : [["unit"], ["contract"], ["e2e"], ["aws", "kill"]];

/** More failures than these are no matter of chance. */
const mostRunAgain = 3;

interface Failure {
  readonly project: string;
  readonly file: string;
  readonly name: string;
}

interface Outcome {
  readonly passed: number;
  readonly skipped: number;
  readonly failures: readonly Failure[];
  /** Errors outside any test, a runner that died: things that are not run again. */
  readonly broken: number;
}

/** The part of vitest's JSON report that is read here. */
interface Report {
  readonly numPassedTests: number;
  readonly numPendingTests: number;
  readonly numTodoTests: number;
  readonly testResults: readonly {
    readonly name: string;
    readonly status: string;
    readonly assertionResults: readonly { readonly status: string; readonly fullName: string }[];
  }[];
}

async function runProject(project: string, output: "show" | "tell", files: readonly string[] = []): Promise<Outcome> {
  const file = join(reports, `${project}.json`);
  const parameters = ["run", "--project", project, "--passWithNoTests", ...files];
  const reporters = ["--reporter=default", "--reporter=json", `--outputFile.json=${file}`];
  console.log(`\n— ${[project, ...files].join(" ")}`);
  const result = await runStage({ name: project, command: ["vitest", ...parameters, ...reporters] }, output);
  const json = await readFile(file, "utf8").catch(() => undefined);
  await rm(file, { force: true });
  return outcomeOf(project, result, json);
}

function outcomeOf(project: string, result: StageResult, json: string | undefined): Outcome {
  if (json === undefined) return { passed: 0, skipped: 0, failures: [], broken: result.ok ? 0 : 1 };
  const report = JSON.parse(json) as Report;
  const failures = report.testResults.flatMap(({ name, status, assertionResults }) => {
    const file = relative(process.cwd(), name);
    const failed = assertionResults.filter((test) => test.status === "failed");
    // What could not be loaded, or set up, has failed without having a test to show for it.
    if (failed.length === 0 && status === "failed") return [{ project, file, name: "as a whole" }];
    return failed.map(({ fullName }) => ({ project, file, name: fullName }));
  });
  return {
    passed: report.numPassedTests,
    skipped: report.numPendingTests + report.numTodoTests,
    failures,
    // Errors outside any test end vitest with 1; they must not look like success.
    broken: failures.length === 0 && !result.ok ? 1 : 0,
  };
}

/** Those of `failures` that pass where nothing else runs. */
async function passingAlone(failures: readonly Failure[]): Promise<readonly Failure[]> {
  const passing: Failure[] = [];
  for (const [key, ofFile] of Map.groupBy(failures, ({ project, file }) => `${project} ${file}`)) {
    const [project = "", file = ""] = key.split(" ");
    const again = await runProject(project, "show", [file]);
    if (again.passed > 0 && again.failures.length + again.broken === 0) passing.push(...ofFile);
  }
  return passing;
}

const wanted = process.argv.slice(2);
const unknown = wanted.filter((name) => !projects.some((project) => project === name));
if (unknown.length > 0) {
  console.error(`There is no test project ${unknown.join(", ")}; there are ${projects.join(", ")}.`);
  process.exit(2);
}

const reports = await mkdtemp(join(tmpdir(), "toolyard-reports-"));
const outcomes: Outcome[] = [];
let passingLater: readonly Failure[] = [];
try {
  for (const lane of lanes) {
    const chosen = lane.filter((project) => wanted.length === 0 || wanted.includes(project));
    outcomes.push(...(await Promise.all(chosen.map((project, at) => runProject(project, at === 0 ? "show" : "tell")))));
  }
  const failures = outcomes.flatMap((outcome) => outcome.failures);
  if (failures.length <= mostRunAgain) passingLater = await passingAlone(failures);
} finally {
  await rm(reports, { recursive: true, force: true });
}

const sum = (count: (outcome: Outcome) => number): number => outcomes.reduce((total, each) => total + count(each), 0);
const failed = sum(({ failures, broken }) => failures.length + broken) - passingLater.length;
const skipped = sum((outcome) => outcome.skipped);
for (const { project, file, name } of passingLater) console.log(`\npassed only alone: ${project} ${file} > ${name}`);
console.log(
  `\n${sum(({ passed }) => passed) + passingLater.length} passed, ${failed} failed` +
    (skipped === 0 ? "" : `, ${skipped} skipped`) +
    (passingLater.length === 0 ? "" : `; ${passingLater.length} passed only alone, in a second run`),
);
process.exitCode = failed === 0 ? 0 : 1;
