/**
 * `npm run test:infra`: brings SST's components into `.sst/` where they are not there yet (npm registry
 * only), then checks and synthesises the stack. Needs no account, no Pulumi and no Docker.
 */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { runStage } from "../stages.ts";

const root = join(import.meta.dirname, "../..");

/** SST would fetch Pulumi and bun, report what it does, and look for credentials of the machine. */
const offline = {
  SST_SKIP_DEPENDENCY_CHECK: "1",
  SST_NO_BUN: "1",
  SST_TELEMETRY_DISABLED: "1",
  AWS_EC2_METADATA_DISABLED: "true",
};

async function installedVersion(): Promise<string | undefined> {
  const version = await readFile(join(root, ".sst/platform/version"), "utf8").catch(() => undefined);
  const types = await readFile(join(root, ".sst/platform/config.d.ts"), "utf8").catch(() => undefined);
  return types === undefined ? undefined : version?.trim();
}

async function wantedVersion(): Promise<string> {
  const manifest = JSON.parse(await readFile(join(root, "node_modules/sst/package.json"), "utf8")) as {
    readonly version: string;
  };
  return manifest.version;
}

async function main(): Promise<boolean> {
  if ((await installedVersion()) !== (await wantedVersion())) {
    const command = ["sst", "install", "--stage", "dev"] as const;
    const installed = await runStage({ name: "sst", command, environment: offline }, "keep");
    if (!installed.ok) return false;
  }
  const tests = await runStage({ name: "infra", command: ["vitest", "run", "--project", "infra"] }, "show");
  return tests.ok;
}

process.exitCode = (await main()) ? 0 : 1;
