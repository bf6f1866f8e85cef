/**
 * What every scheme with tool services does, whatever is behind it: the same refusals, the same errors, the
 * same fate of calls (URI-1 to URI-4, CFG-1 to CFG-3). A scheme without a fixture fails here.
 */
import { isErrorCode } from "@toolyard/core/errors/catalog";
import { serviceSchemes } from "@toolyard/core/tools/schemes/index";
import { isToolScheme, type ToolScheme } from "@toolyard/core/tools/uri";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Client, Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Mood, SchemeBackEnd, SchemeFixture } from "../support/schemes/fixture.ts";
import { schemeFixtures } from "../support/schemes/index.ts";
import { verifies } from "../support/verifies.ts";
import { filesBelow, findSecrets } from "../support/written-secrets.ts";

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

const schemes = Object.keys(serviceSchemes).filter(isToolScheme);

test.each(schemes)("%s:// has a back end for this suite", (scheme) => {
  expect(Object.keys(schemeFixtures)).toContain(scheme);
});

const cases = schemes.flatMap((scheme): readonly (readonly [ToolScheme, SchemeFixture])[] =>
  [schemeFixtures[scheme] ?? []].flat().map((fixture) => [scheme, fixture]),
);

describe.each(cases)(`%s:// ${verifies("URI-1", "URI-4", "CFG-1", "CFG-2", "CFG-3")}`, (scheme, fixture) => {
  let backEnd: SchemeBackEnd;
  let tenant: TestTenant;
  let service: Json;
  const uri = `${scheme}://main/${encodeURIComponent(fixture.tool)}`;

  beforeAll(async () => {
    backEnd = await fixture.start();
    tenant = await gateway.newTenant();
    service = await create(tenant.client, "main", backEnd.config);
  });
  afterAll(() => backEnd.close());

  const create = (client: Client, serviceId: string, config: Json): Promise<Json> =>
    client.post("/v1/tool-services", { scheme, service_id: serviceId, config });
  const invoke = (target: string, args: Json = fixture.arguments, client: Client = tenant.client): Promise<Reply> =>
    client.send("post", "/v1/tools/invoke", { uri: target, arguments: args });

  /** The refusal, which reached no back end. */
  async function refused(request: () => Promise<Reply>): Promise<Json> {
    const before = backEnd.calls();
    const error = await failed(request());
    expect(backEnd.calls()).toBe(before);
    return error;
  }

  /** What `run` finds while the back end is in a mood. */
  async function inMood<Found>(mood: Mood, run: () => Promise<Found>): Promise<Found> {
    backEnd.behave(mood);
    try {
      return await run();
    } finally {
      backEnd.behave("well");
    }
  }

  test("carries out a call", async () => {
    const before = backEnd.calls();
    const { status, json, text } = await invoke(uri);
    expect(status, text).toBe(200);
    expect(json).toMatchObject({ status: "completed", content: expect.any(String) });
    expect(backEnd.calls()).toBe(before + 1);
  });

  test("lists its tools with their parameters", async () => {
    const { data } = await tenant.client.get(`/v1/tool-services/${service.id}/tools`);
    const listed = data.find((tool: Json) => tool.uri === uri);
    expect(listed).toMatchObject({ parameters: { type: "object" }, effect: fixture.effect });
    expect((await tenant.client.get("/v1/tools")).data.map((tool: Json) => tool.uri)).toContain(uri);
  });

  test("refuses an address that is none", async () => {
    expect(await refused(() => invoke(`${scheme}:main/x`))).toMatchObject({ status: 400, code: "invalid_uri" });
    expect(await refused(() => invoke(`${scheme}:///x`))).toMatchObject({ status: 400, code: "invalid_uri" });
  });

  test("refuses an option that it does not take, naming those it does", async () => {
    const error = await refused(() => invoke(`${uri}?colour=red`));
    expect(error).toMatchObject({ status: 400, code: "invalid_uri", param: "colour" });
    expect(error.message).toContain("timeout");
    expect(await refused(() => invoke(`${uri}?timeout=abc`))).toMatchObject({ code: "invalid_uri", param: "timeout" });
    expect(await refused(() => invoke(`${uri}?max-attempts=0`))).toMatchObject({ param: "max-attempts" });
  });

  test("does not find a service or a tool that is not there", async () => {
    const nowhere = `${scheme}://nowhere/${encodeURIComponent(fixture.tool)}`;
    expect(await refused(() => invoke(nowhere))).toMatchObject({ status: 404, code: "tool_not_found" });
    expect(await refused(() => invoke(`${scheme}://main/no%20such%20tool`))).toMatchObject({
      status: 404,
      code: "tool_not_found",
    });
  });

  test("refuses arguments that do not fit before anything leaves", async () => {
    expect(await refused(() => invoke(uri, fixture.badArguments))).toMatchObject({
      status: 400,
      code: "invalid_arguments",
    });
  });

  test("refuses calls while it is disabled, on every instance", async () => {
    const there = other.client(tenant.key);
    await invoke(uri, fixture.arguments, there);
    await tenant.client.post(`/v1/tool-services/${service.id}/disable`);
    expect(await refused(() => invoke(uri, fixture.arguments, there))).toMatchObject({
      status: 403,
      code: "service_disabled",
    });
    await tenant.client.post(`/v1/tool-services/${service.id}/enable`);
    expect((await invoke(uri, fixture.arguments, there)).status).toBe(200);
  });

  test("ends a call at its time limit", async () => {
    const error = await inMood("silent", () => failed(invoke(`${uri}?timeout=${fixture.reachedWithinMs ?? 150}`)));
    const timedOut = { status: 504, code: "tool_timeout" };
    expect(error).toMatchObject(fixture.effect === "read" ? timedOut : { status: 502, code: "outcome_unknown" });
  });

  test("ends a call that is cancelled", async () => {
    const ended = await inMood("silent", async () => {
      const before = backEnd.calls();
      const body = { uri, arguments: fixture.arguments, async: true };
      const { json } = await tenant.client.send("post", "/v1/tools/invoke", body);
      await until(() => backEnd.calls() > before);
      await tenant.client.send("post", `/v1/calls/${json.id}/cancel`);
      const call = (): Promise<Json> => tenant.client.get(`/v1/calls/${json.id}`);
      await until(async () => (await call()).finished_at !== null);
      return call();
    });
    expect(ended.state).toBe(fixture.effect === "read" ? "cancelled" : "unknown");
  });

  test("repeats what was cut off only where that is safe", async () => {
    const outcome = await inMood("broken", async () => {
      const before = backEnd.calls();
      const { status, json } = await invoke(`${uri}?max-attempts=2`);
      return { status, code: json.error?.code, sends: backEnd.calls() - before };
    });
    const repeated = { status: 200, code: undefined, sends: 2 };
    const left = { status: 502, code: "outcome_unknown", sends: 1 };
    expect(outcome).toEqual(fixture.effect === "read" ? repeated : left);
  });

  test("goes on through a back end that comes and goes, and no call happens twice or is lost", async () => {
    const rounds = 10;
    const before = backEnd.calls();
    const outcomes: Json[] = [];
    for (let round = 0; round < rounds; round += 1) {
      backEnd.behave(round % 2 === 0 ? "broken" : "well");
      outcomes.push((await invoke(`${uri}?max-attempts=2`)).json);
    }
    backEnd.behave("well");
    expect((await invoke(uri)).status).toBe(200);
    const sends = backEnd.calls() - before;
    const codes = outcomes.map(({ status, error }) => error?.code ?? status);
    // Reads are sent again after each break; writes are sent once each, and those without an answer say so.
    const isRead = fixture.effect === "read";
    const broken = isRead ? "completed" : "outcome_unknown";
    expect(codes).toEqual(outcomes.map((_outcome, round) => (round % 2 === 0 ? broken : "completed")));
    expect(sends).toBe(isRead ? rounds * 1.5 + 1 : rounds + 1);
  });

  test.runIf(fixture.hugeIs === undefined)("keeps a result of ten megabytes behind a handle", async () => {
    const { json, status } = await inMood("huge", () => invoke(uri));
    expect(status).toBe(200);
    expect(json.handle.bytes).toBeGreaterThanOrEqual(10_000_000);
    expect(json.content.length).toBeLessThan(100_000);
    const whole = await tenant.client.send("get", `/v1/calls/${json.id}/result`);
    expect(whole.bytes.byteLength).toBe(json.handle.bytes);
  });

  test.runIf(fixture.hugeIs !== undefined)("takes ten megabytes for no answer, and does not pass them on", async () => {
    const { json } = await inMood("huge", () => invoke(uri));
    expect(json.error.code).toBe(fixture.hugeIs);
    expect(JSON.stringify(json).length).toBeLessThan(10_000);
  });

  test("says that nobody is there, by call and by test", async () => {
    const { id } = await create(tenant.client, "dead", backEnd.deadConfig);
    const error = await failed(invoke(`${scheme}://dead/${encodeURIComponent(fixture.tool)}`));
    expect(error).toMatchObject({ status: 502, code: "tool_unreachable" });
    const report = await tenant.client.post(`/v1/tool-services/${id}/test`);
    expect(report).toMatchObject({ ok: false, error: { code: "tool_unreachable" } });
    expect(isErrorCode(report.error.code)).toBe(true);
    // Who configures it is told where to look.
    expect(report.error.param).toMatch(/^config\./);
    expect(report.detail).toContain(report.error.param);
    expect(await tenant.client.post(`/v1/tool-services/${service.id}/test`)).toMatchObject({ ok: true });
  });

  test("keeps tenants apart, who may have services of one name", async () => {
    const stranger = await gateway.newTenant();
    expect(await refused(() => invoke(uri, fixture.arguments, stranger.client))).toMatchObject({
      status: 404,
      code: "tool_not_found",
    });
    const theirs = await fixture.start();
    await create(stranger.client, "main", theirs.config);
    const before = backEnd.calls();
    expect((await invoke(uri, fixture.arguments, stranger.client)).status).toBe(200);
    expect([backEnd.calls() - before, theirs.calls()]).toEqual([0, 1]);
    await theirs.close();
  });

  test("takes a new configuration with the next call, on every instance", async () => {
    const there = other.client(tenant.key);
    const successor = await fixture.start();
    await invoke(uri, fixture.arguments, there);
    await tenant.client.expect("patch", `/v1/tool-services/${service.id}`, { config: successor.config });
    const before = backEnd.calls();
    expect((await invoke(uri, fixture.arguments, there)).status).toBe(200);
    expect([backEnd.calls() - before, successor.calls()]).toEqual([0, 1]);
    await tenant.client.expect("patch", `/v1/tool-services/${service.id}`, { config: backEnd.config });
    await successor.close();
  });

  test("shows its secrets nowhere", async () => {
    const shown = await Promise.all(
      ["/v1/tools", "/v1/tool-services", `/v1/tool-services/${service.id}/tools`, "/v1/calls", "/v1/credentials"].map(
        (path) => tenant.client.get(path),
      ),
    );
    const written = [
      { where: "answers", bytes: Buffer.from(JSON.stringify(shown)) },
      { where: "logs", bytes: Buffer.from(JSON.stringify([gateway.logged, other.logged])) },
      ...(await filesBelow(gateway.dataDir)),
    ];
    expect(findSecrets(written, backEnd.secrets)).toEqual([]);
  });

  test("describes its configuration and options to pickers", async () => {
    const { data } = await tenant.client.get("/v1/tool-services/schemes");
    const picked = data.find((each: Json) => each.scheme === scheme);
    expect(picked).toMatchObject({
      title: expect.any(String),
      description: expect.any(String),
      icon: expect.any(String),
    });
    expect(picked.fields.length).toBeGreaterThan(0);
    expect(picked.fields.map(({ name }: Json) => name)).toEqual(Object.keys(picked.config_schema.properties));
    expect(picked.options.map(({ name }: Json) => name)).toContain("timeout");
  });
});

async function failed(request: Promise<Reply>): Promise<Json> {
  const { status, json } = await request;
  expect(isErrorCode(String(json?.error?.code))).toBe(true);
  return { status, ...json.error };
}

async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await condition())) await new Promise((done) => setTimeout(done, 10));
}
