/**
 * `npm run bench:cold`: the CPU of a function's start and its first answer (an authenticated chat that
 * calls one tool, database 20 ms away), beside the least that a function of this kind can be, in fresh
 * processes and in turns; and the sizes of the bundles. Ends with 1 where a floor is not reached.
 */
import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { build } from "esbuild";
import { SignJWT } from "jose";
import { buildFunctions, loadedLater } from "../functions/build/functions.ts";
import { startDatabaseProxy } from "../test/support/database-proxy.ts";
import { startGateway } from "../test/support/gateway.ts";
import { createDriver } from "../test/support/gateway-client.ts";
import { startServices } from "../test/support/homes.ts";
import { startHttpStub } from "../test/support/http-stub.ts";
import { readingTool } from "../test/support/http-tools.ts";
import { calls, startLlmStub, text } from "../test/support/llm-stub.ts";
import { isReached, printTable, round, type Finding } from "./support/report.ts";
import { median } from "./support/statistics.ts";

const rounds = 9;
const mostTimesBaseline = 3.5;
const largestStart = 1.6;
const databaseLatencyMs = 20;
const run = promisify(execFile);

interface Start {
  readonly initMs: number;
  readonly firstMs: number;
}

interface Contestant {
  readonly bundle: string;
  readonly event: string;
  readonly env: Readonly<Record<string, string>>;
  /** Stands in a right answer. */
  readonly answer: string;
}

async function measure(runner: string, { bundle, event, env, answer }: Contestant): Promise<Start> {
  const { stdout } = await run(process.execPath, [runner, bundle, event], { env: { ...env } });
  const last = stdout.trimEnd().split("\n").at(-1) ?? "";
  const { initMs, firstMs, status, body } = JSON.parse(last) as Start & { status: number; body: string };
  if (status !== 200 || !body.includes(answer)) throw new Error(`${bundle} answered ${status}: ${body}`);
  return { initMs, firstMs };
}

/** API Gateway's event for a chat. */
function chatEvent(key: string): string {
  const body = { model: "stub-1", messages: [{ role: "user", content: "look it up" }] };
  return JSON.stringify({
    httpMethod: "POST",
    path: "/v1/chat/completions",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json", host: "tools.example.com" },
    body: JSON.stringify(body),
    isBase64Encoded: false,
    requestContext: {},
  });
}

/** A file of bench/support as plain JavaScript, so that no process spends anything on types. */
async function toJavaScript(name: string, directory: string): Promise<string> {
  const outfile = join(directory, `${name}.mjs`);
  await build({
    entryPoints: [join(import.meta.dirname, `support/${name}.ts`)],
    outfile,
    bundle: true,
    platform: "node",
    format: "esm",
    target: "node24",
    minify: true,
  });
  return outfile;
}

async function prepareBaseline(directory: string): Promise<Contestant> {
  const bundle = await toJavaScript("cold-baseline", directory);
  const secret = new TextEncoder().encode("the key of a benchmark, 32 bytes");
  const token = await new SignJWT({ sub: "somebody" }).setProtectedHeader({ alg: "HS256" }).sign(secret);
  const event = join(directory, "baseline-event.json");
  await writeFile(event, chatEvent(token));
  return { bundle, event, env: {}, answer: "somebody" };
}

const directory = await mkdtemp(join(tmpdir(), "toolyard-cold-"));
const bundles = await buildFunctions({ out: join(directory, "functions") });
const [runner, baseline] = await Promise.all([toJavaScript("cold-runner", directory), prepareBaseline(directory)]);
const [services, llm, backEnd] = await Promise.all([startServices(), startLlmStub(), startHttpStub()]);
const proxy = await startDatabaseProxy({ target: services.database.url });
try {
  const gateway = await startGateway({ env: services.env, requestsOnly: true });
  const tenant = await createDriver(gateway.url, services.adminKey).newTenant();
  await tenant.addProvider(llm.url);
  await tenant.addPlugin(readingTool(backEnd, "look"));
  await gateway.close();
  llm.respond(({ messages }) =>
    (messages as readonly unknown[]).length === 1
      ? calls({ name: "look", arguments: { q: "x" } })
      : text("it is there"),
  );
  const event = join(directory, "chat-event.json");
  await writeFile(event, chatEvent(tenant.key));
  proxy.latencyMs = databaseLatencyMs;
  const chat: Contestant = {
    bundle: join(directory, "functions/chat.mjs"),
    event,
    env: {
      ...services.env,
      TOOLYARD_LOG_LEVEL: "info",
      DATABASE_URL: proxy.url,
      TOOLYARD_PUBLIC_URL: "https://tools.example.com",
      TOOLYARD_EGRESS_ALLOW: "127.0.0.0/8",
      AWS_LAMBDA_FUNCTION_NAME: "chat",
    },
    answer: "it is there",
  };
  const starts: { baseline: Start; chat: Start }[] = [];
  for (let count = 0; count < rounds; count += 1) {
    starts.push({ baseline: await measure(runner, baseline), chat: await measure(runner, chat) });
  }
  const figure = (who: "baseline" | "chat", what: (start: Start) => number): number =>
    median(starts.map((start) => what(start[who])));
  const total = ({ initMs, firstMs }: Start): number => initMs + firstMs;
  const inWords = (who: "baseline" | "chat"): string =>
    `${round(figure(who, total))} ms (${round(figure(who, ({ initMs }) => initMs))} + ${round(figure(who, ({ firstMs }) => firstMs))})`;
  const findings: Finding[] = [
    {
      what: "CPU of init + first chat with a tool, against hono + zod-openapi + jose",
      figures: `${inWords("chat")}, baseline ${inWords("baseline")}`,
      value: figure("chat", total) / figure("baseline", total),
      floor: { at: "most", value: mostTimesBaseline, unit: "×" },
    },
    ...bundles
      .filter(({ name }) => name !== loadedLater)
      .map(({ name, bytes, gzippedBytes }): Finding => ({
        what: `what '${name}' loads at its start`,
        figures: `${round(gzippedBytes / 1e6)} MB gzipped`,
        value: bytes / 1e6,
        floor: { at: "most", value: largestStart, unit: "MB" },
      })),
  ];
  printTable(findings);
  process.exitCode = findings.every(isReached) ? 0 : 1;
} finally {
  await Promise.all([llm.close(), backEnd.close(), proxy.close(), services.close()]);
  await rm(directory, { recursive: true, force: true });
}
