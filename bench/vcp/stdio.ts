/**
 * What a synchronous plugin costs through `POST /v1/tools/invoke`, beside starting the same program with nothing in
 * between; and how long starting one stops the event loop of a process of 1 GB.
 */
import { execFileSync, spawn } from "node:child_process";
import { mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { createLocalPlugins } from "@toolyard/platform/local/local-plugins";
import { startCommits } from "../support/commits.ts";
import { startGatewayProcess, type BenchTenant } from "../support/gateway.ts";
import { HttpConnection, requestBytes } from "../support/http-connection.ts";
import { ask } from "../support/load.ts";
import { cores, keepToCore, stopProcesses } from "../support/processes.ts";
import { round, type Finding } from "../support/report.ts";
import { median } from "../support/statistics.ts";

/** Beyond the commits of a call: the way through the gateway, the plugin's directory, and its end. */
const mostAddedMs = 2;
const commitsOfCall = 2;
const mostBlockedMs = 2;
const largeMegabytes = 1_000;
const warmUp = 30;
const pairs = 150;

const script = `read request\necho '{"status":"success","result":"ok"}'\n`;
const args = { text: "hello" };

export async function measureStdio(): Promise<readonly Finding[]> {
  const directory = await mkdtemp(join(tmpdir(), "toolyard-bench-"));
  try {
    keepToCore(process.pid, cores.load);
    const commits = await startCommits(directory);
    const commitMs = await commits.measure(2, () => sleep(2));
    commits.end();
    console.log(`a commit takes ${round(commitMs)} ms (p50)`);
    const open = await measureCalls(join(directory, "open"), await pathWithoutWall(directory));
    await stopProcesses();
    const path = process.env["PATH"] ?? "";
    const walled = await measureCalls(join(directory, "walled"), path);
    await stopProcesses();
    return [
      {
        what: "a synchronous plugin, no wall: added to a start of the same program, p50",
        figures: `${round(median(open.calls))} ms, bare ${round(median(open.bare))}`,
        value: addedMs(open),
        floor: { at: "most", value: commitsOfCall * commitMs + mostAddedMs, unit: "ms" },
      },
      {
        what: "the same behind the wall, where there is one",
        figures: `${round(median(walled.calls))} ms, bare ${round(median(walled.bare))}`,
        value: addedMs(walled),
        floor: { at: "most", unit: "ms" },
      },
      await measureBlocking(path),
    ];
  } finally {
    await stopProcesses();
    await rm(directory, { recursive: true, force: true });
  }
}

/** What the plugin needs, and no `bwrap`. */
async function pathWithoutWall(directory: string): Promise<string> {
  const bin = join(directory, "bin");
  await mkdir(bin);
  for (const program of ["sh", "setpriv"]) {
    const found = execFileSync("/bin/sh", ["-c", `command -v ${program} || true`], { encoding: "utf8" }).trim();
    if (found !== "") await symlink(found, join(bin, program));
  }
  return bin;
}

interface Measured {
  readonly calls: readonly number[];
  readonly bare: readonly number[];
}

function addedMs({ calls, bare }: Measured): number {
  return median(calls.map((ms, index) => ms - (bare[index] ?? Number.NaN)));
}

/** In turns: only differences within one run mean anything. */
async function measureCalls(directory: string, path: string): Promise<Measured> {
  await mkdir(join(directory, "none"), { recursive: true });
  await writeFile(join(directory, "plugin.sh"), script);
  const gateway = await startGatewayProcess(directory, {
    env: { PATH: path, TOOLYARD_PLUGIN_DIR: join(directory, "none") },
  });
  const tenant = await gateway.newTenant();
  await importPlugin(tenant);
  const target = { url: `${tenant.url}/v1/tools/invoke`, headers: tenant.headers };
  const connection = await HttpConnection.open(target.url);
  const request = requestBytes(target, JSON.stringify({ uri: "vcp://Bench", arguments: args }));
  const calls: number[] = [];
  const bare: number[] = [];
  for (let count = -warmUp; count < pairs; count += 1) {
    const [called, started] = [await timed(() => ask(connection, request)), await timed(() => startBare(directory))];
    if (count < 0) continue;
    calls.push(called);
    bare.push(started);
  }
  connection.close();
  return { calls, bare };
}

async function importPlugin(tenant: BenchTenant): Promise<void> {
  const manifest = { name: "Bench", pluginType: "synchronous", entryPoint: { command: "sh plugin.sh" } };
  await tenant.send("POST", "/v1/plugins/import", { vcp: { manifest, files: [{ path: "plugin.sh", text: script }] } });
  const answer = JSON.stringify(await tenant.send("POST", "/v1/tools/invoke", { uri: "vcp://Bench", arguments: args }));
  if (!answer.includes("original_plugin_output")) throw new Error(`the plugin answered ${answer}`);
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const since = performance.now();
  await work();
  return performance.now() - since;
}

function startBare(cwd: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn("sh", ["plugin.sh"], { cwd, stdio: ["pipe", "pipe", "ignore"] });
    child.on("error", reject);
    child.stdout.resume();
    child.stdin.on("error", () => undefined);
    child.stdin.end(JSON.stringify(args));
    child.on("close", () => resolve());
  });
}

/** By the time that starting takes in this process itself, which is made as large as a busy server. */
async function measureBlocking(path: string): Promise<Finding> {
  const plugins = createLocalPlugins({ path, wall: "never" });
  const run = (): Promise<unknown> =>
    plugins.run({
      tenant: "bench",
      command: ["sh", "plugin.sh"],
      environment: {},
      stdin: "{}",
      timeoutMs: 10_000,
      maxOutputBytes: 1_000_000,
      files: [{ path: "plugin.sh", body: Buffer.from(script) }],
    });
  await run();
  const held = Array.from({ length: largeMegabytes }, () => Buffer.alloc(1_048_576, 1));
  // One after the other, not in turns: after a fork of its own, a process pays for every page that it writes to next.
  const helper = await measureStarts(run);
  const bare = await measureStarts(() => startBare(tmpdir()));
  return {
    what: `a start stops the event loop of a process of ${held.length} MB, p50`,
    figures: `${round(median(helper))} ms, a bare spawn ${round(median(bare))}`,
    value: median(helper),
    floor: { at: "most", value: mostBlockedMs, unit: "ms" },
  };
}

/** Milliseconds until each of some starts gives the event loop back. */
async function measureStarts(start: () => Promise<unknown>): Promise<readonly number[]> {
  const blocked: number[] = [];
  for (let count = 0; count < 20; count += 1) {
    const since = performance.now();
    const ended = start();
    blocked.push(performance.now() - since);
    await ended;
  }
  return blocked;
}
