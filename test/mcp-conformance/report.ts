/** docs/mcp-conformance.md: a section for each side, written anew from the results of a run. */
import { readFile, writeFile } from "node:fs/promises";
import type { Side } from "./suite.ts";

export interface ScenarioResult {
  readonly scenario: string;
  readonly revision: string;
  readonly outcome: "passed" | "failed" | "does not apply";
  /** Checks of the scenario that were met, of those that were made. */
  readonly passed: number;
  readonly checks: number;
  /** What failed, or why it does not apply. */
  readonly notes: readonly string[];
}

const page = new URL("../../docs/mcp-conformance.md", import.meta.url);

export function tableOf(results: readonly ScenarioResult[]): string {
  const rows = results.map(({ scenario, revision, outcome, passed, checks, notes }) => {
    const counted = outcome === "does not apply" ? outcome : `${outcome} ${passed}/${checks}`;
    return `| \`${scenario}\` | ${revision} | ${counted} | ${notes.map(inCell).join("<br>")} |`;
  });
  return ["| scenario | revision | result | |", "| --- | --- | --- | --- |", ...rows].join("\n");
}

function inCell(text: string): string {
  return text.replaceAll(/\s+/g, " ").replaceAll("|", "\\|").slice(0, 400);
}

export function summaryOf(results: readonly ScenarioResult[]): string {
  const count = (outcome: ScenarioResult["outcome"]): number =>
    results.filter((each) => each.outcome === outcome).length;
  return `${count("passed")} passed, ${count("failed")} failed, ${count("does not apply")} do not apply`;
}

/** Replaces what stands between the markers of the side. */
export async function writeSection(side: Side, version: string, results: readonly ScenarioResult[]): Promise<void> {
  const text = await readFile(page, "utf8");
  const section = `<!-- ${side} -->\n\n${summaryOf(results)} (suite ${version}).\n\n${tableOf(results)}\n\n<!-- end of ${side} -->`;
  const between = new RegExp(`<!-- ${side} -->[\\s\\S]*<!-- end of ${side} -->`);
  if (!between.test(text)) throw new Error(`docs/mcp-conformance.md has no place for '${side}'.`);
  await writeFile(
    page,
    text.replace(between, () => section),
  );
}
