/** The image of the server form, built and run without an engine. Takes a minute: it installs from the registry. */
import { execFile, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { findBubblewrap } from "@toolyard/platform/local/plugin-wall";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import {
  buildStages,
  execForm,
  lastOf,
  packagesOf,
  parseDockerfile,
  type BuiltStage,
  type Stage,
} from "./dockerfile.ts";

const root = join(import.meta.dirname, "../..");
const run = promisify(execFile);
const adminKey = "an-operator-key-of-some-length";
/** The image's `node`; only root can become it. */
const uid = process.getuid?.() === 0 ? 1_000 : undefined;

const bubblewrap = await findBubblewrap("/usr/local/bin:/usr/bin:/bin");
if (bubblewrap.missing !== undefined) console.log(`Skipped: code in a box of the image; ${bubblewrap.missing}.`);

let out: string;
let stages: readonly Stage[];
let built: Readonly<Record<string, BuiltStage>>;
const children: ChildProcess[] = [];

beforeAll(async () => {
  out = await mkdtemp(join(tmpdir(), "toolyard-image-"));
  // Other users have to get through.
  await chmod(out, 0o755);
  stages = parseDockerfile(await readFile(join(root, "Dockerfile"), "utf8"));
  built = await buildStages(stages, { context: root, out, node: dirname(process.execPath), uid });
}, 300_000);
afterEach(async () => {
  for (const child of children.splice(0)) {
    if (child.exitCode !== null || child.signalCode !== null) continue;
    child.kill("SIGKILL");
    await once(child, "close");
  }
});
afterAll(() => rm(out, { recursive: true, force: true }));

function stageOf(name: string): { readonly stage: Stage; readonly files: BuiltStage } {
  const stage = stages.find((candidate) => candidate.name === name);
  const files = built[name];
  if (stage === undefined || files === undefined) throw new Error(`there is no stage ${name}`);
  return { stage, files };
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  const { port } = server.address() as AddressInfo;
  await new Promise((closed) => server.close(closed));
  return port;
}

interface Container {
  readonly url: string;
  readonly env: Readonly<Record<string, string>>;
  readonly ended: Promise<number | null>;
  readonly child: ChildProcess;
  output(): string;
}

/** As an engine would start the last stage, but for the port and the place of its volume. */
async function start(): Promise<Container> {
  const { stage, files } = stageOf("final");
  const port = await freePort();
  const env = {
    PATH: `${dirname(process.execPath)}:/usr/bin:/bin`,
    ...files.env,
    HOST: "127.0.0.1",
    PORT: String(port),
    TOOLYARD_DATA_DIR: join(files.root, "data"),
    TOOLYARD_ADMIN_KEY: adminKey,
  };
  const [, ...parameters] = execForm(lastOf(stage, "CMD") ?? "");
  const child = spawn(process.execPath, parameters, {
    cwd: files.workdir,
    env,
    stdio: ["ignore", "pipe", "pipe"],
    ...(uid === undefined ? {} : { uid, gid: uid }),
  });
  children.push(child);
  let text = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (part: Buffer) => (text += part.toString()));
  const ended = once(child, "close").then(([code]: (number | null)[]) => code ?? null);
  await expect.poll(() => text, { timeout: 30_000 }).toContain("listens on");
  return { url: `http://127.0.0.1:${port}`, env, ended, child, output: () => text };
}

async function isHealthy({ env }: Pick<Container, "env">): Promise<boolean> {
  const [, ...parameters] = execForm(lastOf(stageOf("final").stage, "HEALTHCHECK") ?? "");
  return run(process.execPath, [...parameters], { env }).then(
    () => true,
    () => false,
  );
}

interface Request {
  readonly body?: object;
  readonly headers?: Readonly<Record<string, string>>;
}

/** @throws Error where it is not answered well */
async function call(
  { url }: Pick<Container, "url">,
  method: string,
  path: string,
  { body, headers = {} }: Request = {},
): Promise<Readonly<Record<string, string>>> {
  const answer = await fetch(url + path, {
    method,
    headers: { authorization: `Bearer ${adminKey}`, "content-type": "application/json", ...headers },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${method} ${path} answered ${answer.status}: ${text}`);
  const isJson = answer.headers.get("content-type")?.includes("json") === true;
  return isJson ? (JSON.parse(text) as Readonly<Record<string, string>>) : {};
}

describe("the image", () => {
  test("has the Node of the tests, and does not run as root", async () => {
    const { devDependencies } = JSON.parse(await readFile(join(root, "package.json"), "utf8"));
    for (const { image } of stages) expect(image).toBe(`node:${String(devDependencies.node)}-bookworm-slim`);
    expect(lastOf(stageOf("final").stage, "USER")).toBe("node");
  });

  test("has what code of models runs in and with, installed before it gives up being root", () => {
    const { stage } = stageOf("final");
    expect(packagesOf(stage)).toEqual(["bubblewrap", "python3"]);
    const names = stage.instructions.map(({ name }) => name);
    expect(names.indexOf("RUN")).toBeLessThan(names.indexOf("USER"));
  });

  test("holds the bundle and its migrations, no sources, no packages and nothing else of this machine", async () => {
    const { files } = stageOf("final");
    expect((await readdir(files.workdir)).sort()).toEqual(["bin", "migrations"]);
    const code = await readdir(join(files.workdir, "bin"));
    expect(code).toContain("server.mjs");
    expect(code.filter((name) => !/\.mjs(\.map)?$/.test(name))).toEqual([]);
    expect(await readdir(join(files.root, "data"))).toEqual([]);
    expect(await readFile(join(files.workdir, "bin/server.mjs"), "utf8")).not.toContain(out);
  });

  test.skipIf(bubblewrap.missing !== undefined)(
    "runs code in a box as the image's user",
    async () => {
      const container = await start();
      const tenant = await call(container, "POST", "/v1/tenants", {
        body: { name: "boxed", settings: { native_tools: ["run_code"] } },
      });
      const { key } = await call(container, "POST", "/v1/api-keys", {
        body: { name: "one", role: "member", scopes: ["tools"] },
        headers: { "x-toolyard-tenant": tenant["id"] ?? "" },
      });
      const ran = await call(container, "POST", "/v1/tools/invoke", {
        body: { name: "run_code", arguments: { language: "python", code: "import os; print(6 * 7, os.getuid())" } },
        headers: { authorization: `Bearer ${key}` },
      });
      expect(JSON.parse(String(ran["content"]))).toMatchObject({ exit_code: 0, stdout: "42 65534\n" });
      container.child.kill("SIGTERM");
      expect(await container.ended).toBe(0);
    },
    60_000,
  );

  test("is built from what git has, without tests", async () => {
    const { files } = stageOf("build");
    expect((await readdir(files.workdir)).sort()).toEqual([
      "data",
      "functions",
      "node_modules",
      "package-lock.json",
      "package.json",
      "packages",
      "require-node.mjs",
    ]);
    const { stdout } = await run("find", [join(files.workdir, "packages"), "-name", "*.test.ts"]);
    expect(stdout).toBe("");
  });

  test("starts, is healthy, passes the smoke test, drains on SIGTERM and ends with 0", async () => {
    const container = await start();
    expect(await isHealthy(container)).toBe(true);
    const smoke = await run(process.execPath, [
      join(root, "test/smoke/smoke.ts"),
      "--url",
      container.url,
      "--key",
      adminKey,
    ]);
    expect(smoke.stdout).toContain("smoke: all 10 checks passed");
    // Libraries that are loaded at their first use are found in the bundle, too.
    await call(container, "GET", "/metrics");
    const document =
      "openapi: 3.1.0\ninfo: {title: t, version: '1'}\nservers: [{url: 'https://api.example.com'}]\npaths: {}\n";
    await call(container, "POST", "/v1/plugins/import", { body: { openapi: document, dry_run: true } });
    container.child.kill("SIGTERM");
    expect(await container.ended).toBe(0);
    expect(await isHealthy(container)).toBe(false);
    // What it has to keep is in its volume; a second container goes on with it.
    const again = await start();
    expect(await isHealthy(again)).toBe(true);
    again.child.kill("SIGTERM");
    expect(await again.ended).toBe(0);
  }, 120_000);

  test("could as well be started with npm, from the files and packages of the build", async () => {
    const { files } = stageOf("build");
    const env = {
      PATH: `${dirname(process.execPath)}:${process.env["PATH"] ?? ""}`,
      PORT: "0",
      TOOLYARD_DATA_DIR: join(out, "npm-data"),
    };
    const child = spawn("npm", ["start"], { cwd: files.workdir, env, stdio: ["ignore", "pipe", "inherit"] });
    children.push(child);
    let text = "";
    child.stdout.on("data", (part: Buffer) => (text += part.toString()));
    await expect.poll(() => text, { timeout: 60_000 }).toContain("\ncurl ");
    const ended = once(child, "close");
    child.kill("SIGTERM");
    expect(await ended).toEqual([0, null]);
  }, 120_000);
});
