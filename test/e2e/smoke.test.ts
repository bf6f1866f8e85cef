/** The operator's smoke test, as a process, against gateways that are well and others that are not. */
import { execFile } from "node:child_process";
import { createServer, request } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startGateway, type Gateway } from "../support/gateway.ts";

const run = promisify(execFile);
const script = join(import.meta.dirname, "../smoke/smoke.ts");
let gateway: Gateway;

beforeAll(async () => {
  gateway = await startGateway();
});
afterAll(() => gateway.close());

interface Smoked {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

async function smoke(...parameters: readonly string[]): Promise<Smoked> {
  const env = { PATH: process.env["PATH"] ?? "" };
  return run(process.execPath, [script, ...parameters], { env }).then(
    ({ stdout, stderr }) => ({ code: 0, out: stdout, err: stderr }),
    (error: { code: number; stdout: string; stderr: string }) => ({
      code: error.code,
      out: error.stdout,
      err: error.stderr,
    }),
  );
}

/** What stands before the gateway, and gathers every answer before it passes it on. */
async function startGatheringProxy(): Promise<{ readonly url: string; close(): void }> {
  const server = createServer((incoming, outgoing) => {
    const { method = "GET", headers, url = "/" } = incoming;
    const onward = request(gateway.url + url, { method, headers }, (answer) => {
      const parts: Buffer[] = [];
      answer.on("data", (part: Buffer) => parts.push(part));
      answer.on("end", () => outgoing.writeHead(answer.statusCode ?? 502, answer.headers).end(Buffer.concat(parts)));
    });
    incoming.pipe(onward);
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, close: () => server.close() };
}

describe("npm run smoke", () => {
  test("finds a gateway well with the operator's key, and leaves no tenant behind", async () => {
    const before = await gateway.operator.get("/v1/tenants?limit=100");
    const { code, out } = await smoke("--url", `${gateway.url}/`, "--key", gateway.adminKey);
    expect(out).toContain("smoke: all 10 checks passed");
    expect(code).toBe(0);
    expect(out.match(/^ok /gm)).toHaveLength(10);
    expect(out).not.toContain(gateway.adminKey);
    expect(await gateway.operator.get("/v1/tenants?limit=100")).toEqual(before);
  });

  test("does so with the key of a tenant's admin, and leaves no tool behind", async () => {
    const tenant = await gateway.newTenant();
    const { code, out } = await smoke("--url", gateway.url, "--key", tenant.key);
    expect(out).toContain("smoke: all 10 checks passed");
    expect(code).toBe(0);
    const { data } = await tenant.client.get("/v1/plugins?limit=100");
    expect(data.filter((plugin: { readonly name: string }) => plugin.name.startsWith("smoke_"))).toEqual([]);
  });

  test("says what is wrong: a tool that cannot be reached, an answer that is gathered", async () => {
    const dead = await smoke("--url", gateway.url, "--key", gateway.adminKey, "--tool-url", "http://127.0.0.1:1/x");
    expect(dead.code).toBe(1);
    expect(dead.out).toMatch(/^FAIL {2}invoke it .*tool_unreachable/m);
    expect(dead.out).toMatch(/^ok {4}delete the tool/m);
    expect(dead.out).toContain("--tool-url");

    const proxy = await startGatheringProxy();
    try {
      const gathered = await smoke("--url", proxy.url, "--key", gateway.adminKey);
      expect(gathered.code).toBe(1);
      expect(gathered.out.match(/^FAIL .*/gm)).toEqual([expect.stringMatching(/streamed chat.*in one piece/)]);
    } finally {
      proxy.close();
    }
  });

  test("tells apart what it cannot ask: no URL, no key, no gateway, a wrong key", async () => {
    expect(await smoke()).toMatchObject({ code: 2, err: expect.stringContaining("Usage:") });
    expect(await smoke("--url", gateway.url)).toMatchObject({ code: 2, err: expect.stringContaining("Usage:") });
    const nowhere = await smoke("--url", "http://127.0.0.1:1", "--key", "k");
    expect(nowhere).toMatchObject({ code: 2, err: expect.stringContaining("Cannot reach it") });
    const stranger = await smoke("--url", gateway.url, "--key", "not-a-key-of-ours");
    expect(stranger).toMatchObject({ code: 2, err: expect.stringContaining("invalid_api_key") });
  });
});
