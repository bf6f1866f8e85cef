/**
 * Load on one target: as many requests as a number of connections can have answered, by `wrk` where it
 * is on the PATH and by this process where it is not; or one request after the other, each timed.
 */
import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { HttpConnection, requestBytes, type Target } from "./http-connection.ts";
import { cores, keepToCore } from "./processes.ts";
import { quantile } from "./statistics.ts";

const run = promisify(execFile);

export interface LoadOptions {
  readonly connections: number;
  readonly seconds: number;
  readonly body: string;
}

/** Requests answered with 200. @throws Error where another status came */
export type Saturate = (target: Target, options: LoadOptions) => Promise<number>;

/** @param directory for the script that `wrk` is given */
export async function findSaturation(directory: string): Promise<{ readonly name: string; readonly run: Saturate }> {
  // wrk prints its usage, and fails, when asked for its version.
  const found = await run("wrk", ["--version"]).then(
    () => true,
    (error: { readonly code?: unknown }) => error.code !== "ENOENT",
  );
  return found
    ? { name: "wrk", run: (target, options) => saturateByWrk(directory, target, options) }
    : { name: "this process (wrk is not on the PATH)", run: saturate };
}

async function saturateByWrk(directory: string, target: Target, options: LoadOptions): Promise<number> {
  const { connections, seconds, body } = options;
  const script = join(directory, "request.lua");
  const headers = Object.entries({ "content-type": "application/json", ...target.headers });
  const lines = headers.map(([name, value]) => `wrk.headers["${name}"]="${value}"`);
  await writeFile(script, [`wrk.method="POST"`, `wrk.body=[==[${body}]==]`, ...lines].join("\n"));
  const parameters = ["-t1", `-c${connections}`, `-d${seconds}s`, "-s", script, target.url];
  const load = run("wrk", parameters);
  keepToCore(load.child.pid ?? 0, cores.load);
  const { stdout } = await load;
  const failed = /Non-2xx or 3xx responses: (\d+)/.exec(stdout)?.[1] ?? "0";
  if (failed !== "0") throw new Error(`${failed} requests to ${target.url} were not answered with 200`);
  return Number(/(\d+) requests in/.exec(stdout)?.[1]);
}

/** By this process. */
export async function saturate(target: Target, { connections, seconds, body }: LoadOptions): Promise<number> {
  const request = requestBytes(target, body);
  const until = performance.now() + seconds * 1_000;
  const counts = await Promise.all(
    Array.from({ length: connections }, async () => {
      const connection = await HttpConnection.open(target.url);
      let answered = 0;
      for (; performance.now() < until; answered += 1) await ask(connection, request);
      connection.close();
      return answered;
    }),
  );
  return counts.reduce((sum, count) => sum + count, 0);
}

/** Median milliseconds of a request, one after the other on one connection. */
export async function medianMs(seconds: number, ask: () => Promise<unknown>): Promise<number> {
  const times: number[] = [];
  for (const until = performance.now() + seconds * 1_000; performance.now() < until;) {
    const started = performance.now();
    await ask();
    times.push(performance.now() - started);
  }
  return quantile(times, 0.5);
}

/** @throws Error where the status is not 200 */
export async function ask(connection: HttpConnection, request: Buffer, onBody?: (part: Buffer) => void): Promise<void> {
  const { status } = await connection.send(request, onBody);
  if (status !== 200) throw new Error(`a request was answered with ${status}`);
}
