/** What only functions can get wrong: streams through the runtime, environments that are frozen, cut or lost. */
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { startDatabaseProxy, type DatabaseProxy } from "../support/database-proxy.ts";
import { createDriver, type GatewayDriver, type TestTenant } from "../support/gateway-client.ts";
import { deploy, startServices, type Services } from "../support/homes.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { readingTool } from "../support/http-tools.ts";
import { connectSession, connectStateless, rawClient } from "../support/mcp-clients.ts";
import { calls, chunk, done, startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { sseEvents } from "../support/sse.ts";
import { verifies } from "../support/verifies.ts";
import { openQueues, startDeployment, type Deployment, type Queues } from "./deployment.ts";

/** Node's servers close a connection that has rested for 5 s. */
const longerThanConnectionsRestMs = 6_000;
const messages = [{ role: "user", content: "hello" }];

describe.skipIf(inject("runtimeClientMissing") !== "")("functions under the runtime client", () => {
  let services: Services;
  let proxy: DatabaseProxy;
  let queues: Queues;
  let deployment: Deployment;
  let driver: GatewayDriver;
  let tenant: TestTenant;
  let llm: LlmStub;
  let backEnd: HttpStub;

  beforeAll(async () => {
    [services, llm, backEnd] = await Promise.all([startServices(), startLlmStub(), startHttpStub()]);
    await deploy(services);
    proxy = await startDatabaseProxy({ target: services.database.url });
    queues = await openQueues(services.env);
    deployment = await startDeployment({
      env: { ...services.env, DATABASE_URL: proxy.url, TOOLYARD_EGRESS_ALLOW: "127.0.0.0/8" },
      queues,
      // One each, so that it shows when one is lost.
      concurrency: 1,
      visibilityMs: 10_000,
      tickEveryMs: 60_000,
    });
    driver = createDriver(deployment.url, services.adminKey);
    tenant = await driver.newTenant();
    await tenant.addProvider(llm.url);
    await tenant.addPlugin(readingTool(backEnd, "look"));
  });
  afterAll(async () => {
    await deployment.close();
    await queues.close();
    await Promise.all([proxy.close(), llm.close(), backEnd.close()]);
    await services.close();
  });

  const look = { name: "look", arguments: { q: "x" } };

  test(`a piece of an answer is with the client before the model says the next one ${verifies("CHAT-6")}`, async () => {
    const pieces = ["one ", "two ", "three ", "four ", "five "];
    const read = pieces.map(() => Promise.withResolvers<void>());
    const speaking = await startHttpStub(async (_request, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      for (const [index, piece] of pieces.entries()) {
        response.write(chunk({ content: piece }));
        await read[index]?.promise;
      }
      response.end([chunk({}, "stop"), done].join(""));
      return undefined;
    });
    await tenant.addProvider(`${speaking.url}/v1`, { models: { "speaking-1": "speaking-1" } });
    const response = await fetch(`${deployment.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${tenant.key}`, "content-type": "application/json" },
      body: JSON.stringify({ model: "speaking-1", messages, stream: true }),
    });
    const arrivals: number[] = [];
    let heard = "";
    for await (const part of response.body ?? []) {
      heard += Buffer.from(part).toString("utf8");
      while (arrivals.length < pieces.length && heard.includes(`"content":"${pieces[arrivals.length]}"`)) {
        read[arrivals.length]?.resolve();
        arrivals.push(performance.now());
      }
    }
    expect(heard.trimEnd()).toMatch(/data: \[DONE\]$/);
    expect(arrivals).toHaveLength(pieces.length);
    expect(new Set(arrivals).size).toBe(pieces.length);
    expect(arrivals).toEqual(arrivals.toSorted((a, b) => a - b));
    await speaking.close();
  });

  test(`a model that breaks off after its first words costs no environment ${verifies("CHAT-6")}`, async () => {
    for (let turn = 0; turn < 2; turn += 1) {
      llm.script({ writes: [chunk({ content: "so far" })], cut: true });
      const { status, text: stream } = await tenant.client.send("post", "/v1/chat/completions", {
        model: "stub-1",
        messages,
        stream: true,
      });
      expect(status).toBe(200);
      expect(stream).toContain("so far");
      expect(JSON.stringify(sseEvents(stream))).toContain('"error"');
    }
    llm.script(text("still here"));
    const answer = await tenant.client.post("/v1/chat/completions", { model: "stub-1", messages });
    expect(answer.choices[0].message.content).toBe("still here");
    expect(deployment.functions.chat.started).toBe(1);
  });

  test(`MCP clients of both eras list and call the tools through the streaming function ${verifies("CHAT-11")}`, async () => {
    backEnd.answer = () => ({ body: '{"seen":"x"}' });
    await tenant.addPlugin(readingTool(backEnd, "look_slowly", { timeout_ms: 90_000 }));
    for (const connect of [connectSession, connectStateless]) {
      const client = await connect({ url: `${deployment.url}/mcp`, key: tenant.key });
      expect((await client.listTools()).tools.map(({ name }) => name)).toContain("look");
      expect(await client.callTool(look)).toMatchObject({ structuredContent: { seen: "x" } });
      // This one a worker carries out while the function waits.
      expect(await client.callTool({ ...look, name: "look_slowly" })).toMatchObject({
        structuredContent: { seen: "x" },
      });
      await client.close();
    }
    const raw = rawClient(`${deployment.url}/mcp`, tenant.key);
    const { answer } = await raw.ask("server/discover");
    expect(answer.result.capabilities.tools).toEqual({});
    const listened = await raw.ask("subscriptions/listen", { notifications: { toolsListChanged: true } });
    expect(listened.messages).toMatchObject([
      { params: { notifications: {} } },
      { result: { resultType: "complete" } },
    ]);
  });

  test("an environment that is killed in the middle of a stream breaks it off, and the next one serves", async () => {
    const speaking = await startHttpStub((_request, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(chunk({ content: "so far" }));
      return undefined;
    });
    await tenant.addProvider(`${speaking.url}/v1`, { models: { "hanging-1": "hanging-1" } });
    const response = await fetch(`${deployment.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${tenant.key}`, "content-type": "application/json" },
      body: JSON.stringify({ model: "hanging-1", messages, stream: true }),
    });
    const reading = async (): Promise<void> => {
      for await (const part of response.body ?? []) {
        if (!Buffer.from(part).includes("so far")) continue;
        for (const environment of deployment.functions.chat.environments) environment.kill();
      }
    };
    await expect(reading()).rejects.toThrow(/terminated/);
    llm.script(text("the next one"));
    const answer = await tenant.client.post("/v1/chat/completions", { model: "stub-1", messages });
    expect(answer.choices[0].message.content).toBe("the next one");
    await speaking.close();
  });

  test("an environment that was frozen for longer than its connections last goes on without an error", async () => {
    backEnd.answer = () => ({ body: "{}" });
    llm.respond((body) => ((body["messages"] as readonly unknown[]).length === 1 ? calls(look) : text("found it")));
    const started = deployment.functions.chat.started;
    for (let turn = 0; turn < 3; turn += 1) {
      if (turn > 0) await sleep(longerThanConnectionsRestMs);
      const { status, json } = await tenant.client.send("post", "/v1/chat/completions", { model: "stub-1", messages });
      expect([status, json?.choices?.[0].message.content]).toEqual([200, "found it"]);
      expect((await tenant.client.send("post", "/v1/tools/invoke", look)).status).toBe(200);
    }
    expect(deployment.functions.chat.started).toBe(started);
  });

  test("a request that is too large for a function is refused by what stands before it", async () => {
    const response = await fetch(`${deployment.url}/v1/tools/invoke`, {
      method: "POST",
      headers: { authorization: `Bearer ${tenant.key}`, "content-type": "application/json" },
      body: JSON.stringify({ ...look, padding: "x".repeat(5_000_000) }),
    });
    expect(response.status).toBe(413);
    expect((await tenant.client.send("post", "/v1/tools/invoke", look)).status).toBe(200);
  });
});
