/**
 * `npm run bench:tools`: what a tool call through `POST /v1/tools/invoke` costs, whatever the scheme, beside the
 * bare client of the same protocol at the same back end; call by call in turns, because only differences within
 * one run mean anything on a shared machine. And what a catalogue of 1,000 tools costs. Ends with 1 where it
 * cannot measure, and with `--check` where a floor is missed. `npm run bench:tools -- mcp catalogue` measures only
 * these; `--cpu-prof <directory>` leaves a profile of the gateway there. What the figures mean: docs/performance.md.
 */
import { mkdtemp, rm } from "node:fs/promises";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { startCommits, type CommitProcess } from "./support/commits.ts";
import { freePort, startGatewayProcess, type BenchTenant, type GatewayProcess } from "./support/gateway.ts";
import { HttpConnection, requestBytes } from "./support/http-connection.ts";
import { ask, saturate } from "./support/load.ts";
import { cores, cpuSeconds, endProcess, keepToCore, startProcess, stopProcesses } from "./support/processes.ts";
import { isReached, printTable, round, type Finding } from "./support/report.ts";
import { median } from "./support/statistics.ts";
import { startFakeModel } from "./support/targets.ts";
import { measureCatalogue } from "./tools/catalogue.ts";
import { toolCases, type ToolCaseName } from "./tools/index.ts";
import { mcpCommands } from "./tools/mcp-cases.ts";
import type { BackEnds, StartedCase, ToolCase } from "./tools/tool-case.ts";

/** Beyond the commits: the way through the gateway, and one more connection. */
const mostAddedMs = 0.5;
/** Admission and end. */
const commitsOfCall = 2;
/**
 * A process that has worked for a while is meant. V8 optimises a function after some 3,400 invocations, which calls one by
 * one come to within ten seconds and more: many at a time first, all of one kind, then of each before it is measured.
 */
const firstCalls = { connections: 16, seconds: 15 };
const firstOfKind = { connections: 8, seconds: 3 };
const warmUp = { seconds: 1, leastPairs: 30 };
const measured = { seconds: 3, leastPairs: 60 };
const commitSeconds = 1;
const mostSeconds = 900;

interface Bench {
  readonly gateway: GatewayProcess;
  readonly backEnds: BackEnds;
  readonly commits: CommitProcess;
}

interface Pairs {
  readonly gatewayMs: readonly number[];
  readonly bareMs: readonly number[];
  readonly acrossMs: readonly number[];
  readonly ownMs: readonly number[];
  /** Median milliseconds of a commit that is made in turns with the bare client. */
  readonly commitMs: number;
  /** Microseconds of the gateway's CPU for each call, all threads. */
  readonly cpuMicros: number;
}

async function measureCase(name: ToolCaseName, bench: Bench): Promise<readonly Finding[]> {
  const tenant = await bench.gateway.newTenant();
  const started = await toolCases[name].start(bench.backEnds, tenant);
  try {
    await tryOnce(tenant, started);
    return findingsOf(name, await measurePairs(tenant, started, bench));
  } finally {
    await started.close();
  }
}

/** @throws Error where the gateway does not do what the bare client does */
async function tryOnce(tenant: BenchTenant, { uri, arguments: args, bare }: StartedCase): Promise<void> {
  await bare();
  const reply = JSON.stringify(await tenant.send("POST", "/v1/tools/invoke", { uri, arguments: args }));
  if (!reply.includes('"status":"completed"')) throw new Error(`${uri} answered ${reply}`);
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const since = performance.now();
  await work();
  return performance.now() - since;
}

async function measurePairs(
  tenant: BenchTenant,
  started: StartedCase,
  { gateway: { pid }, commits }: Bench,
): Promise<Pairs> {
  const target = { url: `${tenant.url}/v1/tools/invoke`, headers: tenant.headers };
  const body = JSON.stringify({ uri: started.uri, arguments: started.arguments });
  await saturate(target, { ...firstOfKind, body });
  const request = requestBytes(target, body);
  const connection = await HttpConnection.open(target.url);
  const inTurns = async ({ seconds, leastPairs }: typeof measured): Promise<Omit<Pairs, "commitMs">> => {
    const gatewayMs: number[] = [];
    const bareMs: number[] = [];
    const acrossMs: number[] = [];
    const ownMs: number[] = [];
    const before = cpuSeconds(pid);
    const until = performance.now() + seconds * 1_000;
    while (performance.now() < until || gatewayMs.length < leastPairs) {
      gatewayMs.push(await timed(() => ask(connection, request)));
      bareMs.push(await timed(started.bare));
      if (started.bareAcross !== undefined) acrossMs.push(await timed(started.bareAcross));
      if (started.ownAcross !== undefined) ownMs.push(await timed(started.ownAcross));
    }
    return { gatewayMs, bareMs, acrossMs, ownMs, cpuMicros: ((cpuSeconds(pid) - before) / gatewayMs.length) * 1e6 };
  };
  try {
    await inTurns(warmUp);
    const pairs = await inTurns(measured);
    return { ...pairs, commitMs: await commits.measure(commitSeconds, started.bare) };
  } finally {
    connection.close();
  }
}

function findingsOf(name: ToolCaseName, pairs: Pairs): readonly Finding[] {
  const { gatewayMs, bareMs, acrossMs, ownMs, commitMs, cpuMicros } = pairs;
  const { bareClient, withoutFloor }: ToolCase = toolCases[name];
  const [here, there] = [median(gatewayMs), median(bareMs)];
  const commits = commitsOfCall * commitMs;
  const added: Finding = {
    what: `${name}: added to a call, p50`,
    figures: `${round(here)} ms (${round(cpuMicros)} µs CPU), ${bareClient} ${round(there)}, a commit ${round(commitMs)}`,
    value: median(gatewayMs.map((ms, index) => ms - (bareMs[index] ?? Number.NaN))),
    floor: { at: "most", unit: "ms", ...(withoutFloor === undefined ? { value: commits + mostAddedMs } : {}) },
  };
  if (acrossMs.length === 0) return [added];
  const across = median(acrossMs);
  return [
    added,
    {
      what: `${name}: a call of our client alone, against a raw exchange from core to core`,
      figures: `${round(median(ownMs))} ms, raw ${round(across)}`,
      value: median(ownMs) / across,
      floor: { at: "most", value: 2, unit: "×" },
    },
    {
      what: `${name}: a call without its commits, against a raw exchange from core to core`,
      figures: `${round(here - commits)} ms, raw ${round(across)}`,
      value: (here - commits) / across,
      floor: { at: "most", value: 2, unit: "×" },
    },
  ];
}

/** What the way through a process that does nothing adds here: the least that any gateway can. */
async function measureHop(directory: string, { url }: BackEnds): Promise<Finding> {
  const port = await freePort();
  const script = join(import.meta.dirname, "support/bare-proxy.ts");
  const output = join(directory, "bare.log");
  await startProcess([script, String(port), url], { port, core: cores.measured, output });
  const [through, direct] = [`http://127.0.0.1:${port}`, url].map((base) => ({ url: `${base}/mcp`, headers: {} }));
  if (through === undefined || direct === undefined) throw new Error("no targets");
  const call = { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "customer_get", arguments: {} } };
  const ways = await Promise.all(
    [through, direct].map(async (target) => {
      const connection = await HttpConnection.open(target.url);
      const request = requestBytes(target, JSON.stringify(call));
      return { connection, times: [] as number[], ask: () => ask(connection, request) };
    }),
  );
  for (const until = performance.now() + measured.seconds * 1_000; performance.now() < until;) {
    for (const way of ways) way.times.push(await timed(way.ask));
  }
  for (const { connection } of ways) connection.close();
  const [there = [], here = []] = ways.map(({ times }) => times);
  return {
    what: "a bare proxy: added to an exchange, p50",
    figures: `${round(median(there))} ms, direct ${round(median(here))}`,
    value: median(there.map((ms, index) => ms - (here[index] ?? Number.NaN))),
    floor: { at: "most", unit: "ms" },
  };
}

async function startBackEnds(directory: string): Promise<BackEnds> {
  const start = async (core: number): Promise<Omit<BackEnds, "acrossUrl">> => {
    const [port, smtpPort, grpcPort] = [await freePort(), await freePort(), await freePort()];
    const script = join(import.meta.dirname, "tools/back-ends.ts");
    const parameters = [script, String(port), String(smtpPort), String(grpcPort)];
    await startProcess(parameters, { port, core, output: join(directory, `back-ends-${core}.log`) });
    return { url: `http://127.0.0.1:${port}`, smtpPort, grpcPort };
  };
  return { ...(await start(cores.load)), acrossUrl: (await start(cores.measured)).url };
}

/** Code that all calls run through is compiled by then. */
async function warm(gateway: GatewayProcess, backEnds: BackEnds): Promise<void> {
  const tenant = await gateway.newTenant();
  const { uri, arguments: args, close } = await toolCases.api.start(backEnds, tenant);
  const target = { url: `${tenant.url}/v1/tools/invoke`, headers: tenant.headers };
  await saturate(target, { ...firstCalls, body: JSON.stringify({ uri, arguments: args }) });
  await close();
}

async function runAll(names: readonly string[], profiles: string | undefined): Promise<readonly Finding[]> {
  const directory = await mkdtemp(join(tmpdir(), "toolyard-bench-"));
  try {
    keepToCore(process.pid, cores.load);
    const backEnds = await startBackEnds(directory);
    const gateway = await startGatewayProcess(directory, {
      env: { TOOLYARD_MCP_COMMANDS: mcpCommands },
      flags: profiles === undefined ? [] : ["--cpu-prof", "--cpu-prof-interval=150", `--cpu-prof-dir=${profiles}`],
    });
    console.log(`${cpus().length} × ${cpus()[0]?.model}, Node ${process.version}`);
    const findings: Finding[] = [await measureHop(directory, backEnds)];
    await warm(gateway, backEnds);
    const commits = await startCommits(directory);
    for (const name of names) {
      if (isCase(name)) {
        const { absent, withoutFloor }: ToolCase = toolCases[name];
        if (withoutFloor !== undefined) console.log(`${name}: no floor is set, ${withoutFloor}`);
        if (absent === undefined) findings.push(...(await measureCase(name, { gateway, backEnds, commits })));
        else console.log(`${name}: left out. ${absent}`);
      } else findings.push(...(await measureCatalogue(gateway, await startFakeModel(directory))));
    }
    commits.end();
    if (profiles !== undefined) await endProcess(gateway.pid);
    return findings;
  } finally {
    await stopProcesses();
    await rm(directory, { recursive: true, force: true });
  }
}

function isCase(name: string): name is ToolCaseName {
  return Object.hasOwn(toolCases, name);
}

const all = [...Object.keys(toolCases), "catalogue"];
const { values, positionals } = parseArgs({
  options: { check: { type: "boolean", default: false }, "cpu-prof": { type: "string" } },
  allowPositionals: true,
});
const unknown = positionals.filter((name) => !all.includes(name));
if (unknown.length > 0) {
  console.error(`There is no ${unknown.join(", ")}; there are ${all.join(", ")}.`);
  process.exit(2);
}
setTimeout(() => {
  console.error(`The benchmark did not end within ${mostSeconds} s.`);
  void stopProcesses().finally(() => process.exit(1));
}, mostSeconds * 1_000).unref();
const chosen = all.filter((name) => positionals.length === 0 || positionals.includes(name));
const findings = await runAll(chosen, values["cpu-prof"]);
console.log();
printTable(findings);
process.exit(!values.check || findings.every(isReached) ? 0 : 1);
