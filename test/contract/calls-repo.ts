/**
 * What every call record promises, with two instances at one database (design "The call"). The suites
 * are in the files beside this one.
 */
import { describe } from "vitest";
import { describeAdmission } from "./calls-admission.ts";
import { describeCallArchives } from "./calls-archives.ts";
import { describeBudgets } from "./calls-budgets.ts";
import type { MakeInstances } from "./calls-fixture.ts";
import { describeCallLife } from "./calls-life.ts";
import { describeShortWay } from "./calls-short-way.ts";
import { describeCallUpkeep } from "./calls-upkeep.ts";

export function describeCallRepo(name: string, make: MakeInstances): void {
  describe(`call record: ${name}`, () => {
    describeAdmission(make);
    describeShortWay(make);
    describeCallLife(make);
    describeCallUpkeep(make);
    describeCallArchives(make);
    describeBudgets(make);
  });
}
