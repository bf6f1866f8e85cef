/**
 * The work of one import. A document of a few kilobytes may refer to the same parts from everywhere, so
 * work is counted in what is looked at, not in what the document has.
 */
import { GatewayError } from "../errors/gateway-error.ts";
import { compilePattern } from "../tools/pattern.ts";
import { importLimits } from "./limits.ts";

/** What compiling a pattern counts as at the least; large ones count as what they are. */
const patternCost = 50;

/** So many take about as long as one schema. */
const membersPerStep = 16;

export class ImportWork {
  #left: number = importLimits.schemaNodesInAll;
  readonly #patterns = new Map<string, string | undefined>();

  /** @throws GatewayError `invalid_request` when the work of a whole import is used up */
  spend(steps: number): void {
    this.#left -= steps;
    if (this.#left >= 0) return;
    throw new GatewayError(
      "invalid_request",
      `The schemas of the document come to more than ${importLimits.schemaNodesInAll} parts when they are written out for each operation; import some of its operations with 'include'.`,
      { param: "include" },
    );
  }

  /**
   * Counts members that are gone through and not converted: one part may be as long as a whole document.
   * @throws GatewayError as `spend` does
   */
  look(members: number): void {
    this.spend(Math.floor(members / membersPerStep));
  }

  /** Why a pattern cannot be used; undefined for one that can. */
  patternProblem(source: string): string | undefined {
    if (this.#patterns.has(source)) return this.#patterns.get(source);
    this.spend(patternCost);
    const compiled = compilePattern(source);
    if ("work" in compiled) this.spend(Math.floor(compiled.work / patternCost));
    const problem = "reason" in compiled ? compiled.reason : undefined;
    this.#patterns.set(source, problem);
    return problem;
  }
}
