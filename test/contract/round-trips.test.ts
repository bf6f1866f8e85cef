/** What a distant database costs the repositories of configuration, and what its faults do to them. */
import type { NewAgent } from "@toolyard/core/agents/agent";
import { newId } from "@toolyard/core/ids";
import type { NewBudget } from "@toolyard/core/ports/budgets";
import { usualConfig } from "@toolyard/core/knowledge/config";
import type { KnowledgeSearch } from "@toolyard/core/ports/knowledge-search";
import type { NewPlugin } from "@toolyard/core/ports/plugins";
import type { NewProvider } from "@toolyard/core/ports/providers";
import type { Repos } from "@toolyard/core/ports/repos";
import type { NewToolService } from "@toolyard/core/services/service";
import type { NewVariable } from "@toolyard/core/vcp/placeholders/variable";
import type { NewSchedule } from "@toolyard/core/ports/schedules";
import type { NewSubscription } from "@toolyard/core/subscriptions/subscription";
import type { NewWebhook } from "@toolyard/core/webhooks/webhook";
import { openDatabase } from "@toolyard/db/client";
import { createRepos } from "@toolyard/db/repos/index";
import { openShards, type OpenShards } from "@toolyard/db/shards";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startDatabaseProxy, type DatabaseFault, type DatabaseProxy } from "../support/database-proxy.ts";
import { serverShards, type TestShards } from "../support/databases.ts";
import { remembering } from "../support/query-plans.ts";
import { newTool } from "./calls-fixture.ts";
import { registrationOf, runOf } from "../support/registered-node.ts";

let server: TestShards;
let proxy: DatabaseProxy;
let repos: Repos;
let shards: OpenShards;
const tenant = newId("tenant");
beforeAll(async () => {
  server = await serverShards();
  proxy = await startDatabaseProxy({ target: server.url });
  const database = await openDatabase({ url: proxy.url });
  shards = await openShards(remembering(database, server.asked), async (url) => openDatabase({ url }));
  repos = createRepos(shards);
  await repos.tenants.create({ id: tenant, name: "T", wrappedKey: "k", settings: {} });
});
afterAll(async () => {
  await shards.close();
  await proxy.close();
  await server.close();
});

const page = { limit: 10, order: "asc" } as const;
const everything = { all: true, role: "admin", user: null, business_unit: null } as const;
const document = {
  id: "d",
  name: "d",
  mediaType: "text/plain",
  bytes: 1,
  hash: "h",
  blobKey: "b",
  sourceUrl: null,
  fetchUrl: null,
  metadata: {},
  acl: null,
} as const;
const ingest = () => ({ call: newTool({ state: "queued", async: true }), callerId: "key_1" });
const fence = { knowledgeBase: "kb_1", document: "d", callId: "call_none", attempt: 1 } as const;
const chunkPlace = { documentVersion: 1, indexVersion: 1 } as const;
const garbage = {
  id: 1,
  tenant,
  knowledgeBase: "kb_1",
  document: null,
  upToVersion: null,
  indexVersion: null,
  hasChunks: true,
  blobKey: null,
} as const;
const flowContent = { definition: "{}", hash: "h", refs: [] };
const apiKey = () => {
  const id = newId("apiKey");
  const nothing = { tools: null, userId: null, businessUnit: null, requestsPerMinute: null, concurrentRequests: null };
  return { ...nothing, id, hash: id, name: "K", role: "member", scopes: [], hint: "", expiresAt: null } as const;
};
const issuer = (audience: string) =>
  ({
    id: newId("issuer"),
    issuer: "https://id.example",
    audience,
    jwksUrl: "https://id.example/keys",
    claims: {},
    defaultRole: "member",
    defaultScopes: [],
  }) as const;

const service = (): NewToolService => ({
  id: newId("toolService"),
  scheme: "api",
  serviceId: "crm",
  displayName: null,
  description: null,
  config: {},
  enabled: true,
});

const schedule = (): NewSchedule => ({
  id: newId("schedule"),
  name: null,
  taskId: null,
  given: { field: "rate", value: "1 day" },
  timing: { kind: "rate", every_ms: 86_400_000, first: 1 },
  timeZone: "UTC",
  startAt: null,
  endAt: null,
  misfire: "skip",
  target: "plugin://p",
  task: "sealed",
  deliver: {},
  caller: { kind: "operator", id: "operator", role: "operator", scopes: [], tools: null },
  paused: true,
  nextAt: 1,
});

const upload = { id: "upl_none", path: "a", bytes: 1, mediaType: "text/plain", blobKey: "b" } as const;
const grant = { id: newId("connection"), kind: "client_credentials", userId: null, identity: "i", tool: "t" } as const;
const token = {
  generation: 1,
  sealed: "s",
  scope: null,
  renewable: true,
  usableForMs: 60_000,
  raiseConfig: true,
} as const;

const groupChat = {
  id: "grp_1",
  name: "one",
  mode: "sequential",
  topic: null,
  moderator: null,
  access: "tenant",
  limits: { messages: 1, wall_clock_ms: 1_000, history: 1 },
  ownerId: "key_1",
  members: [],
} as const;
const person = { kind: "user", name: "ann", displayName: null } as const;
const saying = { id: "msg_2", attempt: 1, trigger: "msg_1", position: 1 } as const;
const search: KnowledgeSearch = {
  bases: ["kb_none"],
  reader: { all: true, role: "admin", user: null, business_unit: null },
  conditions: [],
  lists: [
    { kind: "vector", bases: ["kb_none"], vector: Float32Array.of(1), minSimilarity: 0, weight: 1 },
    { kind: "full_text", bases: ["kb_none"], match: '"word"', weight: 1 },
  ],
  candidates: 1,
  limit: 1,
};

const caller = { kind: "operator", id: "operator", role: "operator", scopes: [], tools: null } as const;
const opening = { id: "sock_none", holder: "process", clientType: null, lifetimeMs: 1_000 } as const;
const event = {
  type: "note",
  audience: { kind: "tenant" },
  data: "{}",
  callId: null,
  callerId: null,
  sessionId: null,
} as const;

describe("each function of the configuration's repositories", () => {
  const subscription: NewSubscription = {
    id: "sub_1",
    name: "orders",
    description: null,
    serviceId: "shop",
    topic: "orders",
    target: { uri: "plugin://create_order", arguments: {} },
    options: { format: "json", prefetch: 8, max_open_calls: 100, max_attempts: 3 },
    enabled: true,
    role: "admin",
  };

  const task = { plugin: "P", taskId: "t" };
  const variable: NewVariable = { id: "var_1", kind: "var", name: "VarOne", options: {}, content: "x", hash: "h" };

  /** All there are; those of calls and sessions have suites of their own. */
  type RepoFunctions = {
    [Part in Exclude<keyof Repos, "calls" | "sessions" | "ping">]: `${Part}.${keyof Repos[Part] & string}`;
  }[Exclude<keyof Repos, "calls" | "sessions" | "ping">];
  const functions: Readonly<Record<RepoFunctions | "ping", () => Promise<unknown>>> = {
    "tenants.create": () => repos.tenants.create({ id: newId("tenant"), name: "T", wrappedKey: "k", settings: {} }),
    "tenants.get": () => repos.tenants.get(tenant),
    "tenants.list": () => repos.tenants.list(page),
    "tenants.sampleWrappedKeys": () => repos.tenants.sampleWrappedKeys(1),
    "tenants.update": () => repos.tenants.update(tenant, { name: "U" }),
    "tenants.holdApply": () => repos.tenants.holdApply(tenant, "apply_1", 0),
    "tenants.erase": () => repos.tenants.erase("ten_nobody"),
    "issuers.create": () => repos.issuers.create(tenant, issuer("one")),
    "issuers.get": () => repos.issuers.get(tenant, "iss_none"),
    "issuers.list": () => repos.issuers.list(tenant, page),
    "issuers.update": () => repos.issuers.update(tenant, "iss_none", issuer("one")),
    "issuers.find": () => repos.issuers.find("https://id.example", ["one"]),
    "issuers.delete": () => repos.issuers.delete(tenant, "iss_none"),
    "apiKeys.create": () => repos.apiKeys.create(tenant, apiKey()),
    "apiKeys.get": () => repos.apiKeys.get(tenant, "key_none"),
    "apiKeys.list": () => repos.apiKeys.list(tenant, page),
    "apiKeys.revoke": () => repos.apiKeys.revoke(tenant, "key_none"),
    "plugins.create": () => repos.plugins.create(tenant, plugin("one")),
    "plugins.update": () => repos.plugins.update(tenant, 1, plugin("one")),
    "plugins.setEnabled": () => repos.plugins.setEnabled(tenant, 1, true),
    "plugins.get": () => repos.plugins.get(tenant, 1),
    "plugins.list": () => repos.plugins.list(tenant, page),
    "plugins.delete": () => repos.plugins.delete(tenant, 9_999),
    "plugins.upsertMany": () =>
      repos.plugins.upsertMany(tenant, { create: [plugin("many_1"), plugin("many_2")], update: [], delete: [9_999] }),
    "plugins.mirrorNative": () => repos.plugins.mirrorNative([plugin("native_one"), plugin("native_two")]),
    "credentials.nextVersion": () => repos.credentials.nextVersion(tenant, "K", null),
    "credentials.put": () => repos.credentials.put(tenant, { name: "K", level: "tenant", version: 1, sealed: "s" }),
    "credentials.fetch": () => repos.credentials.fetch(tenant, ["K"], "ann"),
    "credentials.list": () => repos.credentials.list(tenant, page),
    "credentials.all": () => repos.credentials.all(tenant),
    "credentials.delete": () => repos.credentials.delete(tenant, "NONE", null),
    "agents.create": () => repos.agents.create(tenant, newId("agent"), agent("one")),
    "agents.update": () => repos.agents.update(tenant, "agt_none", agent("one")),
    "agents.get": () => repos.agents.get(tenant, "agt_none"),
    "agents.list": () => repos.agents.list(tenant, page),
    "agents.delete": () => repos.agents.delete(tenant, "agt_none"),
    "providers.create": () => repos.providers.create(tenant, newId("provider"), provider("one")),
    "providers.update": () => repos.providers.update(tenant, "prv_none", provider("one")),
    "providers.get": () => repos.providers.get(tenant, "prv_none"),
    "providers.list": () => repos.providers.list(tenant, page),
    "providers.delete": () => repos.providers.delete(tenant, "prv_none"),
    "budgets.create": () => repos.budgets.create(tenant, newId("budget"), budget("one")),
    "budgets.get": () => repos.budgets.get(tenant, "bud_none"),
    "budgets.list": () => repos.budgets.list(tenant, page),
    "budgets.update": () => repos.budgets.update(tenant, "bud_none", { enabled: false }),
    "budgets.delete": () => repos.budgets.delete(tenant, "bud_none"),
    "prices.put": () => repos.prices.put(tenant, []),
    "prices.readOperator": () => repos.prices.readOperator(),
    "prices.putOperator": () => repos.prices.putOperator([]),
    "usage.sum": () => repos.usage.sum(tenant, { groupBy: "day", from: 0, to: Date.now() }, page),
    "oauth.claim": () => repos.oauth.claim(tenant, grant, { holder: "h", leaseMs: 1_000 }),
    "oauth.find": () => repos.oauth.find(tenant, grant),
    "oauth.extendLease": () => repos.oauth.extendLease(tenant, grant.id, { holder: "h", leaseMs: 1_000 }),
    "oauth.releaseLease": () => repos.oauth.releaseLease(tenant, grant.id, "h"),
    "oauth.store": () => repos.oauth.store(tenant, grant.id, token),
    "oauth.discard": () => repos.oauth.discard(tenant, grant.id, 1),
    "oauth.offerLink": () =>
      repos.oauth.offerLink(tenant, grant, { hash: "h", sealed: "s", lifetimeMs: 60_000, leastMs: 1_000 }),
    "oauth.findLink": () => repos.oauth.findLink(tenant, "h"),
    "oauth.takeLink": () => repos.oauth.takeLink(tenant, "h"),
    "oauth.list": () => repos.oauth.list(tenant, page),
    "oauth.get": () => repos.oauth.get(tenant, grant.id),
    "oauth.delete": () => repos.oauth.delete(tenant, "conn_none"),
    "oauth.expire": () => repos.oauth.expire(10),
    "webhooks.create": () => repos.webhooks.create(tenant, webhook()),
    "webhooks.get": () => repos.webhooks.get(tenant, "whk_none"),
    "webhooks.list": () => repos.webhooks.list(tenant, page),
    "webhooks.update": () => repos.webhooks.update(tenant, "whk_none", { enabled: false }),
    "webhooks.delete": () => repos.webhooks.delete(tenant, "whk_none"),
    "webhooks.rotate": () => repos.webhooks.rotate(tenant, "whk_none", { sealed: "s", overlapMs: 1_000 }),
    "webhooks.addTest": () => repos.webhooks.addTest(tenant, "whk_none"),
    "webhooks.deliveries": () => repos.webhooks.deliveries(tenant, "whk_none", page),
    "webhooks.resend": () => repos.webhooks.resend(tenant, "whk_none", "evt_none"),
    "webhooks.claim": () =>
      repos.webhooks.claim({ limit: 10, leaseMs: 1_000, shares: { webhook: 2, tenant: 5 }, underWay: [] }),
    "webhooks.settle": () => repos.webhooks.settle(tenant, "evt_none", 1, { status: 410, error: null, next: "gone" }),
    "services.create": () => repos.services.create(tenant, service()),
    "services.get": () => repos.services.get(tenant, "svc_none"),
    "services.list": () => repos.services.list(tenant, page),
    "services.update": () => repos.services.update(tenant, "svc_none", { enabled: false }),
    "services.delete": () => repos.services.delete(tenant, "svc_none"),
    "services.callsUnderWay": () => repos.services.callsUnderWay(tenant, "api://crm"),
    "breakers.open": () => repos.breakers.open(tenant, { service: "svc_none", version: 1, openMs: 1 }),
    "breakers.claimTrial": () => repos.breakers.claimTrial(tenant, { service: "svc_none", version: 1, trialMs: 1 }),
    "breakers.releaseTrial": () => repos.breakers.releaseTrial(tenant, { service: "svc_none", version: 1 }),
    "breakers.close": () => repos.breakers.close(tenant, { service: "svc_none", version: 1 }),
    "services.saveDiscovered": () => repos.services.saveDiscovered(tenant, "svc_none", 1, { tools: [], at: 1 }),
    "archives.claim": () => repos.archives.claim({ limit: 10, bytes: 1_000, leaseMs: 1_000 }),
    "archives.finish": () => repos.archives.finish(tenant, "arc_none", { bytes: 1, calls: 1 }),
    "archives.discard": () => repos.archives.discard(tenant, "arc_none"),
    "archives.get": () => repos.archives.get(tenant, "arc_none"),
    "archives.list": () => repos.archives.list(tenant, page),
    "archives.takeExpired": () => repos.archives.takeExpired(10),
    "uploads.open": () =>
      expect(repos.uploads.open(tenant, "none", upload, 1_000)).rejects.toMatchObject({ code: "session_not_found" }),
    "uploads.get": () => repos.uploads.get(tenant, "none", "upl_none"),
    "uploads.complete": () => repos.uploads.complete(tenant, "none", "upl_none", { replace: false }),
    "uploads.giveUp": () => repos.uploads.giveUp(tenant, "none", "upl_none"),
    "uploads.takeExpired": () => repos.uploads.takeExpired({ limit: 10, afterMs: 0 }),
    "uploads.end": () => repos.uploads.end(tenant, "upl_none"),
    "uploads.delete": () => repos.uploads.delete(tenant, "upl_none"),
    "connections.issueTicket": () =>
      repos.connections.issueTicket(tenant, { hash: "h", caller, until: null, lifetimeMs: 1_000 }),
    "connections.connect": () => repos.connections.connect(tenant, { ...opening, caller, until: null }),
    "connections.connectWithTicket": () => repos.connections.connectWithTicket(tenant, "none", opening),
    "connections.find": () => repos.connections.find("sock_none"),
    "connections.findSpeaker": () => repos.connections.findSpeaker("sock_none"),
    "connections.subscribe": () => repos.connections.subscribe(tenant, "sock_none", "s", { topic: "calls" }),
    "connections.unsubscribe": () => repos.connections.unsubscribe(tenant, "sock_none", "s"),
    "connections.touch": () => repos.connections.touch(tenant, "sock_none", { lifetimeMs: 1_000, counts: true }),
    "connections.remove": () => repos.connections.remove(tenant, "sock_none"),
    "connections.missed": () => repos.connections.missed(tenant, "conn_1", 10),
    "connections.ofType": () => repos.connections.ofType(tenant, "VCPLog"),
    "connections.renew": () => repos.connections.renew("process", 1_000),
    "connections.removeHeldBy": () => repos.connections.removeHeldBy("process"),
    "connections.publish": () => repos.connections.publish(tenant, [event, event]),
    "connections.heldEvents": () => repos.connections.heldEvents("process", new Map([[tenant, 0]]), 10),
    "connections.claim": () => repos.connections.claim({ limit: 10, leaseMs: 1_000 }),
    "connections.settle": () => repos.connections.settle(tenant, [{ seq: 1, attempt: 1 }]),
    "nodes.register": () => repos.nodes.register(tenant, registrationOf("n")),
    "nodes.remove": () => repos.nodes.remove(tenant, "none"),
    "nodes.get": () => repos.nodes.get(tenant, "none"),
    "nodes.list": () => repos.nodes.list(tenant, page),
    "nodes.offer": () => repos.nodes.offer(tenant, runOf("none")),
    "nodes.run": () => repos.nodes.run(tenant, "nrun_none"),
    "nodes.accept": () => repos.nodes.accept(tenant, "nrun_none", "i", 1_000),
    "nodes.extend": () => repos.nodes.extend(tenant, "i", ["nrun_none"], 1_000),
    "nodes.end": () => repos.nodes.end(tenant, "nrun_none", "i", "{}"),
    "nodes.withdraw": () => repos.nodes.withdraw(tenant, "nrun_none"),
    "nodes.cancelCall": () => repos.nodes.cancelCall(tenant, "call_none"),
    "nodes.late": () => repos.nodes.late(10),
    "nodes.settle": () => repos.nodes.settle(tenant, "nrun_none"),
    "nodes.expire": () => repos.nodes.expire(10),
    "flowRuns.load": () => repos.flowRuns.load(tenant, "call_none"),
    "flowRuns.write": () =>
      repos.flowRuns.write(tenant, {
        run: "call_none",
        attempt: 1,
        steps: [],
        calls: [],
        concurrency: 1,
        ends: [],
        taken: [],
      }),
    "flowRuns.changes": () => repos.flowRuns.changes(tenant, "call_none", 0, 10),
    "flowRuns.signal": () =>
      repos.flowRuns.signal(tenant, "call_none", { token: "t", name: "n", payload: { sealed: "" } }),
    "flowRuns.lastDecided": () => repos.flowRuns.lastDecided(tenant, "call_none"),
    "flowRuns.recordWithSteps": () =>
      repos.flowRuns.recordWithSteps(tenant, "key_1", newTool({ state: "queued", async: true }), []),
    "schedules.create": () => repos.schedules.create(tenant, schedule()),
    "schedules.get": () => repos.schedules.get(tenant, "sched_none"),
    "schedules.list": () => repos.schedules.list(tenant, page),
    "schedules.targets": () => repos.schedules.targets(tenant),
    "schedules.due": () => repos.schedules.due({ limit: 10, aheadMs: 1_000 }),
    "schedules.take": () =>
      repos.schedules.take(tenant, [
        {
          id: "sched_none",
          dueAt: 1,
          nextAt: null,
          takenAt: 1,
          missedAt: null,
          callerId: "key_none",
          firings: [],
        },
      ]),
    "schedules.pause": () => repos.schedules.pause(tenant, "sched_none"),
    "schedules.resume": () => repos.schedules.resume(tenant, "sched_none", 1),
    "schedules.delete": () => repos.schedules.delete(tenant, "sched_none"),
    "subscriptions.create": () => repos.subscriptions.create(tenant, subscription),
    "subscriptions.update": () => repos.subscriptions.update(tenant, "sub_none", { enabled: false }),
    "subscriptions.get": () => repos.subscriptions.get(tenant, "sub_none"),
    "subscriptions.list": () => repos.subscriptions.list(tenant, page),
    "subscriptions.delete": () => repos.subscriptions.delete(tenant, "sub_none"),
    "subscriptions.all": () => repos.subscriptions.all(tenant),
    "subscriptions.hold": () =>
      repos.subscriptions.hold(tenant, {
        instance: "i",
        node: "n",
        connectionId: "c",
        leaseMs: 1_000,
        wanted: [],
        reports: [],
      }),
    "subscriptions.release": () => repos.subscriptions.release(tenant, "i"),
    "subscriptions.holders": () => repos.subscriptions.holders(tenant, "sub_none"),
    "subscriptions.begin": () =>
      repos.subscriptions.begin(tenant, { subscription: "sub_none", key: "k", instance: "i", lane: "l" }),
    "subscriptions.fail": () =>
      repos.subscriptions.fail(tenant, {
        id: "fmsg_1",
        subscription: subscription.id,
        key: "k",
        messageId: null,
        code: "invalid_json",
        message: "It is not JSON.",
        maxAttempts: 3,
      }),
    "subscriptions.recover": () => repos.subscriptions.recover(tenant, "sub_none", "k"),
    "subscriptions.failed": () => repos.subscriptions.failed(tenant, "sub_none", page),
    "subscriptions.expire": () => repos.subscriptions.expire(10),
    "knowledge.createBase": () =>
      repos.knowledge.createBase(tenant, { id: "kb_1", name: "kb", config: usualConfig }, 10),
    "knowledge.getBase": () => repos.knowledge.getBase(tenant, "kb"),
    "knowledge.listBases": () => repos.knowledge.listBases(tenant, page),
    "knowledge.updateBase": () =>
      repos.knowledge.updateBase(tenant, "kb_1", {
        expectedConfigVersion: 1,
        config: usualConfig,
        nextConfig: null,
        rebuild: null,
      }),
    "knowledge.announceBlob": () => repos.knowledge.announceBlob(tenant, "kb_1", "blob", 1_000),
    "knowledge.putDocument": () =>
      repos.knowledge.putDocument(tenant, "kb_1", document, { ...ingest(), most: { documents: 10, bytes: 1_000 } }),
    "knowledge.getDocument": () => repos.knowledge.getDocument(tenant, "kb_1", "d", everything),
    "knowledge.listDocuments": () => repos.knowledge.listDocuments(tenant, "kb_1", { ...page, reader: everything }),
    "knowledge.retryDocument": () => repos.knowledge.retryDocument(tenant, "kb_1", "d", ingest()),
    "knowledge.openIngest": () => repos.knowledge.openIngest(tenant, fence),
    "knowledge.changeIngest": () => repos.knowledge.changeIngest(tenant, fence, { state: "chunking" }),
    "knowledge.countChunks": () => repos.knowledge.countChunks(tenant, fence, chunkPlace),
    "knowledge.writeChunks": () =>
      repos.knowledge.writeChunks(tenant, fence, chunkPlace, [
        { ordinal: 0, spanStart: 0, spanEnd: 1, heading: "", text: "a", ftsText: "a", embedding: null },
      ]),
    "knowledge.serveVersion": () => repos.knowledge.serveVersion(tenant, fence, chunkPlace, 1),
    "knowledge.buildVersion": () => repos.knowledge.buildVersion(tenant, fence, chunkPlace, 1),
    "knowledge.finishIngest": () => repos.knowledge.finishIngest(tenant, fence, { error: null }),
    "knowledge.listToBuild": () => repos.knowledge.listToBuild(tenant, "kb_1", 10),
    "knowledge.queueToBuild": () =>
      repos.knowledge.queueToBuild(tenant, "kb_1", [{ document: "d", call: ingest().call }], "key_1"),
    "knowledge.takeGarbage": () => repos.knowledge.takeGarbage({ limit: 10, claimMs: 1_000 }),
    "knowledge.deleteGarbageChunks": () => repos.knowledge.deleteGarbageChunks(garbage, 10),
    "knowledge.deleteGarbage": () => repos.knowledge.deleteGarbage(garbage),
    "knowledge.deleteDocument": () => repos.knowledge.deleteDocument(tenant, "kb_1", "d"),
    "knowledge.deleteBase": () => repos.knowledge.deleteBase(tenant, "kb_1"),
    "flows.create": () => repos.flows.create(tenant, { ...flowContent, id: "flow_1", name: "one", enabled: true }),
    "flows.get": () => repos.flows.get(tenant, "flow_1"),
    "flows.list": () => repos.flows.list(tenant, page),
    "flows.update": () => repos.flows.update(tenant, "flow_1", { enabled: false }),
    "flows.publish": () =>
      repos.flows.publish(tenant, "flow_1", {
        ...flowContent,
        description: "d",
        input: {},
        effect: "read",
        publishedBy: "key_1",
        revision: 2,
      }),
    "flows.versions": () => repos.flows.versions(tenant, "flow_1", page),
    "flows.version": () => repos.flows.version(tenant, "flow_1", 1),
    "flows.definition": () => repos.flows.definition(tenant, "h"),
    "flows.references": () => repos.flows.references(tenant),
    "flows.createHook": () =>
      repos.flows.createHook(tenant, {
        id: "fhk_1",
        flowId: "flow_1",
        isShipped: false,
        name: "h",
        role: "member",
        tokenHash: "t",
        hint: "t",
        sealed: null,
      }),
    "flows.listHooks": () => repos.flows.listHooks(tenant, { flowId: "flow_1", isShipped: false }, page),
    "flows.updateHook": () => repos.flows.updateHook(tenant, "flow_1", "fhk_1", { enabled: false }),
    "flows.openHook": () => repos.flows.openHook(tenant, "flow_1", "t"),
    "flows.deleteHook": () => repos.flows.deleteHook(tenant, "flow_1", "fhk_1"),
    "flows.delete": () => repos.flows.delete(tenant, "flow_1"),
    "tavern.put": () =>
      repos.tavern.put(tenant, { id: "tav_1", kind: "preset", name: "one", hash: "h", content: "{}" }),
    "tavern.contents": () => repos.tavern.contents(tenant, ["tav_1"]),
    "tavern.delete": () => repos.tavern.delete(tenant, "preset", "none"),
    "groupChats.create": () => repos.groupChats.create(tenant, groupChat),
    "groupChats.get": () => repos.groupChats.get(tenant, groupChat.id),
    "groupChats.namingAgent": () => repos.groupChats.namingAgent(tenant, "ada"),
    "groupChats.list": () => repos.groupChats.list(tenant, {}, page),
    "groupChats.update": () => repos.groupChats.update(tenant, groupChat.id, { name: "other" }),
    "groupChats.join": () => repos.groupChats.join(tenant, groupChat.id, person),
    "groupChats.leave": () => repos.groupChats.leave(tenant, groupChat.id, person),
    "groupChats.say": () =>
      repos.groupChats.say(tenant, groupChat.id, { id: "msg_1", turn: "call_1", author: person, content: "c" }),
    "groupChats.begin": () => repos.groupChats.begin(tenant, groupChat.id, { id: "call_1", redo: false }),
    "groupChats.open": () =>
      repos.groupChats.open(tenant, groupChat.id, { ...saying, turn: "call_1", author: person, reason: null }),
    "groupChats.note": () => repos.groupChats.note(tenant, { ...saying, callId: null, content: "c" }),
    "groupChats.close": () =>
      repos.groupChats.close(tenant, groupChat.id, {
        ...saying,
        state: "completed",
        content: "c",
        error: null,
        callId: null,
        readOutside: false,
      }),
    "groupChats.end": () => repos.groupChats.end(tenant, groupChat.id, { id: "call_1", attempt: 1 }),
    "groupChats.messages": () => repos.groupChats.messages(tenant, groupChat.id, { superseded: true }, page),
    "groupChats.message": () => repos.groupChats.message(tenant, groupChat.id, "msg_1"),
    "groupChats.turn": () => repos.groupChats.turn(tenant, groupChat.id, "call_1"),
    "groupChats.delete": () => repos.groupChats.delete(tenant, groupChat.id),
    "knowledgeSearch.find": () => repos.knowledgeSearch.find(tenant, "all"),
    "knowledgeSearch.search": () => repos.knowledgeSearch.search(tenant, search),
    "variables.create": () => repos.variables.create(tenant, variable),
    "variables.putAll": () => repos.variables.putAll(tenant, [{ ...variable, id: "var_2", name: "VarTwo" }]),
    "variables.update": () => repos.variables.update(tenant, "var_1", { position: 2 }),
    "variables.get": () => repos.variables.get(tenant, "var_1"),
    "variables.list": () => repos.variables.list(tenant, page),
    "variables.contents": () => repos.variables.contents(tenant, ["var_1"]),
    "variables.delete": () => repos.variables.delete(tenant, "var_1"),
    "vcpCallbacks.open": () =>
      repos.vcpCallbacks.open(tenant, {
        callId: "call_1",
        attempt: 1,
        callerId: "key_1",
        userId: null,
        sessionId: null,
        hash: "h",
        plugin: "P",
        lifetimeMs: 1_000,
        keptMs: 1_000,
      }),
    "vcpCallbacks.find": () => repos.vcpCallbacks.find(tenant, "h"),
    "vcpCallbacks.bind": () => repos.vcpCallbacks.bind(tenant, { callId: "call_1", attempt: 1 }, task),
    "vcpCallbacks.answer": () => repos.vcpCallbacks.answer(tenant, { callId: "call_1", attempt: 1 }, task),
    "vcpCallbacks.task": () => repos.vcpCallbacks.task(tenant, task),
    "vcpCallbacks.complete": () => repos.vcpCallbacks.complete(tenant, task),
    "vcpCallbacks.settle": () => repos.vcpCallbacks.settle(tenant, task),
    "vcpCallbacks.isAnswered": () => repos.vcpCallbacks.isAnswered(tenant, "call_1"),
    "vcpCallbacks.late": () => repos.vcpCallbacks.late(10),
    "vcpCallbacks.stranded": () => repos.vcpCallbacks.stranded(10),
    "vcpCallbacks.passOver": () => repos.vcpCallbacks.passOver(tenant, task),
    "vcpCallbacks.takeExpired": () => repos.vcpCallbacks.takeExpired(10),
    "vcpCallbacks.remove": () => repos.vcpCallbacks.remove(tenant, task),
    "vcpStaticValues.claim": () =>
      repos.vcpStaticValues.claim(tenant, { source: "plugin:p", version: "1", leaseMs: 1_000, freshSince: 0 }),
    "vcpStaticValues.store": () =>
      repos.vcpStaticValues.store(tenant, { source: "plugin:p", version: "1", error: null, nextAt: null }),
    "vcpStaticValues.replace": () => repos.vcpStaticValues.replace(tenant, "node:n", new Map([["a", "b"]])),
    "vcpStaticValues.list": () => repos.vcpStaticValues.list(tenant),
    "vcpStaticValues.due": () => repos.vcpStaticValues.due({ limit: 10, offerAgainMs: 1_000 }),
    "vcpStaticValues.remove": () => repos.vcpStaticValues.remove(tenant, "node:n"),
    "config.load": () => repos.config.load(tenant),
    ping: () => repos.ping({ writes: true }),
  };

  test.for(Object.entries(functions))("%s is one trip", async ([, call]) => {
    const before = proxy.trips();
    await call();
    expect(proxy.trips() - before).toBe(1);
  });
});

test("a thousand plugins at once are a few trips", async () => {
  const create = Array.from({ length: 1_000 }, (_, at) => plugin(`bulk_${at}`));
  const before = proxy.trips();
  expect((await repos.plugins.upsertMany(tenant, { create, update: [], delete: [] })).size).toBe(1_000);
  expect(proxy.trips() - before).toBe(4);
});

describe.for<DatabaseFault>([{ kind: "lost-before" }, { kind: "lost-after" }, { kind: "busy" }])(
  "where a trip ends with $kind",
  (fault) => {
    const afterFault = <T>(call: () => Promise<T>): Promise<T> => {
      proxy.faults.push(fault);
      return call();
    };

    test("creations with an id of their own happen once", async () => {
      const id = newId("tenant");
      await afterFault(() => repos.tenants.create({ id, name: "T", wrappedKey: id, settings: {} }));
      await afterFault(() => repos.providers.create(id, newId("provider"), provider("main")));
      await afterFault(() => repos.apiKeys.create(id, apiKey()));
      await afterFault(() => repos.issuers.create(id, issuer(fault.kind)));
      expect((await repos.providers.list(id, page)).data).toHaveLength(1);
      expect((await repos.apiKeys.list(id, page)).data).toHaveLength(1);
      expect((await repos.issuers.list(id, page)).data).toHaveLength(1);
      expect(await repos.tenants.get(id)).toMatchObject({ configVersion: 2 });
    });

    test("a credential is put once, under its own version", async () => {
      const name = `PUT_${fault.kind}`;
      const put = (version: number) =>
        afterFault(() => repos.credentials.put(tenant, { name, level: "tenant", version, sealed: `s${version}` }));
      expect(await put(1)).toMatchObject({ version: 1 });
      expect(await put(2)).toMatchObject({ version: 2 });
    });

    test("many plugins are changed once, and what became of them is told", async () => {
      const { id } = await repos.tenants.create({ id: newId("tenant"), name: "T", wrappedKey: "k", settings: {} });
      const create = [plugin("one"), plugin("two")];
      const ids = await afterFault(() => repos.plugins.upsertMany(id, { create, update: [], delete: [] }));
      expect([...ids.keys()].sort()).toEqual(["one", "two"]);
      const update = [
        { pluginId: ids.get("one") ?? 0, expectedHash: "one", plugin: { ...plugin("one"), hash: "new" } },
      ];
      const again = await afterFault(() =>
        repos.plugins.upsertMany(id, { create: [], update, delete: [ids.get("two") ?? 0] }),
      );
      expect([...again]).toEqual([["one", ids.get("one")]]);
      expect(await repos.config.load(id)).toMatchObject({ plugins: [{ name: "one", hash: "new" }] });
    });

    test("a configuration is loaded all the same", async () => {
      expect(await afterFault(() => repos.config.load(tenant))).toMatchObject({ tenant });
    });
  },
);

describe("a plugin whose creation was answered by a lost connection", () => {
  test.for([
    ["lost-before", 0],
    ["lost-after", 1],
  ] as const)("%s: is reported as uncertain and never made twice", async ([kind, made]) => {
    const name = `plugin_${made}`;
    proxy.faults.push({ kind });
    await expect(repos.plugins.create(tenant, plugin(name))).rejects.toMatchObject({ code: "database_unavailable" });
    const { plugins = [] } = (await repos.config.load(tenant)) ?? {};
    expect(plugins.filter((found) => found.name === name)).toHaveLength(made);
  });
});

function plugin(name: string): NewPlugin {
  return {
    name,
    title: null,
    description: "D",
    iconUrl: null,
    type: "HTTP",
    parameterSchema: { type: "object" },
    executionConfig: { class_name: "Any" },
    enabled: true,
    requiredCredentials: [],
    sensitive: false,
    roles: [],
    hash: name,
  };
}

function budget(scopeId: string): NewBudget {
  const limits = { limitTokens: 1, limitMicros: null } as const;
  return { ...limits, name: "B", scope: "user", scopeId, period: "day", enabled: true };
}

function webhook(): NewWebhook {
  const id = newId("webhook");
  return { id, name: "W", url: "https://hooks.example.com/", events: ["call.completed"], enabled: true, sealed: id };
}

function agent(name: string): NewAgent {
  return {
    name,
    description: "",
    model: null,
    instructions: "",
    tools: [],
    knowledge: [],
    handoffs: [],
    agents: [],
    limits: { handoffs: 8, depth: 3 },
    tool_protocol: "openai",
    parameters: {},
    allow_client_tools: false,
    enabled: true,
  };
}

function provider(name: string): NewProvider {
  return {
    name,
    kind: "openai",
    baseUrl: "https://models.example/v1",
    credential: null,
    models: {},
    passthroughModels: true,
    schemaFamily: null,
    priority: 1,
    enabled: true,
    maxAttempts: 2,
    timeoutMs: 30_000,
  };
}
