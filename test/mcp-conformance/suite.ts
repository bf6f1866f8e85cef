/** The official conformance suite as a program: which scenarios it has, and what it says of one. */
import { spawn } from "node:child_process";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { parseJson } from "@toolyard/core/json";
import * as z from "zod";

const require = createRequire(import.meta.url);
const folder = dirname(require.resolve("@modelcontextprotocol/conformance/package.json"));
const program = join(folder, "dist/index.js");

export type Side = "client" | "server";

export interface Scenario {
  readonly name: string;
  /** Revisions of MCP that it is about; `extension`: none in particular. */
  readonly revisions: readonly string[];
}

const checkSchema = z.looseObject({
  id: z.string(),
  name: z.string(),
  description: z.string(),
  status: z.enum(["SUCCESS", "FAILURE", "WARNING", "SKIPPED", "INFO"]),
  errorMessage: z.string().nullish(),
});
export type Check = z.infer<typeof checkSchema>;

export interface ScenarioRun {
  readonly checks: readonly Check[];
  /** What the suite and what it ran have written. */
  readonly output: string;
  /** It and all that it ran ended well. */
  readonly ok: boolean;
}

export async function suiteVersion(): Promise<string> {
  const { version } = z
    .looseObject({ version: z.string() })
    .parse(parseJson(await readFile(join(folder, "package.json"), "utf8")));
  return version;
}

export async function scenariosOf(side: Side): Promise<readonly Scenario[]> {
  const { output } = await run(["list", `--${side}`], {});
  return output.split("\n").flatMap((line) => {
    const found = /^\s+- (\S+) \[([^\]]*)\]/.exec(line);
    if (found === null) return [];
    const [, name = "", revisions = ""] = found;
    return [{ name, revisions: revisions.split(",") }];
  });
}

/** @param words of the command line, after the side's own name */
export async function runScenario(
  side: Side,
  words: readonly string[],
  environment: Readonly<Record<string, string>> = {},
): Promise<ScenarioRun> {
  const results = await mkdtemp(join(tmpdir(), "toolyard-conformance-"));
  try {
    const { output, code } = await run([side, ...words, "--output-dir", results], environment);
    // Scenarios with a slash in their names make a directory in a directory.
    const made = (await readdir(results, { recursive: true })).find((name) => basename(name) === "checks.json");
    const text = made === undefined ? "[]" : await readFile(join(results, made), "utf8");
    const said = made === undefined ? "" : await readSaid(join(results, dirname(made)));
    return { checks: z.array(checkSchema).parse(parseJson(text)), output: `${output}\n${said}`, ok: code === 0 };
  } finally {
    await rm(results, { recursive: true, force: true });
  }
}

async function readSaid(directory: string): Promise<string> {
  const texts = ["stdout.txt", "stderr.txt"].map((name) => readFile(join(directory, name), "utf8").catch(() => ""));
  return (await Promise.all(texts)).join("\n");
}

function run(
  words: readonly string[],
  environment: Readonly<Record<string, string>>,
): Promise<{ readonly output: string; readonly code: number | null }> {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, [program, ...words], {
      env: { ...process.env, ...environment },
      stdio: ["ignore", "pipe", "pipe"],
    });
    let output = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream.on("data", (part: Buffer) => (output += part.toString("utf8")));
    }
    child.once("close", (code) => resolve({ output, code }));
  });
}
