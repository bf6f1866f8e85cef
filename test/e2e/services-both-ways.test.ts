/**
 * Every operation of every scheme with tool services, through `POST /v1/tools/invoke` and through a chat whose
 * model calls it, at every back end that can be started (design "One address"). What is absent is skipped with
 * the reason; `npm run test:services -- --required` fails for it.
 */
import { mkdtemp, realpath, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { bucketTools } from "@toolyard/core/object-storage/tools";
import { serviceSchemes } from "@toolyard/core/tools/schemes/index";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { calls, startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { servicePeers } from "../support/service-peers/index.ts";
import { mcpCommands } from "../support/service-peers/mcp.ts";
import { whySkipped, type PeerOperation, type RunningPeer, type ServicePeer } from "../support/service-peers/peer.ts";
import { verifies } from "../support/verifies.ts";

let home: string;
let gateway: Gateway;
let llm: LlmStub;
beforeAll(async () => {
  home = await realpath(await mkdtemp(join(tmpdir(), "toolyard-peers-")));
  gateway = await startGateway({ env: { TOOLYARD_MCP_COMMANDS: mcpCommands(home) } });
  llm = await startLlmStub();
});
afterAll(async () => {
  await gateway.close();
  await llm.close();
  await rm(home, { recursive: true, force: true });
});

test.each(Object.keys(serviceSchemes))("%s:// has a back end in this suite", (scheme) => {
  expect(servicePeers.map((peer) => peer.scheme)).toContain(scheme);
});

for (const peer of servicePeers) {
  const { scheme, name } = peer;
  const why = whySkipped(peer);
  if (why !== undefined) console.log(`Skipped: ${scheme}:// with ${name}: ${why}.`);
  const reason = why === undefined ? "" : ` (skipped: ${why})`;
  describe.skipIf(why !== undefined)(
    `${scheme}:// with ${name}${reason} ${verifies("URI-1", "CHAT-1", "CFG-1")}`,
    () => {
      describePeer(peer);
    },
  );
}

type Way = (tenant: TestTenant, service: Json, operation: PeerOperation) => Promise<string>;

const ways: Readonly<Record<string, Way>> = {
  "through invoke": async ({ client }, service, { tool, arguments: args }) => {
    const uri = `${service.uri}/${tool.split("/").map(encodeURIComponent).join("/")}`;
    const { status, json, text: answer } = await client.send("post", "/v1/tools/invoke", { uri, arguments: args });
    expect(status, answer).toBe(200);
    return json.content;
  },
  "through chat": async ({ client }, service, { tool, arguments: args }) => {
    const { data } = await client.get("/v1/tools");
    const uri = `${service.uri}/${tool}`;
    const known = data.find((each: Json) => decodeURIComponent(each.uri) === uri);
    expect(known, `${uri} is not among the tools`).toBeDefined();
    llm.requests.length = 0;
    llm.script(calls({ name: known.name, arguments: args }), text("done"));
    const messages = [{ role: "user", content: "do it" }];
    const answer = await client.post("/v1/chat/completions", { model: "stub-1", messages });
    expect(answer.choices[0].message.content).toBe("done");
    const offered = (llm.requests[0]?.["tools"] ?? []) as Json[];
    expect(offered.map((each) => each.function.name)).toContain(known.name);
    const result = ((llm.requests.at(-1)?.["messages"] ?? []) as Json[]).at(-1);
    expect(result.role).toBe("tool");
    return result.content;
  },
};

function describePeer(peer: ServicePeer): void {
  let starting: Promise<RunningPeer> | undefined;
  let running: RunningPeer;
  let tenant: TestTenant;
  let service: Json;
  beforeAll(async () => {
    if (peer.absent !== undefined) throw new Error(peer.absent);
    starting = peer.start({ home });
    running = await starting;
    tenant = await gateway.newTenant();
    await tenant.addProvider(llm.url);
    const { scheme } = peer;
    service = await tenant.client.post("/v1/tool-services", { scheme, service_id: "peer", config: running.config });
    // Brokers take their time to start.
  }, 400_000);
  // Also of a back end that was too slow for the hook above.
  afterAll(async () => (await starting)?.close());

  test("has been given every operation", async () => {
    const { data } = await tenant.client.get(`/v1/tool-services/${service.id}/tools`);
    const ids = data.map(({ uri }: Json) => decodeURIComponent(uri.slice(`${service.uri}/`.length)));
    const used = [...new Set(running.operations.map(({ tool }) => tool))];
    expect(ids).toEqual(expect.arrayContaining(used));
    // Servers may have more than is asked of them; of what this gateway itself makes tools of nothing is left out.
    const ofOthers = peer.scheme === "mcp" || peer.scheme === "svc";
    const all = peer.scheme === "oss" ? bucketTools.map(({ id }) => id) : ids;
    expect(used.toSorted()).toEqual(ofOthers ? used.toSorted() : all.toSorted());
  });

  test.each(Object.entries(ways))("answers %s", async (_way, carryOut) => {
    // Of what leaves nothing at the back end.
    let counted = 0;
    for (const operation of running.operations) {
      const { what = operation.tool, gives, count = () => counted } = operation;
      const before = await count();
      const content = await carryOut(tenant, service, operation);
      counted += 1;
      expect(content, what).toMatch(gives);
      expect(await count(), what).toBe(before + 1);
    }
  });

  test("is reached by a test of the connection, and its secrets show nowhere", async () => {
    expect(await tenant.client.post(`/v1/tool-services/${service.id}/test`)).toMatchObject({ ok: true });
  });
}
