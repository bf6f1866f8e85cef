/** The suite's scenarios for clients against `mcp://`; what comes out is what docs/mcp-conformance.md says. */
import { resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { verifies } from "../support/verifies.ts";
import { clientRows } from "./client-rows.ts";
import { differencesFrom, listScenarios, readChecks, type Check } from "./suite.ts";

const newest = "2026-07-28";

let gateway: Gateway;
beforeAll(async () => {
  gateway = await startGateway();
});
afterAll(() => gateway.close());

/** One scenario at one revision, by the command that drives the gateway. */
async function run(scenario: string, revision: string): Promise<readonly Check[]> {
  const command = [process.execPath, resolve(import.meta.dirname, "client.ts"), gateway.url, gateway.adminKey];
  const isExtension = (await listScenarios("Client")).get(scenario)?.includes("extension") === true;
  const wanted = ["--command", command.join(" "), "--scenario", scenario, "--spec-version", revision];
  const results = await readChecks("client", [...wanted, ...(isExtension ? ["--force"] : [])]);
  return results.get(scenario) ?? [];
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
    const checks = await run(row.scenario, revision);
    expect(differencesFrom(row, checks)).toEqual([]);
    expect(checks.some(({ status }) => status === "SUCCESS")).toBe(true);
    expect(checks.filter(({ status }) => status === "WARNING")).toEqual([]);
  });
});
