/**
 * `npm run bench:chat`: what a chat costs, beside the least that Node can do (a bare proxy), beside a
 * peer that users can install (Portkey), and beside the model back end itself; all in one run, in turns,
 * because only ratios mean anything on a shared machine. Ends with 1 where a floor is not reached.
 * `npm run bench:chat -- saturation memory` measures only these. What the figures mean: docs/performance.md.
 */
import { mkdtemp, rm } from "node:fs/promises";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { startCommits } from "./support/commits.ts";
import { HttpConnection, requestBytes, type Target } from "./support/http-connection.ts";
import { ask, findSaturation, saturate } from "./support/load.ts";
import { cores, cpuSeconds, keepToCore, residentBytes, stopProcesses } from "./support/processes.ts";
import { isReached, printTable, round, type Finding } from "./support/report.ts";
import { chatBody } from "./support/requests.ts";
import { median, quantile } from "./support/statistics.ts";
import { readStream, readStreams, streamBody, type ReadStream } from "./support/streams.ts";
import { addTool, startTargets, type Proxy, type Targets } from "./support/targets.ts";

const rounds = 3;
const mostSeconds = 350;
/**
 * A process that has worked for a while is meant. V8 optimises a function after some 3,400 invocations, which requests one
 * by one come to within ten seconds and more: several at a time first, of the kind that is measured.
 */
const firstOfKind = { connections: 8, seconds: 6 };

interface Bench {
  readonly targets: Targets;
  readonly directory: string;
  /** Median milliseconds of a commit in this run. */
  readonly commitMs: number;
}

const scenarios = { saturation, latency, firstChunk, streams, toolLoop, memory };

/** Requests that a second of the process's CPU is good for, at full load. */
async function saturation(bench: Bench): Promise<Finding[]> {
  const findings: Finding[] = [];
  const floors = [
    { connections: 64, bare: 0.25, portkey: 4 },
    { connections: 16, bare: 0.15, portkey: undefined },
  ];
  const { bare, gateway, portkey } = bench.targets;
  const load = await findSaturation(bench.directory);
  console.log(`load by ${load.name}`);
  const measure = async (proxy: Proxy, connections: number, seconds: number): Promise<number> => {
    const before = cpuSeconds(proxy.pid);
    const answered = await load.run(proxy, { connections, seconds, body: chatBody("plain") });
    return ((cpuSeconds(proxy.pid) - before) / answered) * 1e6;
  };
  for (const proxy of [bare, gateway, portkey]) if (proxy !== undefined) await measure(proxy, 64, 10);
  for (const floor of floors) {
    const costs: { bare: number; gateway: number; portkey: number }[] = [];
    for (let round = 0; round < rounds; round += 1) {
      costs.push({
        bare: await measure(bare, floor.connections, 3),
        gateway: await measure(gateway, floor.connections, 4),
        portkey: portkey === undefined ? Number.NaN : await measure(portkey, floor.connections, 3),
      });
    }
    const figure = (name: "bare" | "gateway" | "portkey"): string => round(median(costs.map((cost) => cost[name])));
    const what = `requests a CPU second, ${floor.connections} connections`;
    const micro = "µs CPU a request";
    findings.push({
      what: `${what}, against the bare proxy`,
      figures: `${figure("gateway")} ${micro}, bare ${figure("bare")}`,
      value: median(costs.map((cost) => cost.bare / cost.gateway)),
      floor: { at: "least", value: floor.bare, unit: "×" },
    });
    if (floor.portkey === undefined || portkey === undefined) continue;
    findings.push({
      what: `${what}, against Portkey`,
      figures: `${figure("gateway")} ${micro}, Portkey ${figure("portkey")}`,
      value: median(costs.map((cost) => cost.portkey / cost.gateway)),
      floor: { at: "least", value: floor.portkey, unit: "×" },
    });
  }
  return findings;
}

/** What a request on an idle gateway waits for longer than at the back end. */
async function latency({ targets, commitMs }: Bench): Promise<Finding[]> {
  const body = chatBody("plain");
  const { added, figures } = await addedMs(targets, body, (target, connection) => {
    const request = requestBytes(target, body);
    return () => ask(connection, request);
  });
  return [
    {
      what: "added to a request, 1 connection, p50",
      figures,
      value: added,
      floor: { at: "most", value: 2 * commitMs + 1, unit: "ms" },
    },
  ];
}

async function firstChunk({ targets, commitMs }: Bench): Promise<Finding[]> {
  const pace = { chunks: 3, perSecond: 500 };
  const { added, figures } = await addedMs(targets, streamBody(pace), (target, connection) => async () => {
    return (await readStream(connection, target, pace)).firstChunkMs;
  });
  return [
    {
      what: "added to the first chunk of a stream, p50",
      figures,
      value: added,
      floor: { at: "most", value: commitMs + 1.5, unit: "ms" },
    },
  ];
}

/** Many streams at a model's pace. */
async function streams({ targets }: Bench): Promise<Finding[]> {
  const count = 200;
  const pace = { chunks: 150, perSecond: 50 };
  const results: { gatewayMs: number; directMs: number; bare: number; gateway: number; lost: number }[] = [];
  const measure = async (proxy: Proxy): Promise<{ cpu: number; read: readonly ReadStream[] }> => {
    const before = cpuSeconds(proxy.pid);
    const read = await readStreams(proxy, count, pace);
    return { cpu: ((cpuSeconds(proxy.pid) - before) / (count * pace.chunks)) * 1e6, read };
  };
  const delay = (read: readonly ReadStream[]): number =>
    quantile(
      read.flatMap(({ delaysMs }) => delaysMs),
      0.5,
    );
  for (let round = 0; round < rounds; round += 1) {
    const direct = await readStreams(targets.direct, count, pace);
    const bare = await measure(targets.bare);
    const gateway = await measure(targets.gateway);
    results.push({
      gatewayMs: delay(gateway.read),
      directMs: delay(direct),
      bare: bare.cpu,
      gateway: gateway.cpu,
      lost: gateway.read.filter(({ isComplete }) => !isComplete).length,
    });
  }
  const figure = (name: keyof (typeof results)[number]): string => round(median(results.map((one) => one[name])));
  return [
    {
      what: `${count} streams of ${pace.perSecond} chunks/s: delay of a chunk, p50`,
      figures: `${figure("gatewayMs")} ms, direct ${figure("directMs")}`,
      value: median(results.map(({ gatewayMs, directMs }) => gatewayMs - directMs)),
      floor: { at: "most", value: 0.6, unit: "ms" },
    },
    {
      what: "the same: CPU a chunk, against the bare proxy",
      figures: `${figure("gateway")} µs, bare ${figure("bare")}`,
      value: median(results.map(({ bare, gateway }) => gateway / bare)),
      floor: { at: "most", value: 1.3, unit: "×" },
    },
    {
      what: "the same: streams that lost something",
      figures: `of ${count * rounds}`,
      value: results.reduce((sum, { lost }) => sum + lost, 0),
      floor: { at: "most", value: 0, unit: "" },
    },
  ];
}

/** The tool is run by the gateway, or by the client with a request for each step. */
async function toolLoop({ targets, commitMs }: Bench): Promise<Finding[]> {
  await addTool(targets);
  const asked = chatBody("tool");
  const answered = JSON.stringify({
    ...(JSON.parse(asked) as object),
    messages: [
      { role: "user", content: "And then?" },
      { role: "tool", tool_call_id: "call_1", content: "21" },
    ],
  }).replaceAll(": ", ":");
  const first = requestBytes(targets.direct, asked);
  const second = requestBytes(targets.direct, answered);
  const tool = Buffer.from(`GET ${new URL(targets.toolUrl).pathname}?city=Paris HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n`);
  const { added, figures } = await addedMs(targets, asked, (target, connection) => {
    const requests = target === targets.direct ? [first, tool, second] : [requestBytes(target, asked)];
    return async () => {
      for (const request of requests) await ask(connection, request);
    };
  });
  // Admission and settlement: the tool reads, so its row rides along with the latter.
  const commits = 2;
  return [
    {
      what: "added by a tool loop with one HTTP tool, p50",
      figures: figures.replace("direct", "three requests by the client"),
      value: added,
      floor: { at: "most", value: commits * commitMs + 1, unit: "ms" },
    },
  ];
}

/** A process that has worked for a while, and what each stream that stands open adds to it. */
async function memory({ targets: { gateway }, directory }: Bench): Promise<Finding[]> {
  const count = 500;
  const load = await findSaturation(directory);
  await load.run(gateway, { connections: 64, seconds: 5, body: chatBody("plain") });
  await sleep(2_000);
  const warm = residentBytes(gateway.pid);
  const reading = readStreams(gateway, count, { chunks: 2, perSecond: 0.2 });
  await sleep(3_000);
  const open = residentBytes(gateway.pid);
  await reading;
  return [
    {
      what: "resident memory of the warm process",
      figures: "after 5 s of full load",
      value: warm / 1_048_576,
      floor: { at: "most", value: 150, unit: "MB" },
    },
    {
      what: "resident memory of an open stream",
      figures: `${count} streams`,
      value: Math.max(0, open - warm) / count / 1_024,
      floor: { at: "most", value: 40, unit: "KB" },
    },
  ];
}

async function onConnection<T>(target: Target, work: (connection: HttpConnection) => Promise<T>): Promise<T> {
  const connection = await HttpConnection.open(target.url);
  try {
    return await work(connection);
  } finally {
    connection.close();
  }
}

/** Asks once. @returns the milliseconds that count, where these are not all that it took */
type Step = () => Promise<number | void>;

/**
 * The gateway's milliseconds beyond those of the direct way, call by call in turns: the median of the differences.
 * @param body of the requests that warm the gateway up
 */
async function addedMs(
  { direct, gateway }: Targets,
  body: string,
  prepare: (target: Target, connection: HttpConnection) => Step,
): Promise<{ readonly added: number; readonly figures: string }> {
  await saturate(gateway, { ...firstOfKind, body });
  return onConnection(direct, (toDirect) =>
    onConnection(gateway, async (toGateway) => {
      const [there, here] = [prepare(direct, toDirect), prepare(gateway, toGateway)];
      const inTurns = async (seconds: number): Promise<readonly { direct: number; gateway: number }[]> => {
        const pairs: { direct: number; gateway: number }[] = [];
        for (const until = performance.now() + seconds * 1_000; performance.now() < until;)
          pairs.push({ direct: await milliseconds(there), gateway: await milliseconds(here) });
        return pairs;
      };
      await inTurns(1.5);
      const pairs = await inTurns(6);
      const medianOf = (way: "direct" | "gateway"): string => round(median(pairs.map((pair) => pair[way])));
      return {
        added: median(pairs.map((pair) => pair.gateway - pair.direct)),
        figures: `${medianOf("gateway")} ms, direct ${medianOf("direct")}`,
      };
    }),
  );
}

async function milliseconds(step: Step): Promise<number> {
  const started = performance.now();
  return (await step()) ?? performance.now() - started;
}

/** Of commits in turns with requests to the back end. */
async function measureCommit(directory: string, { direct }: Targets): Promise<number> {
  const commits = await startCommits(directory);
  try {
    return await onConnection(direct, (connection) => {
      const request = requestBytes(direct, chatBody("plain"));
      return commits.measure(3, () => ask(connection, request));
    });
  } finally {
    commits.end();
  }
}

async function runScenarios(names: readonly (keyof typeof scenarios)[]): Promise<readonly Finding[]> {
  const directory = await mkdtemp(join(tmpdir(), "toolyard-bench-"));
  try {
    const targets = await startTargets(directory);
    const commitMs = await measureCommit(directory, targets);
    const without = targets.portkey === undefined ? "; Portkey is not installed (npm i --prefix bench/portkey)" : "";
    console.log(`${cpus().length} × ${cpus()[0]?.model}, Node ${process.version}${without}`);
    console.log(`a commit takes ${round(commitMs)} ms (p50)`);
    const findings: Finding[] = [];
    for (const name of names) {
      const started = performance.now();
      findings.push(...(await scenarios[name]({ targets, directory, commitMs })));
      console.log(`${name}: ${round((performance.now() - started) / 1_000)} s`);
    }
    return findings;
  } finally {
    await stopProcesses();
    await rm(directory, { recursive: true, force: true });
  }
}

function isScenario(name: string): name is keyof typeof scenarios {
  return Object.hasOwn(scenarios, name);
}

const wanted = process.argv.slice(2);
const unknown = wanted.filter((name) => !isScenario(name));
if (unknown.length > 0) {
  console.error(`There is no scenario ${unknown.join(", ")}; there are ${Object.keys(scenarios).join(", ")}.`);
  process.exit(2);
}
setTimeout(() => {
  console.error(`The benchmark did not end within ${mostSeconds} s.`);
  void stopProcesses().finally(() => process.exit(1));
}, mostSeconds * 1_000).unref();
keepToCore(process.pid, cores.load);
const chosen = Object.keys(scenarios).filter((name) => wanted.length === 0 || wanted.includes(name));
const findings = await runScenarios(chosen.filter(isScenario));
console.log();
printTable(findings);
process.exitCode = findings.every(isReached) ? 0 : 1;
