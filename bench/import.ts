/**
 * `npm run bench:import`: what importing GitHub's document costs, in time and memory, and what a tenant
 * with a thousand tools pays afterwards. The gateway runs in this process, over sockets and a file.
 */
import { readFile } from "node:fs/promises";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { fileURLToPath } from "node:url";
import { ApiDocument } from "@toolyard/core/import/openapi/document";
import { readOpenApi } from "@toolyard/core/import/openapi/read-openapi";
import { Pace } from "@toolyard/core/pace";
import { startGateway } from "../test/support/gateway.ts";

const file = fileURLToPath(import.meta.resolve("@octokit/openapi/generated/api.github.com.json"));

interface Measured<T> {
  readonly result: T;
  readonly row: string;
}

async function measure<T>(name: string, work: () => Promise<T>): Promise<Measured<T>> {
  globalThis.gc?.();
  const before = process.memoryUsage().rss;
  const delay = monitorEventLoopDelay({ resolution: 1 });
  delay.enable();
  const start = performance.now();
  const result = await work();
  const ms = performance.now() - start;
  delay.disable();
  const rss = process.memoryUsage().rss;
  const cells = [ms.toFixed(0), (delay.max / 1e6).toFixed(0), megabytes(rss - before), megabytes(rss)];
  return { result, row: `${name.padEnd(44)}${cells.map((cell) => cell.padStart(12)).join("")}` };
}

function megabytes(bytes: number): string {
  return (bytes / 1_048_576).toFixed(0);
}

const rows: string[] = [];
async function step<T>(name: string, work: () => Promise<T>): Promise<T> {
  const { result, row } = await measure(name, work);
  rows.push(row);
  return result;
}

const gateway = await startGateway();
const tenant = await gateway.newTenant();
const send = async (method: string, path: string, body?: string): Promise<string> => {
  const response = await fetch(gateway.url + path, {
    method,
    headers: { authorization: `Bearer ${tenant.key}`, "content-type": "application/json" },
    ...(body === undefined ? {} : { body }),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${path} answered ${response.status}: ${text.slice(0, 500)}`);
  return text;
};

const text = await readFile(file, "utf8");
const root = await step("JSON.parse of the document", async () => JSON.parse(text));
const read = await step("read: operations, schemas, definitions", () =>
  readOpenApi(new ApiDocument(root, {}), {
    prefix: "",
    auth: {},
    allowedOrigins: new Set(["https://uploads.github.com"]),
    variables: {},
    pace: new Pace(),
  }),
);
const body = JSON.stringify({ openapi: root, allowed_origins: ["https://uploads.github.com"] });
const dry = JSON.stringify({ openapi: root, allowed_origins: ["https://uploads.github.com"], dry_run: true });
const answer = await step("POST /v1/plugins/import, dry run", () => send("POST", "/v1/plugins/import", dry));
await step("POST /v1/plugins/import, all new", () => send("POST", "/v1/plugins/import", body));
await step("POST /v1/plugins/import, nothing new", () => send("POST", "/v1/plugins/import", body));
await step("first request after it: configuration loaded", () => send("GET", "/v1/settings"));
const list = await step("GET /v1/tools, first time", () => send("GET", "/v1/tools"));
await step("GET /v1/tools, again", () => send("GET", "/v1/tools"));
const chat = JSON.stringify({ model: "toolyard/scripted", messages: [{ role: "user", content: "hello" }] });
await step("a chat that is offered all of them, first", () => send("POST", "/v1/chat/completions", chat));
await step("a chat that is offered all of them, again", () => send("POST", "/v1/chat/completions", chat));
await send("PUT", "/v1/credentials/ANY", '{"value":"changes the configuration"}');
await step("GET /v1/tools after a change of configuration", () => send("GET", "/v1/tools"));

process.stdout.write(`GitHub's document: ${megabytes(text.length)} MiB, ${read.candidates.length} operations\n`);
process.stdout.write(
  `answer of the import ${megabytes(answer.length)} MiB, list of tools ${megabytes(list.length)} MiB\n\n`,
);
process.stdout.write(
  `${"".padEnd(44)}${["ms", "longest ms", "MiB more", "MiB RSS"].map((cell) => cell.padStart(12)).join("")}\n`,
);
process.stdout.write(`${rows.join("\n")}\n`);
await gateway.close();
