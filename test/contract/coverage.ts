/**
 * Which tests say that they prove which requirement: reads the `verifies("…")` calls in the sources
 * of all tests and contract suites, and renders docs/requirements.md from them.
 */
import { glob, readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { requirements } from "./requirements.ts";

export const root = resolve(import.meta.dirname, "../..");
export const tablePath = "docs/requirements.md";

/** Test files beside the sources, and everything in test/ that describes behaviour. */
const testSources = ["packages/*/src/**/*.test.ts", "functions/**/*.test.ts", "test/{contract,e2e,kill,aws}/**/*.ts"];
/** They speak about `verifies`, they do not cite. */
const notCiting = new Set(
  ["coverage", "coverage-table", "requirements", "requirements.test"].map((name) => `test/contract/${name}.ts`),
);

/** Files by cited id, both in order; ids that do not exist are kept, for the test to refuse. */
export type Citations = ReadonlyMap<string, readonly string[]>;

export async function readCitations(): Promise<Citations> {
  const files: string[] = [];
  for await (const file of glob(testSources, { cwd: root, exclude: (name) => name === "node_modules" })) {
    if (!notCiting.has(file)) files.push(file);
  }
  const citations = new Map<string, string[]>();
  for (const file of files.sort()) {
    for (const id of citedIds(await readFile(join(root, file), "utf8"))) {
      citations.set(id, [...(citations.get(id) ?? []), file]);
    }
  }
  return citations;
}

/** The ids that a source text names in calls of `verifies`, each once. */
export function citedIds(source: string): ReadonlySet<string> {
  const ids = new Set<string>();
  for (const [, parameters = ""] of source.matchAll(/\bverifies\(([^)]*)\)/g)) {
    for (const [, id = ""] of parameters.matchAll(/["'`]([^"'`]*)["'`]/g)) ids.add(id);
  }
  return ids;
}

export function unknownIds(citations: Citations): readonly string[] {
  return [...citations.keys()].filter((id) => !Object.hasOwn(requirements, id));
}

export function uncitedIds(citations: Citations): readonly string[] {
  return Object.keys(requirements).filter((id) => !citations.has(id));
}

/** The whole text of docs/requirements.md. */
export function renderTable(citations: Citations): string {
  const entries = Object.entries(requirements);
  const uncited = uncitedIds(citations);
  const proven = entries.filter(([id]) => citations.has(id));
  const lines = [
    "# Requirements and the tests that prove them",
    "",
    "Made by `npm run coverage:requirements` from test/contract/requirements.ts and the `verifies(…)` calls of the tests;",
    "test/contract/requirements.test.ts fails where this page is not current.",
    "",
    `${proven.length} of ${entries.length} requirements are cited by a test.`,
    "",
    "| id | requirement | tests |",
    "| --- | --- | --- |",
    ...proven.map(([id, text]) => `| ${id} | ${cell(text)} | ${(citations.get(id) ?? []).map(link).join("<br>")} |`),
    "",
    "## Not cited by a test",
    "",
    uncited.length === 0 ? "None." : "| id | requirement |\n| --- | --- |",
    ...entries.filter(([id]) => !citations.has(id)).map(([id, text]) => `| ${id} | ${cell(text)} |`),
    "",
  ];
  return lines.join("\n");
}

function cell(text: string): string {
  return text.replaceAll("|", "\\|").replaceAll("\n", " ");
}

function link(file: string): string {
  return `[${file}](../${file})`;
}
