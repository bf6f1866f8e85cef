/**
 * `npm test`: every vitest project, with the time of each, and a last line that says what
 * passed. `npm test -- unit e2e` runs only those. TOOLYARD_TESTS=long makes them thorough.
 *
 * Where a few of many tests fail, their files are run once more, alone: what passes only then hangs on how busy the
 * machine is. It fails nobody's change, and is named in the last lines for whoever mends it. Errors outside any test,
 * and cases that break a property, are not run again.
 */
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { outcomeVariable, type FailedTest, type RunOutcome } from "./outcome.ts";
import { runStage } from "./stages.ts";
import { isLong } from "./support/long.ts";

const projects = ["unit", "contract", "e2e", "aws", "kill"] as const;
/** Those of one line run beside each other: they wait half of their time, but for their long forms. */
const lanes = isLong ? projects.map((project) => [project]) : [["unit"], ["contract"], ["e2e"], ["aws", "kill"]];

/** Where Node keeps what it has compiled and stripped of types, for all workers and runs: a tenth of the unit tests' time. */
const compiled = join(import.meta.dirname, "../node_modules/.cache/compiled");

/** More failures than these are no matter of chance. */
const mostRunAgain = 3;

interface Failure extends FailedTest {
  readonly project: string;
}

interface Outcome extends RunOutcome {
  readonly failures: readonly Failure[];
  /** Its runner died, or failed for no test. */
  readonly isBroken: boolean;
}

async function runProject(project: string, output: "show" | "tell", files: readonly string[] = []): Promise<Outcome> {
  const file = join(reports, `${project}.json`);
  const parameters = ["run", "--project", project, "--passWithNoTests", ...files];
  const reporters = ["--reporter=default", "--reporter=./test/outcome.ts"];
  console.log(`\n— ${[project, ...files].join(" ")}`);
  const command = ["vitest", ...parameters, ...reporters] as const;
  const environment = { [outcomeVariable]: file, NODE_COMPILE_CACHE: compiled };
  const result = await runStage({ name: project, command, environment }, output);
  const written = await readFile(file, "utf8").catch(() => undefined);
  await rm(file, { force: true });
  if (written === undefined) return { passed: 0, skipped: 0, failures: [], outside: 0, isBroken: true };
  const run = JSON.parse(written) as RunOutcome;
  const failures = run.failures.map((failure) => ({ ...failure, project }));
  return { ...run, failures, isBroken: !result.ok && failures.length + run.outside === 0 };
}

const withoutTest = ({ outside, isBroken }: Outcome): number => outside + (isBroken ? 1 : 0);

/** Those of `failures` that pass where nothing else runs. */
async function passingAlone(failures: readonly Failure[]): Promise<readonly Failure[]> {
  const passing: Failure[] = [];
  for (const [key, ofFile] of Map.groupBy(failures, ({ project, file }) => `${project} ${file}`)) {
    const [project = "", file = ""] = key.split(" ");
    const again = await runProject(project, "show", [file]);
    if (again.passed > 0 && again.failures.length + withoutTest(again) === 0) passing.push(...ofFile);
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
  if (failures.length <= mostRunAgain) passingLater = await passingAlone(failures.filter((each) => !each.isProperty));
} finally {
  await rm(reports, { recursive: true, force: true });
}

const sum = (count: (outcome: Outcome) => number): number => outcomes.reduce((total, each) => total + count(each), 0);
const failed = sum((outcome) => outcome.failures.length + withoutTest(outcome)) - passingLater.length;
const skipped = sum((outcome) => outcome.skipped);
for (const { project, file, name } of passingLater) console.log(`\npassed only alone: ${project} ${file} > ${name}`);
console.log(
  `\n${sum(({ passed }) => passed) + passingLater.length} passed, ${failed} failed` +
    (skipped === 0 ? "" : `, ${skipped} skipped`) +
    (passingLater.length === 0 ? "" : `; ${passingLater.length} passed only alone, in a second run`),
);
process.exitCode = failed === 0 ? 0 : 1;
