/** What is measured side by side: the gateway, the bare proxy, Portkey, and the model back end itself. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { freePort, startGatewayProcess, type BenchTenant } from "./gateway.ts";
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

export async function startFakeModel(directory: string): Promise<string> {
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

/** With a tenant, and the back end as its provider. */
async function startGateway(directory: string, backEnd: string): Promise<Proxy> {
  const gateway = await startGatewayProcess(directory);
  const tenant = await gateway.newTenant();
  await addModels(tenant, backEnd);
  return { name: "toolyard", pid: gateway.pid, url: `${gateway.url}${path}`, headers: tenant.headers };
}

export async function addModels(tenant: BenchTenant, backEnd: string): Promise<void> {
  await tenant.send("POST", "/v1/providers", {
    name: "bench",
    kind: "openai",
    base_url: `${backEnd}/v1`,
    models: { plain: "plain" },
    passthrough_models: true,
  });
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
