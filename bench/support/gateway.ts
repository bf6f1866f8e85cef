/** The gateway as `npm start` builds and starts it, on the measured core, with tenants to measure with. */
import { execFileSync } from "node:child_process";
import { createServer } from "node:net";
import { join } from "node:path";
import { cores, startProcess } from "./processes.ts";

export interface GatewayProcess {
  readonly pid: number;
  readonly url: string;
  newTenant(settings?: object): Promise<BenchTenant>;
}

export interface BenchTenant {
  readonly url: string;
  /** Of requests with the tenant's own key, which may do everything. */
  readonly headers: Readonly<Record<string, string>>;
  /** @throws Error with what was answered where that is not a success */
  send(method: "GET" | "POST" | "PUT", route: string, body?: object): Promise<unknown>;
}

export interface GatewayOptions {
  readonly env?: Readonly<Record<string, string>>;
  /** For Node, beside those of `npm start`. */
  readonly flags?: readonly string[];
}

const adminKey = "ty_operator_bench-bench-bench-bench-bench-bench";
const limits = { requests_per_minute: 1_000_000, concurrent_requests: 10_000 };

/** @param directory for the gateway's data and for what it writes */
export async function startGatewayProcess(directory: string, options: GatewayOptions = {}): Promise<GatewayProcess> {
  const port = await freePort();
  execFileSync(process.execPath, ["functions/build/server.ts"]);
  const flags = [
    "--max-semi-space-size=16",
    "--heap-growing-percent=30",
    "--no-flush-bytecode",
    ...(options.flags ?? []),
  ];
  const pid = await startProcess([...flags, "functions/dist/server/bin/server.mjs"], {
    port,
    core: cores.measured,
    output: join(directory, "gateway.log"),
    env: {
      PORT: String(port),
      TOOLYARD_DATA_DIR: join(directory, "data"),
      TOOLYARD_ADMIN_KEY: adminKey,
      MALLOC_ARENA_MAX: "1",
      UV_THREADPOOL_SIZE: "16",
      ...options.env,
    },
  });
  const url = `http://127.0.0.1:${port}`;
  return { pid, url, newTenant: (settings = {}) => newTenant(url, settings) };
}

async function newTenant(url: string, settings: object): Promise<BenchTenant> {
  const operator = { authorization: `Bearer ${adminKey}` };
  const tenant = await send(url, "POST", "/v1/tenants", {
    headers: operator,
    body: { name: "bench", settings: { ...limits, ...settings } },
  });
  const { key } = await send(url, "POST", "/v1/api-keys", {
    headers: { ...operator, "x-toolyard-tenant": tenant["id"] ?? "" },
    body: { name: "bench", role: "admin", scopes: ["chat", "tools", "manage", "node"] },
  });
  const headers = { authorization: `Bearer ${key}` };
  return { url, headers, send: (method, route, body) => send(url, method, route, { headers, body }) };
}

interface Sent {
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: object | undefined;
}

async function send(url: string, method: string, route: string, sent: Sent): Promise<Record<string, string>> {
  const answer = await fetch(url + route, {
    method,
    headers: { "content-type": "application/json", ...sent.headers },
    ...(sent.body === undefined ? {} : { body: JSON.stringify(sent.body) }),
  });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${method} ${route} answered ${answer.status}: ${text}`);
  return JSON.parse(text) as Record<string, string>;
}

export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer().once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      server.close(() => resolve(typeof address === "object" && address !== null ? address.port : 0));
    });
  });
}
