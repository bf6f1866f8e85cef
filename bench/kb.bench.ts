/**
 * `npm run bench:kb`: how well knowledge bases are searched, and how fast, each section by itself;
 * `npm run bench:kb -- recall` measures only that. Ends with 1 where it cannot measure, and with `--check` where a
 * floor is missed.
 */
import { parseArgs } from "node:util";
import { sections, type SectionName } from "./kb/index.ts";
import { isReached, printTable, type Finding } from "./support/report.ts";

function isSection(name: string): name is SectionName {
  return Object.hasOwn(sections, name);
}

const { values, positionals } = parseArgs({ allowPositionals: true, options: { check: { type: "boolean" } } });
const unknown = positionals.find((name) => !isSection(name));
if (unknown !== undefined) {
  console.error(`There is no section '${unknown}'; there are ${Object.keys(sections).join(", ")}.`);
  process.exit(1);
}
const findings: Finding[] = [];
for (const [name, measure] of Object.entries(sections)) {
  if (positionals.length > 0 && !positionals.includes(name)) continue;
  console.log(`measuring ${name}`);
  findings.push(...(await measure()));
}
printTable(findings);
if (values.check === true && !findings.every(isReached)) process.exitCode = 1;
