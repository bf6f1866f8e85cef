/**
 * `npm run bench:vcp`: what the parts of the VCP runtime cost that work on text or start programs, each section by
 * itself; `npm run bench:vcp -- scanner` measures only that. Ends with 1 where it cannot measure, and with `--check`
 * where a floor is missed.
 */
import { parseArgs } from "node:util";
import { isReached, printTable, type Finding } from "./support/report.ts";
import { sections, type SectionName } from "./vcp/index.ts";

function isSection(name: string): name is SectionName {
  return Object.hasOwn(sections, name);
}

const { values, positionals } = parseArgs({ allowPositionals: true, options: { check: { type: "boolean" } } });
const unknown = positionals.find((name) => !isSection(name));
if (unknown !== undefined) {
  console.error(`There is no section '${unknown}'; there are ${Object.keys(sections).join(", ")}.`);
  process.exit(1);
}
const chosen = Object.entries(sections).filter(([name]) => positionals.length === 0 || positionals.includes(name));
const findings: Finding[] = [];
for (const [name, measure] of chosen) {
  console.log(`measuring ${name}`);
  findings.push(...(await Promise.resolve(measure())));
}
printTable(findings);
if (values.check === true && !findings.every(isReached)) process.exitCode = 1;
