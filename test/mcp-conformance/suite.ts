/** Runs the official conformance suite as its users do, as a program, and reads what it found. */
import { spawn } from "node:child_process";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import * as z from "zod";
import type { ConformanceRow } from "./row.ts";

const require = createRequire(import.meta.url);
const program = require.resolve("@modelcontextprotocol/conformance/dist/index.js");

const checksSchema = z.array(
  z.looseObject({ id: z.string(), status: z.string(), errorMessage: z.string().optional() }),
);
export type Check = z.output<typeof checksSchema>[number];
/** By scenario. */
export type Results = ReadonlyMap<string, readonly Check[]>;

export async function suiteVersion(): Promise<string> {
  const manifest: unknown = JSON.parse(await readFile(join(dirname(program), "..", "package.json"), "utf8"));
  return z.object({ version: z.string() }).parse(manifest).version;
}

/** @returns what it writes to standard output */
async function runProgram(parameters: readonly string[]): Promise<string> {
  const child = spawn(process.execPath, [program, ...parameters], { stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  child.stdout.on("data", (part: Buffer) => (output += part.toString("utf8")));
  child.stderr.on("data", (part: Buffer) => (output += part.toString("utf8")));
  await new Promise((done) => child.once("close", done));
  return output;
}

/** @param parameters of the command `server` or `client`, without where results go */
export async function readChecks(command: "server" | "client", parameters: readonly string[]): Promise<Results> {
  const directory = await mkdtemp(join(tmpdir(), "toolyard-conformance-"));
  try {
    const output = await runProgram([command, ...parameters, "--output-dir", directory]);
    const found = new Map<string, readonly Check[]>();
    // A slash in a scenario's name makes a directory in a directory.
    for (const file of await readdir(directory, { recursive: true })) {
      const scenario = /^(?:server-)?(.+?)-\d{4}-\d\d-\d\dT[\w-]+\/checks\.json$/.exec(file)?.[1];
      if (scenario === undefined) continue;
      const checks: unknown = JSON.parse(await readFile(join(directory, file), "utf8"));
      found.set(scenario, checksSchema.parse(checks));
    }
    if (found.size === 0) throw new Error(`the suite has left no results: ${output.slice(-2_000)}`);
    return found;
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

/** Scenarios that the suite has, with the revisions of each; `extension` for those of none. */
export async function listScenarios(role: "Server" | "Client"): Promise<ReadonlyMap<string, readonly string[]>> {
  const output = await runProgram(["list"]);
  const section = output.split(/^(?=\w[\w ]* scenarios)/m).find((part) => part.startsWith(`${role} scenarios`)) ?? "";
  const lines = [...section.matchAll(/^ {2}- (\S+) \[(.*)\]$/gm)];
  return new Map(lines.map(([, name = "", revisions = ""]) => [name, revisions.split(",")]));
}

/** What is not as the row says; empty: nothing. */
export function differencesFrom(row: ConformanceRow, checks: readonly Check[] | undefined): readonly string[] {
  if (checks === undefined) return ["it was not run"];
  const failed = checks.filter(({ status }) => status === "FAILURE");
  if (row.notApplicable !== undefined) {
    // That messages are well-formed is checked of every scenario.
    const hasPassed = checks.some(({ id, status }) => status === "SUCCESS" && id !== "wire-schema-valid");
    const isWhole = checks.every(({ status }) => status === "SUCCESS" || status === "INFO");
    return hasPassed && isWhole ? ["it passes, so it applies: take 'notApplicable' away"] : [];
  }
  const expected = Object.keys(row.exceptions ?? {});
  const unexpected = failed.filter(({ id }) => !expected.includes(id));
  const passing = expected.filter((id) => !failed.some((check) => check.id === id));
  return [
    ...unexpected.map(({ id, errorMessage = "" }) => `${id}: ${errorMessage}`),
    ...passing.map((id) => `${id} passes: take the exception away`),
  ];
}
