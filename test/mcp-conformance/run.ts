/**
 * `npm run test:mcp-conformance [-- client] [-- scenario …]`: the official conformance suite of the Model Context
 * Protocol. A whole run writes its results into docs/mcp-conformance.md; fails where a scenario that applies does.
 */
import { runClientScenarios } from "./client-scenarios.ts";
import { summaryOf, tableOf, writeSection, type ScenarioResult } from "./report.ts";
import { suiteVersion, type Side } from "./suite.ts";

const sides: Partial<Record<Side, (only: readonly string[]) => Promise<readonly ScenarioResult[]>>> = {
  client: runClientScenarios,
};

const words = process.argv.slice(2);
const wanted = Object.entries(sides).filter(([side]) => !words.some((word) => word in sides) || words.includes(side));
const only = words.filter((word) => !(word in sides));

let hasFailed = false;
for (const [side, runSide] of wanted) {
  const results = await runSide(only);
  console.log(`\n${tableOf(results)}\n\n${side}: ${summaryOf(results)}`);
  hasFailed ||= results.some(({ outcome }) => outcome === "failed");
  if (only.length === 0) await writeSection(side === "client" ? "client" : "server", await suiteVersion(), results);
}
process.exitCode = hasFailed ? 1 : 0;
