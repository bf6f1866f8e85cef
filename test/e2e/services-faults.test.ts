/**
 * What tool services do when networks and back ends fail, for every scheme: names that move to other addresses,
 * breakers that let one call of all instances through, and nothing left behind, neither sockets nor processes.
 * Broken connections and what becomes of their calls: schemes.test.ts.
 */
import dns from "node:dns/promises";
import { existsSync } from "node:fs";
import { readdir, readFile, readlink } from "node:fs/promises";
import { syncBuiltinESMExports } from "node:module";
import { connect, createServer, type Socket } from "node:net";
import { isToolScheme, type ToolScheme } from "@toolyard/core/tools/uri";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { startGateway, startGatewayProcess, type Gateway } from "../support/gateway.ts";
import { stdioServers } from "../support/mcp-peers.ts";
import type { SchemeBackEnd, SchemeFixture } from "../support/schemes/fixture.ts";
import { schemeFixtures } from "../support/schemes/index.ts";
import { servicesRun } from "../support/service-peers/peer.ts";
import { verifies } from "../support/verifies.ts";

const cases = Object.entries(schemeFixtures).flatMap(([scheme, fixtures]) =>
  isToolScheme(scheme) ? [fixtures].flat().map((fixture): [ToolScheme, SchemeFixture] => [scheme, fixture]) : [],
);

const pause = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

function uriOf(scheme: ToolScheme, fixture: SchemeFixture, serviceId = "main"): string {
  return `${scheme}://${serviceId}/${encodeURIComponent(fixture.tool)}`;
}

async function addService(tenant: TestTenant, scheme: ToolScheme, config: Json, serviceId = "main"): Promise<Json> {
  return tenant.client.post("/v1/tool-services", { scheme, service_id: serviceId, config });
}

const invokeFor =
  ({ client }: Pick<TestTenant, "client">, fixture: SchemeFixture) =>
  (uri: string): Promise<Reply> =>
    client.send("post", "/v1/tools/invoke", { uri, arguments: fixture.arguments });

describe(`a name that moves ${verifies("API-5", "SVC-3")}`, () => {
  const addresses = new Map<string, string>();
  const lookup = dns.lookup;
  let gateway: Gateway;
  beforeAll(async () => {
    const moved = (host: string, options: object): Promise<unknown> => {
      const address = addresses.get(host);
      return address === undefined ? lookup(host, options) : Promise.resolve([{ address, family: 4 }]);
    };
    dns.lookup = moved as typeof dns.lookup;
    syncBuiltinESMExports();
    gateway = await startGateway();
  });
  afterAll(async () => {
    dns.lookup = lookup;
    syncBuiltinESMExports();
    await gateway.close();
  });

  test.each(cases)(
    "is followed to its new address by %s://, and not to where nobody may go",
    async (scheme, fixture) => {
      const host = `${scheme}.moving.example.com`;
      const tenant = await gateway.newTenant();
      const [first, second] = [await fixture.start(), await fixture.start()];
      addresses.set(host, "127.0.0.1");
      await addService(tenant, scheme, atName(first.config, host));
      const invoke = invokeFor(tenant, fixture);
      const uri = uriOf(scheme, fixture);
      expect((await invoke(uri)).status).toBe(200);

      const relay = await startRelay("127.0.0.2", portOf(first.config), portOf(second.config));
      addresses.set(host, "127.0.0.2");
      await first.close();
      // Until the end of the old connection has come.
      await pause(100);
      const there = await invoke(uri);
      expect(there.status, there.text).toBe(200);
      expect(second.calls()).toBe(1);

      addresses.set(host, "10.1.2.3");
      relay.cut();
      await pause(100);
      const denied = await invoke(uri);
      expect([denied.status, denied.json.error.code]).toEqual([403, "egress_denied"]);
      expect(second.calls()).toBe(1);
      await relay.close();
      await second.close();
    },
  );
});

/** The same back end under a name, and under one name only. */
function atName(config: Json, host: string): Json {
  const moved: Json = JSON.parse(JSON.stringify(config).replaceAll("127.0.0.1", host));
  if (moved.tls !== undefined) moved.tls.server_name = "localhost";
  if (moved.endpoints !== undefined) moved.endpoints = moved.endpoints.slice(0, 1);
  return moved;
}

function portOf(config: Json): number {
  const [, port] = /(?:127\.0\.0\.1:|"port":)(\d+)/.exec(JSON.stringify(config)) ?? [];
  return Number(port);
}

/** Passes on, from another address of this machine. */
async function startRelay(
  host: string,
  port: number,
  target: number,
): Promise<{ cut(): void; close(): Promise<void> }> {
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const behind = connect(target, "127.0.0.1");
    for (const socket of [client, behind]) {
      sockets.add(socket);
      socket.on("error", () => undefined);
      socket.on("close", () => {
        sockets.delete(socket);
        client.destroy();
        behind.destroy();
      });
    }
    client.pipe(behind).pipe(client);
  });
  await new Promise<void>((done) => void server.listen(port, host, () => done()));
  const cut = (): void => {
    for (const socket of sockets) socket.destroy();
  };
  return {
    cut,
    async close() {
      cut();
      await new Promise((done) => server.close(done));
    },
  };
}

describe(`a breaker of two instances ${verifies("SVC-4")}`, () => {
  const openMs = 600;
  let gateway: Gateway;
  let other: Gateway;
  beforeAll(async () => {
    const timing = { cancelPollMs: 50, heartbeatMs: 100 };
    gateway = await startGateway({ timing });
    other = await startGateway({ timing, sharedWith: gateway });
  });
  afterAll(async () => {
    await other.close();
    await gateway.close();
  });

  // One scheme stands for all where there is little time: breakers are not theirs.
  const schemes = servicesRun === undefined ? ["api"] : ["api", "mcp", "svc", "oss"];
  const withBreakers = cases.filter(([scheme]) => schemes.includes(scheme));

  test.each(withBreakers)(
    "of %s:// lets one of a hundred calls through when it is half open",
    async (scheme, fixture) => {
      const tenant = await gateway.newTenant({ concurrent_tool_calls: 200, requests_per_minute: 100_000 });
      const backEnd = await fixture.start();
      const breaker = { failures: 2, open_ms: openMs };
      await addService(tenant, scheme, { ...backEnd.config, breaker });
      const here = invokeFor(tenant, fixture);
      const there = invokeFor({ client: other.client(tenant.key) }, fixture);
      const uri = `${uriOf(scheme, fixture)}?max-attempts=1&timeout=50000`;
      const codeOf = ({ json }: Reply): string => json.error?.code ?? json.status;
      expect([codeOf(await here(uri)), codeOf(await there(uri))]).toEqual(["completed", "completed"]);

      const openIt = async (): Promise<void> => {
        for (let failure = 0; failure < breaker.failures; failure += 1) {
          backEnd.behave("broken");
          expect(codeOf(await here(uri))).not.toBe("completed");
        }
        // Nobody has told the other one.
        expect([codeOf(await there(uri)), codeOf(await here(uri))]).toEqual(["circuit_open", "circuit_open"]);
      };
      const hundred = (): readonly Promise<string>[] =>
        Array.from({ length: 100 }, async (_none, at) => codeOf(await (at % 2 === 0 ? here : there)(uri)));

      await openIt();
      await pause(openMs + 50);
      backEnd.behave("silent");
      let before = backEnd.calls();
      const refused: string[] = [];
      const tried = hundred().map(async (call) => {
        const code = await call;
        refused.push(code);
        return code;
      });
      while (refused.length < 99 || backEnd.calls() === before) await pause(20);
      expect([backEnd.calls() - before, tally(refused)]).toEqual([1, { circuit_open: 99 }]);

      // Whoever tries is given up, which says nothing of the back end: the next one tries.
      backEnd.behave("well");
      for (const { id } of (await tenant.client.get("/v1/calls?state=running")).data)
        await tenant.client.send("post", `/v1/calls/${id}/cancel`);
      const given = fixture.effect === "read" ? "call_cancelled" : "outcome_unknown";
      expect(tally(await Promise.all(tried))).toEqual({ circuit_open: 99, [given]: 1 });
      before = backEnd.calls();
      const closing = tally(await Promise.all(hundred()));
      expect((closing["completed"] ?? 0) + (closing["circuit_open"] ?? 0)).toBe(100);
      expect(backEnd.calls() - before).toBe(closing["completed"]);
      for (const invoke of [here, there, here, there]) expect(codeOf(await invoke(uri))).toBe("completed");
      await backEnd.close();
    },
  );
});

function tally(codes: readonly string[]): Readonly<Record<string, number>> {
  return Object.fromEntries([...new Set(codes)].map((code) => [code, codes.filter((each) => each === code).length]));
}

/** One of everything that may leave something behind; the service goes at the end. */
async function useUp(
  tenant: TestTenant,
  scheme: ToolScheme,
  fixture: SchemeFixture,
  backEnd: SchemeBackEnd,
): Promise<void> {
  const serviceId = `${scheme}-${fixture.tool.toLowerCase()}-${portOf(backEnd.config)}`;
  const invoke = invokeFor(tenant, fixture);
  const uri = uriOf(scheme, fixture, serviceId);
  const services = [
    await addService(tenant, scheme, backEnd.config, serviceId),
    await addService(tenant, scheme, backEnd.deadConfig, `${serviceId}-dead`),
  ];
  await Promise.all(Array.from({ length: 5 }, () => invoke(uri)));
  backEnd.behave("broken");
  await invoke(`${uri}?max-attempts=1`);
  backEnd.behave("silent");
  await invoke(`${uri}?timeout=${fixture.reachedWithinMs ?? 150}&max-attempts=1`);
  const before = backEnd.calls();
  const body = { uri, arguments: fixture.arguments, async: true };
  const { json } = await tenant.client.send("post", "/v1/tools/invoke", body);
  while (backEnd.calls() === before) await pause(20);
  await tenant.client.send("post", `/v1/calls/${json.id}/cancel`);
  while ((await tenant.client.get(`/v1/calls/${json.id}`)).finished_at === null) await pause(50);
  backEnd.behave("huge");
  await invoke(uri);
  backEnd.behave("well");
  await invoke(uriOf(scheme, fixture, `${serviceId}-dead`));
  const last = await invoke(uri);
  expect(last.status, `${uri}: ${last.text}`).toBe(200);
  for (const { id } of services) await tenant.client.expect("delete", `/v1/tool-services/${id}?force=true`);
}

/** Programs, one a call: one that answers, and one that does not. */
async function useUpPrograms(tenant: TestTenant): Promise<void> {
  const services = [];
  for (const command of ["everything", "hangs"]) {
    services.push(await addService(tenant, "mcp", { transport: "stdio", command }, command));
  }
  const sum = { uri: "mcp://everything/get-sum", arguments: { a: 2, b: 40 } };
  const answers = await Promise.all(
    Array.from({ length: 3 }, () => tenant.client.send("post", "/v1/tools/invoke", sum)),
  );
  expect(answers.map(({ status }) => status)).toEqual([200, 200, 200]);
  const hanging = { uri: "mcp://hangs/any?timeout=500&max-attempts=1", arguments: {} };
  expect((await tenant.client.send("post", "/v1/tools/invoke", hanging)).json.error.code).toBe("tool_timeout");
  for (const { id } of services) await tenant.client.expect("delete", `/v1/tool-services/${id}?force=true`);
}

const commands = JSON.stringify({
  everything: { command: stdioServers.everything },
  hangs: { command: [process.execPath, "-e", "setInterval(() => {}, 1000)"] },
});

const whyNot =
  servicesRun === undefined
    ? " (skipped: takes half a minute; npm run test:services)"
    : existsSync("/proc/self/fd")
      ? ""
      : " (skipped: this system has no /proc)";

describe.skipIf(whyNot !== "")(`tool services leave nothing behind${whyNot} ${verifies("MCP-4", "MQ-4")}`, () => {
  let backEnds: readonly (readonly [ToolScheme, SchemeFixture, SchemeBackEnd])[];
  beforeAll(async () => {
    backEnds = await Promise.all(
      cases.map(async ([scheme, fixture]) => [scheme, fixture, await fixture.start()] as const),
    );
  });
  afterAll(() => Promise.all(backEnds.map(([, , backEnd]) => backEnd.close())));

  /**
   * Each back end has a tenant of its own: `conflict` is what calls may meet where configurations change all the time.
   * @returns what uses all of them up once
   */
  async function prepare(gateway: Pick<Gateway, "newTenant">): Promise<() => Promise<void>> {
    const newTenant = (): Promise<TestTenant> =>
      gateway.newTenant({ concurrent_tool_calls: 200, requests_per_minute: 100_000 });
    const users: (() => Promise<void>)[] = [];
    for (const [scheme, fixture, backEnd] of backEnds) {
      const tenant = await newTenant();
      users.push(() => useUp(tenant, scheme, fixture, backEnd));
    }
    const owner = await newTenant();
    users.push(() => useUpPrograms(owner));
    return async () => void (await Promise.all(users.map((use) => use())));
  }

  test("in a process that goes on, however often they are used and fail", async () => {
    const gateway = await startGatewayProcess({ env: { TOOLYARD_MCP_COMMANDS: commands } });
    try {
      const everything = await prepare(gateway);
      await everything();
      const before = await heldBy(gateway.pid);
      for (let round = 0; round < 2; round += 1) await everything();
      // Connections that are kept for the next request, to as many places as before.
      await expect
        .poll(() => heldBy(gateway.pid).then(({ sockets }) => sockets))
        .toBeLessThanOrEqual(before.sockets + 3);
      // A program that hangs has 15 s to greet, for whoever else asks meanwhile; its call was over before.
      await expect.poll(() => heldBy(gateway.pid).then(({ children }) => children), { timeout: 30_000 }).toEqual([]);
    } finally {
      await gateway.close();
    }
  }, 180_000);

  test("in a process that closes them", async () => {
    const kinds = ["TCPSocketWrap", "TLSWrap", "TCPServerWrap", "PipeWrap", "ProcessWrap"];
    const active = (): Record<string, number> => {
      const all = process.getActiveResourcesInfo();
      return Object.fromEntries(kinds.map((kind) => [kind, all.filter((name) => name === kind).length]));
    };
    const before = active();
    const gateway = await startGateway({ env: { TOOLYARD_MCP_COMMANDS: commands }, timing: { cancelPollMs: 50 } });
    const everything = await prepare(gateway);
    await everything();
    expect(active()["TCPServerWrap"]).toBeGreaterThan(before["TCPServerWrap"] ?? 0);
    await gateway.close();
    await expect.poll(() => kinds.filter((kind) => (active()[kind] ?? 0) > (before[kind] ?? 0))).toEqual([]);
  }, 120_000);
});

interface Held {
  readonly sockets: number;
  readonly children: readonly string[];
}

async function heldBy(pid: number): Promise<Held> {
  const names = await readdir(`/proc/${pid}/fd`);
  const links = await Promise.all(names.map((name) => readlink(`/proc/${pid}/fd/${name}`).catch(() => "")));
  const children = await readFile(`/proc/${pid}/task/${pid}/children`, "utf8");
  return {
    sockets: links.filter((link) => link.startsWith("socket:")).length,
    children: children.split(" ").filter((child) => child !== ""),
  };
}
