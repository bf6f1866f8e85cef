/**
 * `npm run bench:vcp`: what the parts of the VCP runtime cost, each a section of its own under bench/vcp. Ends with 1
 * with `--check` where a floor is missed. `npm run bench:vcp -- placeholders` measures only these.
 */
import { cpus } from "node:os";
import { parseArgs } from "node:util";
import { isReached, printTable, type Finding } from "./support/report.ts";
import { measurePlaceholders } from "./vcp/placeholders.ts";

const sections: Readonly<Record<string, () => Promise<readonly Finding[]>>> = { placeholders: measurePlaceholders };

const { values, positionals } = parseArgs({
  options: { check: { type: "boolean", default: false } },
  allowPositionals: true,
});
const unknown = positionals.filter((name) => !Object.hasOwn(sections, name));
if (unknown.length > 0) {
  console.error(`There is no ${unknown.join(", ")}; there are ${Object.keys(sections).join(", ")}.`);
  process.exit(2);
}
console.log(`${cpus().length} × ${cpus()[0]?.model}, Node ${process.version}`);
const findings: Finding[] = [];
for (const [name, measure] of Object.entries(sections)) {
  if (positionals.length === 0 || positionals.includes(name)) findings.push(...(await measure()));
}
console.log();
printTable(findings);
process.exit(!values.check || findings.every(isReached) ? 0 : 1);
