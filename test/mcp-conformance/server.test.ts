/** The suite's scenarios for servers against `/mcp`; what comes out is what docs/mcp-conformance.md says. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { verifies } from "../support/verifies.ts";
import { startConformanceFixture, type ConformanceFixture } from "./server-fixture.ts";
import { serverRows } from "./server-rows.ts";
import { differencesFrom, listScenarios, readChecks, type Results } from "./suite.ts";

const newest = "2026-07-28";

let fixture: ConformanceFixture;
let scenarios: ReadonlyMap<string, readonly string[]>;
const results = new Map<string, Results>();

/** Those of extensions are run one by one: they are on no revision's list. */
async function runExtensions(names: readonly string[]): Promise<void> {
  for (const name of names) {
    const found = await readChecks("server", [
      "--url",
      fixture.url,
      "--scenario",
      name,
      "--spec-version",
      newest,
      "--force",
    ]);
    results.set(newest, new Map([...(results.get(newest) ?? []), ...found]));
  }
}

beforeAll(async () => {
  fixture = await startConformanceFixture();
  scenarios = await listScenarios("Server");
  for (const revision of new Set(serverRows.flatMap(({ revisions }) => revisions))) {
    results.set(
      revision,
      await readChecks("server", ["--url", fixture.url, "--suite", "all", "--spec-version", revision]),
    );
  }
  await runExtensions([...scenarios].flatMap(([name, revisions]) => (revisions.includes("extension") ? [name] : [])));
});
afterAll(() => fixture.close());

describe(`the conformance suite for servers ${verifies("MCP-3")}`, () => {
  test("has no scenario without a row, nor a row without a scenario", () => {
    const rows = serverRows.map(({ scenario, revisions }) => [scenario, revisions]);
    const known = [...scenarios].map(([name, revisions]) => [
      name,
      revisions.includes("extension") ? [newest] : revisions,
    ]);
    expect(new Map(rows as [string, string[]][])).toEqual(new Map(known as [string, string[]][]));
  });

  const runs = serverRows.flatMap((row) => row.revisions.map((revision) => ({ ...row, revision })));
  test.each(runs)("$scenario at $revision is as its row says", ({ revision, ...row }) => {
    expect(differencesFrom(row, results.get(revision)?.get(row.scenario))).toEqual([]);
  });
});
