/**
 * Runs the suite's scenarios for clients against the gateway's client of MCP servers: one gateway, a tenant and a
 * service for each scenario. What does not apply to a gateway is named here with the reason; a scenario that a
 * newer suite brings is run.
 */
import { startGateway } from "../support/gateway.ts";
import type { ScenarioResult } from "./report.ts";
import { runScenario, scenariosOf } from "./suite.ts";

const interactive =
  "Services are configured with the addresses of their authorization server and a client that was registered there; nothing is discovered, registered or asked of a browser while a tool runs.";
const signed = "Machine clients prove themselves by secret; assertions and proofs of possession are not offered.";
const skills = "Skills are resources; the gateway asks servers for tools alone.";

const doesNotApply: readonly (readonly [pattern: RegExp, reason: string])[] = [
  [/^auth\/(?:client-credentials-jwt|dpop|dpop-nonce|wif-jwt-bearer|enterprise-managed-authorization)$/, signed],
  [/^auth\/(?!client-credentials-basic$)/, interactive],
  [/^sep-2640-/, skills],
];

const clientCommand = `${process.execPath} test/mcp-conformance/client.ts`;

export async function runClientScenarios(only: readonly string[]): Promise<readonly ScenarioResult[]> {
  const gateway = await startGateway();
  try {
    const results: ScenarioResult[] = [];
    for (const { name, revisions } of await scenariosOf("client")) {
      if (only.length > 0 && !only.includes(name)) continue;
      const reason = doesNotApply.find(([pattern]) => pattern.test(name))?.[1];
      for (const revision of revisions) {
        if (reason === undefined) results.push(await run(name, revision, gateway));
        else
          results.push({ scenario: name, revision, outcome: "does not apply", passed: 0, checks: 0, notes: [reason] });
      }
    }
    return results;
  } finally {
    await gateway.close();
  }
}

async function run(
  scenario: string,
  revision: string,
  { url, adminKey }: { readonly url: string; readonly adminKey: string },
): Promise<ScenarioResult> {
  const version = revision === "extension" ? [] : ["--spec-version", revision];
  const words = ["--command", clientCommand, "--scenario", scenario, ...version];
  const environment = { TOOLYARD_URL: url, TOOLYARD_ADMIN_KEY: adminKey };
  const { checks, output, ok } = await runScenario("client", words, environment);
  const failed = checks.filter(({ status }) => status === "FAILURE" || status === "WARNING");
  const passed = checks.filter(({ status }) => status === "SUCCESS");
  if (!ok || failed.length > 0) process.stderr.write(`${output}\n`);
  return {
    scenario,
    revision,
    outcome: ok && failed.length === 0 && passed.length > 0 ? "passed" : "failed",
    passed: passed.length,
    checks: passed.length + failed.length,
    notes: failed.map(({ id, errorMessage, description }) => `${id}: ${errorMessage ?? description}`),
  };
}
