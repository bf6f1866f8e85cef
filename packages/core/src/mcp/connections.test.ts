import { expect, onTestFinished, test } from "vitest";
import { callContext } from "../../../../test/support/call-context.ts";
import { startMcpStub } from "../../../../test/support/mcp-stub.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import { createEgress } from "../blind/egress.ts";
import { HeldConnections } from "../services/held-connections.ts";
import type { ToolService } from "../services/service.ts";
import { McpConnections, type McpEndpoint } from "./connections.ts";
import { HttpPeer } from "./http-peer.ts";

const service: ToolService = {
  id: "svc_1",
  scheme: "mcp",
  serviceId: "crm",
  displayName: null,
  description: null,
  config: {},
  enabled: true,
  version: 1,
  discovered: null,
  createdAt: 0,
  updatedAt: 0,
};

/** Time that passes while somebody sleeps, one sleep after the other. */
function passingTime() {
  let now = 0;
  const slept: number[] = [];
  const clock = {
    now: () => now,
    async sleep(ms: number) {
      slept.push(ms);
      await new Promise((done) => setTimeout(done, 20));
      now += ms;
    },
  };
  return { clock, slept };
}

test(`news of changed tools are followed at once, and less often the longer they go on ${verifies("MCP-2")}`, async () => {
  const stub = await startMcpStub();
  const egress = createEgress({ allowCidrs: ["127.0.0.0/8"] });
  const held = new HeldConnections({ log: () => undefined });
  onTestFinished(async () => {
    await held.close();
    await egress.close();
    await stub.close();
  });
  const peer = new HttpPeer(
    {
      egress,
      credentials: { resolve: () => Promise.resolve(new Map<string, string>()) },
      tokens: { accessToken: () => Promise.reject(new Error("nobody asks for a token")) },
    },
    {
      url: stub.url,
      name: "mcp://crm",
      tool: "mcp://crm/*",
      auth: { authConfig: undefined, literals: new Map() },
      headers: {},
      tls: () => Promise.resolve(undefined),
    },
  );
  const { clock, slept } = passingTime();
  /** How often it had waited before each look. */
  const looks: number[] = [];
  const endpoint: McpEndpoint = {
    service,
    name: "mcp://crm",
    link: { kind: "http", peer },
    era: "session",
    elicitation: "ask",
    isUsersOwn: false,
    isTenants: true,
    refresh() {
      looks.push(slept.length);
      // Others come before the look is over.
      for (let count = 0; count < 10; count += 1) stub.tell("notifications/tools/list_changed");
      return new Promise((done) => setTimeout(done, 20));
    },
  };
  const { signal } = new AbortController();
  await new McpConnections(held, clock).use(endpoint, { ...callContext(), signal }, () => Promise.resolve());
  await expect.poll(() => stub.listeners.size).toBe(1);
  expect(looks).toEqual([]);
  stub.tell("notifications/tools/list_changed");
  await expect.poll(() => slept.length).toBeGreaterThan(4);
  expect(slept.slice(0, 5)).toEqual([5_000, 10_000, 20_000, 40_000, 80_000]);
  expect(looks.slice(0, 5)).toEqual([0, 1, 2, 3, 4]);
});
