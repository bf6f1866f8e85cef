/** What is measured side by side: the gateway, the bare proxy, Portkey, and the model back end itself. */
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import type { Target } from "./http-connection.ts";
import { cores, startProcess } from "./processes.ts";

export interface Proxy extends Target {
  readonly name: string;
  readonly pid: number;
}

export interface Targets {
  readonly direct: Target;
  /** The back end's tool. */
  readonly toolUrl: string;
  readonly bare: Proxy;
  readonly gateway: Proxy;
  /** Absent where it is not installed: `npm i --prefix bench/portkey`. */
  readonly portkey: Proxy | undefined;
}

const path = "/v1/chat/completions";
const portkey = join(import.meta.dirname, "..", "portkey", "node_modules", "@portkey-ai", "gateway");
const portkeyServer = join(portkey, "build", "start-server.js");
const adminKey = "ty_operator_bench-bench-bench-bench-bench-bench";

/** @param directory for the gateway's data and for what all of them write */
export async function startTargets(directory: string): Promise<Targets> {
  const backEnd = await startFakeModel(directory);
  return {
    direct: { url: `${backEnd}${path}`, headers: {} },
    toolUrl: `${backEnd}/tool`,
    bare: await startBare(directory, backEnd),
    gateway: await startGateway(directory, backEnd),
    portkey: existsSync(portkeyServer) ? await startPortkey(directory, backEnd) : undefined,
  };
}

async function startFakeModel(directory: string): Promise<string> {
  const port = await freePort();
  const script = join(import.meta.dirname, "fake-model.ts");
  await startProcess([script, String(port)], { port, core: cores.load, output: join(directory, "model.log") });
  return `http://127.0.0.1:${port}`;
}

async function startBare(directory: string, backEnd: string): Promise<Proxy> {
  const port = await freePort();
  const script = join(import.meta.dirname, "bare-proxy.ts");
  const parameters = [script, String(port), backEnd];
  const pid = await startProcess(parameters, { port, core: cores.measured, output: join(directory, "bare.log") });
  return { name: "bare", pid, url: `http://127.0.0.1:${port}${path}`, headers: {} };
}

/** As `npm start` builds and starts it, with a tenant, a key of that tenant, and the back end as its provider. */
async function startGateway(directory: string, backEnd: string): Promise<Proxy> {
  const port = await freePort();
  execFileSync(process.execPath, ["functions/build-server.ts"]);
  const flags = ["--max-semi-space-size=16", "--heap-growing-percent=30"];
  const pid = await startProcess([...flags, "functions/dist/server/bin/server.mjs"], {
    port,
    core: cores.measured,
    output: join(directory, "gateway.log"),
    env: {
      PORT: String(port),
      TOOLYARD_DATA_DIR: join(directory, "data"),
      TOOLYARD_ADMIN_KEY: adminKey,
      MALLOC_ARENA_MAX: "1",
    },
  });
  const url = `http://127.0.0.1:${port}`;
  const key = await arrangeTenant(url, backEnd);
  return { name: "toolyard", pid, url: `${url}${path}`, headers: { authorization: `Bearer ${key}` } };
}

async function arrangeTenant(gateway: string, backEnd: string): Promise<string> {
  const send = async (route: string, headers: Readonly<Record<string, string>>, body: object): Promise<Created> => {
    const answer = await fetch(gateway + route, {
      method: "POST",
      headers: { authorization: `Bearer ${adminKey}`, "content-type": "application/json", ...headers },
      body: JSON.stringify(body),
    });
    if (!answer.ok) throw new Error(`POST ${route} answered ${answer.status}: ${await answer.text()}`);
    return (await answer.json()) as Created;
  };
  const limits = { requests_per_minute: 1_000_000, concurrent_requests: 10_000 };
  const { id } = await send("/v1/tenants", {}, { name: "bench", settings: limits });
  const scopes = ["chat", "tools", "manage"];
  const of = { "x-toolyard-tenant": id };
  const { key } = await send("/v1/api-keys", of, { name: "bench", role: "admin", scopes });
  await send("/v1/providers", of, {
    name: "bench",
    kind: "openai",
    base_url: `${backEnd}/v1`,
    models: { plain: "plain" },
    passthrough_models: true,
  });
  return key;
}

interface Created {
  readonly id: string;
  readonly key: string;
}

async function startPortkey(directory: string, backEnd: string): Promise<Proxy> {
  const port = await freePort();
  const pid = await startProcess([portkeyServer, `--port=${port}`, "--headless"], {
    port,
    core: cores.measured,
    output: join(directory, "portkey.log"),
    env: { NODE_ENV: "production" },
  });
  const headers = {
    authorization: "Bearer sk-bench",
    "x-portkey-provider": "openai",
    "x-portkey-custom-host": `${backEnd}/v1`,
  };
  return { name: "portkey", pid, url: `http://127.0.0.1:${port}${path}`, headers };
}

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer().once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      server.close(() => resolve(typeof address === "object" && address !== null ? address.port : 0));
    });
  });
}

/** A tool of the gateway's tenant: one GET at the back end. Offered with every chat from then on. */
export async function addTool({ gateway, toolUrl }: Targets): Promise<void> {
  const url = new URL(gateway.url);
  const answer = await fetch(new URL("/v1/plugins", url), {
    method: "POST",
    headers: { ...gateway.headers, "content-type": "application/json" },
    body: JSON.stringify({
      schema_version: "v1",
      name: "bench_tool",
      description: "The weather of a city",
      parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
      execution: { method: "GET", base_url: toolUrl, param_placement: "query" },
    }),
  });
  if (!answer.ok) throw new Error(`POST /v1/plugins answered ${answer.status}: ${await answer.text()}`);
}
