/** The suite's scenarios for clients against `mcp://`; what comes out is what docs/mcp-conformance.md says. */
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { verifies } from "../support/verifies.ts";
import { clientRows } from "./client-rows.ts";
import { differencesFrom, listScenarios, runProgram, type Check } from "./suite.ts";

const newest = "2026-07-28";

let gateway: Gateway;
beforeAll(async () => {
  gateway = await startGateway();
});
afterAll(() => gateway.close());

/** One scenario at one revision, by the command that drives the gateway. */
async function run(
  scenario: string,
  revision: string,
): Promise<{ readonly checks: readonly Check[]; readonly output: string }> {
  const directory = await mkdtemp(join(tmpdir(), "toolyard-conformance-"));
  const command = [process.execPath, resolve(import.meta.dirname, "client.ts"), gateway.url, gateway.adminKey];
  const isExtension = (await listScenarios("Client")).get(scenario)?.includes("extension") === true;
  try {
    const wanted = ["--scenario", scenario, "--spec-version", revision, "--output-dir", directory];
    const output = await runProgram([
      "client",
      "--command",
      command.join(" "),
      ...wanted,
      ...(isExtension ? ["--force"] : []),
    ]);
    // A slash in a scenario's name makes a directory in a directory.
    const file = (await readdir(directory, { recursive: true })).find((name) => basename(name) === "checks.json");
    const checks = file === undefined ? "[]" : await readFile(join(directory, file), "utf8");
    return { checks: JSON.parse(checks) as Check[], output };
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

describe(`the conformance suite for clients ${verifies("MCP-1", "MCP-2", "MCP-3", "MCP-4", "MCP-5")}`, () => {
  test("has no scenario without a row, nor a row without a scenario", async () => {
    const rows = clientRows.map(({ scenario, revisions }): [string, readonly string[]] => [scenario, revisions]);
    const known = [...(await listScenarios("Client"))].map(([name, revisions]): [string, readonly string[]] => [
      name,
      revisions.includes("extension") ? [newest] : revisions,
    ]);
    expect(new Map(rows)).toEqual(new Map(known));
  });

  const applicable = clientRows.filter(({ notApplicable }) => notApplicable === undefined);
  const runs = applicable.flatMap((row) => row.revisions.map((revision) => ({ ...row, revision })));
  test.each(runs)("$scenario at $revision is as its row says", async ({ revision, ...row }) => {
    const { checks, output } = await run(row.scenario, revision);
    expect(differencesFrom(row, checks), output).toEqual([]);
    expect(
      checks.some(({ status }) => status === "SUCCESS"),
      output,
    ).toBe(true);
    expect(
      checks.filter(({ status }) => status === "WARNING"),
      output,
    ).toEqual([]);
  });
});
