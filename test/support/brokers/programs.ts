/** Programs of the system that tests start where they are there, and stop again. */
import { spawn, type ChildProcess } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { connect, createServer, type AddressInfo } from "node:net";
import { delimiter, join } from "node:path";

/** Where a program is, also in directories that are root's alone on `PATH`. */
export function findProgram(name: string): string | undefined {
  const directories = [...(process.env["PATH"] ?? "").split(delimiter), "/usr/sbin", "/usr/bin", "/usr/local/bin"];
  return directories
    .filter((directory) => directory !== "")
    .map((directory) => join(directory, name))
    .find((path) => {
      try {
        accessSync(path, constants.X_OK);
        return true;
      } catch {
        return false;
      }
    });
}

/** A port that was free a moment ago. */
export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((done) => void server.listen(0, "127.0.0.1", () => done()));
  const { port } = server.address() as AddressInfo;
  await new Promise<void>((done) => void server.close(() => done()));
  return port;
}

/** Of ports that the system gives to nobody by itself, so that nobody has them meanwhile by chance. */
const unasked = { first: 20_000, count: 12_000 } as const;

/** A port with which those that lie so far from it are free as well. */
export async function freePortWith(
  neighbours: readonly number[],
  taken: ReadonlySet<number> = new Set(),
): Promise<number> {
  for (;;) {
    const port = unasked.first + Math.floor(Math.random() * unasked.count);
    const wanted = [port, ...neighbours.map((far) => port + far)];
    const free = await Promise.all(wanted.map(async (one) => !taken.has(one) && (await isFree(one))));
    if (free.every(Boolean)) return port;
  }
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer();
  const isOurs = await new Promise<boolean>((done) => {
    server.once("error", () => done(false));
    // As Java binds: at every address.
    server.listen(port, () => done(true));
  });
  if (isOurs) await new Promise<void>((done) => void server.close(() => done()));
  return isOurs;
}

/** Waits until somebody listens there, or the process that should has ended. */
export async function untilListening(port: number, child: ChildProcess): Promise<void> {
  while (!(await isListening(port))) {
    if (child.exitCode !== null) throw new Error(`It ended with ${child.exitCode} before it listened on ${port}.`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

export async function untilSilent(port: number): Promise<void> {
  while (await isListening(port)) await new Promise((done) => setTimeout(done, 50));
}

function isListening(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    socket.once("connect", () => {
      socket.destroy();
      resolve(true);
    });
    socket.once("error", () => resolve(false));
  });
}

export async function stop(child: ChildProcess, signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise<void>((done) => void child.once("exit", () => done()));
  child.kill(signal);
  await ended;
}

/** A command that ends by itself. */
export async function runProgram(
  path: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv = process.env,
  signal?: AbortSignal,
): Promise<string> {
  const child = spawn(path, args, { env, stdio: ["ignore", "pipe", "pipe"], signal });
  child.on("error", () => undefined);
  const said: Buffer[] = [];
  child.stdout.on("data", (bytes: Buffer) => void said.push(bytes));
  child.stderr.on("data", (bytes: Buffer) => void said.push(bytes));
  const code = await new Promise<number | null>((done) => void child.once("close", done));
  const text = Buffer.concat(said).toString();
  if (code !== 0) throw new Error(`${path} ended with ${code}: ${text}`);
  return text;
}
