/** `npm run node` as a process of its own, as a user would start it, with programs in a directory of its own. */
import { spawn } from "node:child_process";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { nodeProgram } from "./programs.ts";

export interface NodeProcess {
  readonly pid: number;
  readonly directory: string;
  /** Everything it wrote so far. */
  output(): string;
  /** Sends a signal and waits for the end. */
  stop(signal?: NodeJS.Signals): Promise<number | null>;
  /** Resolves when it has ended by itself. */
  readonly ended: Promise<number | null>;
}

export interface NodeProcessOptions {
  readonly url: string;
  readonly key: string;
  readonly name?: string;
  readonly tools?: readonly Readonly<Record<string, unknown>>[];
  readonly subscriptions?: boolean;
  readonly mcpServers?: Readonly<Record<string, unknown>>;
  readonly vcpModules?: Readonly<Record<string, unknown>>;
  /** Of which it gives files. */
  readonly directories?: readonly string[];
  /** Files beside `node.json`, by name. */
  readonly files?: Readonly<Record<string, string>>;
  readonly graceMs?: number;
  /** Does not wait until it is registered. */
  readonly isRefused?: boolean;
  /** Nobody reads what it prints; nor is it waited for. */
  readonly isUnread?: boolean;
}

const startWithinMs = 45_000;
const root = new URL("../../", import.meta.url);
const running = new Set<() => Promise<void>>();

/** Ends all that are left. */
export async function endNodes(): Promise<void> {
  await Promise.all([...running].map((end) => end()));
}

export async function startNode(options: NodeProcessOptions): Promise<NodeProcess> {
  const directory = await mkdtemp(join(tmpdir(), "toolyard-node-"));
  const { name = "lab-pc", tools = [], subscriptions = false, mcpServers = {}, directories: given = [] } = options;
  const { vcpModules } = options;
  const held = vcpModules === undefined ? {} : { vcp_modules: vcpModules };
  const config = { name, tools, subscriptions, files: given, mcp_servers: mcpServers, ...held };
  await writeFile(join(directory, "node.json"), JSON.stringify(config));
  // What a node leaves that is killed goes with the directory.
  const temporary = join(directory, "tmp");
  await mkdir(temporary);
  for (const [name, text] of Object.entries(options.files ?? {})) {
    await writeFile(join(directory, name), text, { mode: 0o755 });
  }
  const args = ["--url", options.url, "--config", join(directory, "node.json")];
  if (options.graceMs !== undefined) args.push("--grace-ms", String(options.graceMs));
  const child = spawn(process.execPath, [nodeProgram, ...args], {
    cwd: root,
    env: { PATH: process.env["PATH"] ?? "", TOOLYARD_NODE_KEY: options.key, TMPDIR: temporary },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let text = "";
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", (part: Buffer) => (text += part.toString("utf8")));
  if (options.isUnread === true) child.stdout.destroy();
  const ended = new Promise<number | null>((done) => child.once("close", (code) => done(code)));
  const end = async (): Promise<void> => {
    child.kill("SIGKILL");
    await ended;
    running.delete(end);
    await rm(directory, { recursive: true, force: true });
  };
  running.add(end);
  const until = Date.now() + startWithinMs;
  while (options.isRefused !== true && options.isUnread !== true && !text.includes("offers its tools")) {
    if (child.exitCode !== null || Date.now() > until) throw new Error(`the node did not start:\n${text}`);
    await new Promise((done) => setTimeout(done, 25));
  }
  return {
    pid: child.pid ?? 0,
    directory,
    output: () => text,
    ended,
    async stop(signal = "SIGTERM") {
      child.kill(signal);
      return ended;
    },
  };
}

/** A program that does what its arguments say, in JavaScript so that it runs wherever the tests do. */
const labProgram = `
const parts = [];
for await (const part of process.stdin) parts.push(part);
const text = Buffer.concat(parts).toString("utf8");
const args = JSON.parse(text);
const { appendFileSync, existsSync } = await import("node:fs");
if (args.note) appendFileSync(args.note, process.pid + "\\n");
if (args.sleep_ms) await new Promise((done) => setTimeout(done, args.sleep_ms));
while (args.until && !existsSync(args.until)) await new Promise((done) => setTimeout(done, 20));
if (args.fail) { process.stderr.write(args.fail); process.exit(3); }
if (args.bytes) process.stdout.write("x".repeat(args.bytes));
else process.stdout.write(JSON.stringify({ echo: args.text ?? null, size: text.length, argv: process.argv.slice(2), env: Object.keys(process.env).sort() }));
`;

const residentProgram = `
import { createInterface } from "node:readline";
let served = 0;
for await (const line of createInterface({ input: process.stdin })) {
  const { id, arguments: args, cancel } = JSON.parse(line);
  if (cancel) continue;
  served += 1;
  if (args.die) process.exit(9);
  if (args.refuse) console.log(JSON.stringify({ id, error: args.refuse }));
  else console.log(JSON.stringify({ id, result: { pid: process.pid, served } }));
}
`;

const anything = { type: "object", properties: {}, additionalProperties: true };

/** Tools of `labProgram`, which is to be laid down as `lab.mjs`. */
export function labTool(
  name: string,
  change: Readonly<Record<string, unknown>> = {},
): Readonly<Record<string, unknown>> {
  return {
    name,
    description: "Does as it is told.",
    parameters: anything,
    command: [process.execPath, "./lab.mjs"],
    effect: "read",
    ...change,
  };
}

export function residentTool(
  name: string,
  change: Readonly<Record<string, unknown>> = {},
): Readonly<Record<string, unknown>> {
  return labTool(name, { command: [process.execPath, "./resident.mjs"], resident: true, ...change });
}

export const labFiles = { "lab.mjs": labProgram, "resident.mjs": residentProgram };
