/**
 * What is waited for behind API Gateway, which gives up an answer that says nothing for five minutes (here: twelve
 * seconds): what would come later is said in time, or followed.
 */
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { handleMessage } from "@toolyard/core/calls/worker";
import { hashApiKey } from "@toolyard/core/callers/api-key";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createApp } from "../../functions/http/app.ts";
import { createStreamingHandler } from "../../functions/http/lambda.ts";
import type { StreamingHandler } from "../../functions/lambda-runtime.ts";
import { routes } from "../../functions/http/routes/index.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { TestTenant } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { readingTool } from "../support/http-tools.ts";
import { startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { FakeResponseStream, installRuntime } from "../support/response-stream.ts";
import { verifies } from "../support/verifies.ts";

const silenceMs = 12_000;
const messages = [{ role: "user", content: "think" }];

let gateway: Gateway;
let llm: LlmStub;
let backEnd: HttpStub;
let tenant: TestTenant;
let handler: StreamingHandler;
let uninstall: () => void;

beforeAll(async () => {
  [gateway, llm, backEnd] = await Promise.all([startGateway({ requestsOnly: true }), startLlmStub(), startHttpStub()]);
  tenant = await gateway.newTenant();
  await tenant.addProvider(llm.url);
  const { core } = gateway;
  const app = createApp({ core, adminKeyHash: hashApiKey("an-operator's-key"), version: "test" }, routes);
  uninstall = installRuntime();
  handler = createStreamingHandler(app, core.log, { silenceMs });
});
afterAll(async () => {
  uninstall();
  await gateway.close();
  await Promise.all([llm.close(), backEnd.close()]);
});

async function post(path: string, body: string | object): Promise<{ readonly status: number; readonly text: string }> {
  const isText = typeof body === "string";
  const event = {
    httpMethod: "POST",
    path,
    headers: {
      authorization: `Bearer ${tenant.key}`,
      "content-type": isText ? "text/plain" : "application/json",
    },
    body: isText ? body : JSON.stringify(body),
    isBase64Encoded: false,
  };
  const answer = new FakeResponseStream();
  const finished = once(answer, "finish");
  await handler(event, answer, { getRemainingTimeInMillis: () => 330_000 });
  await finished;
  return { status: answer.head?.statusCode ?? 0, text: answer.text };
}

describe("an answer that comes as a whole", () => {
  test(`ends with what it could not wait for, before nobody hears of it ${verifies("CHAT-6")}`, async () => {
    llm.script({ json: {}, delayMs: 6_000 });
    const { status, text: body } = await post("/v1/chat/completions", { model: "stub-1", messages });
    expect(status).toBe(422);
    expect(JSON.parse(body)).toMatchObject({ error: { code: "wall_clock_exceeded" } });
  });

  test("may take as long as any where it is streamed, since it says something meanwhile", async () => {
    llm.respond(async () => {
      await sleep(2_500);
      return text("finally");
    });
    const { status, text: body } = await post("/v1/chat/completions", { model: "stub-1", messages, stream: true });
    expect(status).toBe(200);
    expect(body).toContain("finally");
    expect(body.trimEnd()).toMatch(/data: \[DONE\]$/);
  });
});

describe("a tool", () => {
  test(`that may take longer than an answer is a worker's; its caller is told where to look ${verifies("CHAT-7")}`, async () => {
    backEnd.answer = () => ({ body: '{"seen":true}' });
    await tenant.addPlugin(readingTool(backEnd, "slow", { timeout_ms: silenceMs + 1 }));
    await tenant.addPlugin(readingTool(backEnd, "quick", { timeout_ms: silenceMs }));
    const asked = await post("/v1/tools/invoke", { name: "slow", arguments: { q: "x" } });
    expect(asked.status).toBe(202);
    const { id, url } = JSON.parse(asked.text);
    expect(url).toContain(`/v1/calls/${String(id)}`);
    await handleMessage(gateway.core, { tenant: tenant.id, callId: id });
    expect(await tenant.client.get(`/v1/calls/${String(id)}`)).toMatchObject({ state: "completed" });
    expect((await post("/v1/tools/invoke", { name: "quick", arguments: { q: "x" } })).status).toBe(200);
    const block = (name: string): string =>
      `<<<[TOOL_REQUEST]>>>\ntool_name:「始」${name}「末」,\nq:「始」x「末」\n<<<[END_TOOL_REQUEST]>>>`;
    expect((await post("/v1/human/tool", block("slow"))).status).toBe(202);
    expect((await post("/v1/human/tool", block("quick"))).status).toBe(200);
  });

  test.each([
    ["in what is left of its function's time", 600, 1],
    ["as often as it may where the process lives on", Number.POSITIVE_INFINITY, 3],
  ])(`that does not answer is tried again %s ${verifies("API-5")}`, async (_how, leftMs, tries) => {
    const name = `silent_${tries}`;
    backEnd.answer = ({ target }) => ({ body: "{}", delayMs: target.includes("silent") ? 2_000 : 0 });
    await tenant.addPlugin(readingTool(backEnd, name, { timeout_ms: 400, max_attempts: 3 }));
    const { id } = await tenant.client.post("/v1/tools/invoke", { name, arguments: { q: "x" }, async: true });
    await handleMessage(gateway.core, { tenant: tenant.id, callId: id }, { endsAt: Date.now() + leftMs });
    expect(await tenant.client.get(`/v1/calls/${String(id)}`)).toMatchObject({
      state: "failed",
      error: { code: "tool_timeout" },
    });
    expect(backEnd.requests.filter(({ target }) => target.startsWith(`/${name}`))).toHaveLength(tries);
  });
});
