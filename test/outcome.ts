/** A reporter of vitest: tells test/run.ts what came out of a run, in the file that `outcomeVariable` names. */
import { writeFileSync } from "node:fs";
import type { Reporter, TestModule } from "vitest/node";

export const outcomeVariable = "TOOLYARD_TEST_OUTCOME";

export interface RunOutcome {
  readonly passed: number;
  readonly skipped: number;
  readonly failures: readonly FailedTest[];
  /** Errors that belong to no test. */
  readonly outside: number;
}

export interface FailedTest {
  /** From the root of the repository. */
  readonly file: string;
  readonly name: string;
  /** A case was found that breaks a property; the next run tries others, and says nothing of it. */
  readonly isProperty: boolean;
}

// oxlint-disable-next-line import/no-default-export -- vitest asks for it
export default class OutcomeReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], outside: readonly unknown[]): void {
    const count = (state: "passed" | "skipped"): number =>
      modules.reduce((sum, { children }) => sum + [...children.allTests(state)].length, 0);
    const outcome: RunOutcome = {
      passed: count("passed"),
      skipped: count("skipped"),
      failures: modules.flatMap(failuresOf),
      outside: outside.length,
    };
    const file = process.env[outcomeVariable];
    if (file !== undefined) writeFileSync(file, JSON.stringify(outcome));
  }
}

function failuresOf(module: TestModule): readonly FailedTest[] {
  const file = module.relativeModuleId;
  const failed = [...module.children.allTests("failed")].map((test) => ({
    file,
    name: test.fullName,
    isProperty: test.result().errors?.some(({ message }) => message.startsWith("Property failed")) === true,
  }));
  // What could not be loaded, or set up, has failed without having a test to show for it.
  return failed.length === 0 && module.state() === "failed"
    ? [{ file, name: "as a whole", isProperty: false }]
    : failed;
}
