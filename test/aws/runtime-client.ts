/**
 * The real runtime client (`aws-lambda-ric`, the code of Lambda's Node runtimes), installed once below
 * test/aws from its lock file. It is compiled on this machine, so it can be missing: then the suite
 * that needs it skips, with the reason.
 */
import { execFile } from "node:child_process";
import { access, readFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";

const directory = import.meta.dirname;
const installWithinMs = 300_000;
const run = promisify(execFile);

/** Its first file, for `node` to run. */
export const runtimeClient = join(directory, "node_modules/aws-lambda-ric/index.mjs");

/** Installs it where it is not there yet. @returns why it cannot be had, or `undefined` */
export async function installRuntimeClient(): Promise<string | undefined> {
  if (await isInstalled()) return undefined;
  try {
    await run("npm", ["ci", "--no-audit", "--no-fund"], { cwd: directory, timeout: installWithinMs });
  } catch (error) {
    return `aws-lambda-ric could not be installed (npm ci in test/aws): ${lastLines(error)}`;
  }
  return (await isInstalled()) ? undefined : "npm ci in test/aws left no aws-lambda-ric that fits package.json";
}

/** As the lock file has it, compiled. */
async function isInstalled(): Promise<boolean> {
  try {
    const installed = join(directory, "node_modules/aws-lambda-ric");
    const [wanted, found] = await Promise.all([
      readFile(join(directory, "package.json"), "utf8"),
      readFile(join(installed, "package.json"), "utf8"),
      access(join(installed, "rapid-client.node")),
    ]);
    const { dependencies } = JSON.parse(wanted) as { readonly dependencies: Readonly<Record<string, string>> };
    return (JSON.parse(found) as { readonly version: string }).version === dependencies["aws-lambda-ric"];
  } catch {
    return false;
  }
}

function lastLines(error: unknown): string {
  const text =
    typeof error === "object" && error !== null && "stderr" in error && error.stderr !== ""
      ? String(error.stderr)
      : String(error);
  return text.trim().split("\n").slice(-6).join("\n");
}
