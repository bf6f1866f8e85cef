/**
 * The golden cases of the tool loop against a scripted model over sockets. What a model is sent is compared byte by
 * byte; of a stream, what it says: its envelope is OpenAI's here (docs/vcp-compatibility.md).
 */
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { chunk, done, startLlmStub, usageChunk, type LlmStub, type Round } from "../support/llm-stub.ts";
import { sseEvents } from "../support/sse.ts";
import { verifies } from "../support/verifies.ts";

interface Golden {
  readonly id: string;
  readonly modelReplies: readonly (string | { readonly status: number; readonly json: Json })[];
  readonly request: { readonly path: string; readonly stream?: boolean };
  readonly upstreamCalls: number;
  readonly upstreamMessagesPerCall: readonly Json[];
  readonly clientStatus: number;
  readonly clientBody: Json;
}

const { cases } = JSON.parse(readFileSync(new URL("../fixtures/vcp/loop-cases.json", import.meta.url), "utf8")) as {
  readonly cases: readonly Golden[];
};

let gateway: Gateway;
let llm: LlmStub;
let plugin: HttpStub;
let tenant: TestTenant;

beforeAll(async () => {
  [gateway, llm, plugin] = await Promise.all([startGateway(), startLlmStub(), startHttpStub()]);
  plugin.answer = (request) => {
    const args: Json = JSON.parse(request.body.toString("utf8"));
    return {
      headers: { "content-type": "application/json" },
      body: JSON.stringify(args.mode === "img" ? picture : { args }),
    };
  };
});

afterAll(async () => {
  await Promise.all([gateway.close(), llm.close(), plugin.close()]);
});

const picture = {
  content: [
    { type: "text", text: "pic" },
    { type: "image_url", image_url: { url: "data:image/png;base64,AAAA" } },
  ],
  details: { k: 1 },
};

beforeEach(async () => {
  llm.requests.length = 0;
  tenant = await gateway.newTenant({ max_vcp_loop_stream: 3, max_vcp_loop_non_stream: 3, tool_protocol: "vcp" });
  await tenant.addProvider(llm.url);
  await tenant.addPlugin({
    name: "EchoSync",
    parameters: { type: "object", properties: { a: { type: "string" }, mode: { type: "string" } } },
    execution: { method: "POST", base_url: plugin.url, content_type: "application/json", param_placement: "body" },
  });
});

function roundOf(reply: Golden["modelReplies"][number]): Round {
  if (typeof reply !== "string") return reply;
  const pieces = reply.match(/[^]{1,7}/g) ?? [];
  return {
    writes: [
      chunk({ role: "assistant", content: "" }),
      ...pieces.map((content) => chunk({ content })),
      chunk({}, "stop"),
      usageChunk(4, 3),
      done,
    ],
  };
}

function masked(value: Json): Json {
  const text = JSON.stringify(value).replaceAll(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d/g, "<TS>");
  return JSON.parse(text);
}

/** What a golden stream says to its reader, all chunks together. */
function saidBy(frames: string): string {
  return sseEvents(frames.replaceAll(/\n{3,}/g, "\n\n"))
    .map((event: Json) => event.choices?.[0]?.delta?.content ?? "")
    .join("");
}

const isRefused = ({ id }: Golden): boolean => id.endsWith("upstream-400");
const isAtLimit = ({ id }: Golden): boolean => id.endsWith("max-loop");
const isStream = ({ request }: Golden): boolean => request.stream === true;

async function play({ modelReplies, request }: Golden): Promise<Reply> {
  llm.script(...modelReplies.map(roundOf));
  return tenant.client.send("post", request.path, {
    model: "stub-1",
    messages: [
      { role: "system", content: "sys" },
      { role: "user", content: "hi" },
    ],
    ...(request.stream === true ? { stream: true, stream_options: { include_usage: true } } : {}),
  });
}

function sentToModel(): Json {
  return masked(llm.requests.map(({ messages }) => messages));
}

const named = (list: readonly Golden[]): [string, Golden][] => list.map((golden) => [golden.id, golden]);
const answered = cases.filter((golden) => !isRefused(golden));

describe(`golden cases of the loop ${verifies("VCP-10")}`, () => {
  test.each(named(answered.filter((golden) => !isStream(golden))))("%s", async (_id, golden) => {
    const reply = await play(golden);
    expect(sentToModel()).toEqual(golden.upstreamMessagesPerCall);
    expect(llm.requests.filter(({ tools }) => tools !== undefined)).toEqual([]);
    expect(reply.status).toBe(200);
    const [choice] = reply.json.choices;
    const [expected] = golden.clientBody.choices;
    // The last reply has been paid for; upstream drops it, and bills the first one only.
    const kept = isAtLimit(golden) ? `\n${JSON.parse(JSON.stringify(golden.modelReplies[3])) as string}` : "";
    expect(masked(choice.message.content)).toBe(`${masked(expected.message.content)}${kept}`);
    expect(choice.finish_reason).toBe(expected.finish_reason);
    expect(reply.json.usage.total_tokens).toBe(7 * golden.upstreamCalls);
    expect(reply.json.tool_execution?.stopped_by).toBe(isAtLimit(golden) ? "rounds" : undefined);
  });

  test.each(named(answered.filter(isStream)))("%s", async (_id, golden) => {
    const reply = await play(golden);
    expect(sentToModel()).toEqual(golden.upstreamMessagesPerCall);
    const events = sseEvents(reply.text) as Json[];
    const said = events.map((event) => event.choices?.[0]?.delta?.content ?? "").join("");
    expect(masked(said)).toBe(masked(saidBy(golden.clientBody)));
    const reasons = events.flatMap((event) => event.choices?.[0]?.finish_reason ?? []);
    expect(reasons).toEqual([isAtLimit(golden) ? "length" : "stop"]);
    expect(events.filter((event) => event === "[DONE]")).toHaveLength(1);
    expect(events.at(-2).usage.total_tokens).toBe(7 * golden.upstreamCalls);
  });

  // Upstream's stream says 200 and writes the error into the answer.
  test.each(named(cases.filter(isRefused)))("%s, whose status is kept", async (_id, golden) => {
    const reply = await play(golden);
    expect(sentToModel()).toEqual(golden.upstreamMessagesPerCall);
    expect(reply.status).toBe(400);
    expect(reply.json.error.message).toContain("bad req");
  });
});
