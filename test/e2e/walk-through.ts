/**
 * The product from end to end, in any of its homes: an application with the unmodified OpenAI SDK, a
 * tool that is a row, a back end that gets the request byte for byte, a model that sees nothing of it,
 * the record of it all, and secrets that are nowhere but in that request (blind-execution
 * specification, sections 2 to 4).
 */
import { randomBytes } from "node:crypto";
import { gzipSync } from "node:zlib";
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Client, type Json, type Reply, type TestTenant } from "../support/gateway-client.ts";
import type { RunningHome } from "../support/homes.ts";
import { startHttpStub, type HttpStub, type RecordedRequest, type StubReply } from "../support/http-stub.ts";
import { calls, chunk, done, startLlmStub, text, type LlmStub, type Round } from "../support/llm-stub.ts";
import { isLong } from "../support/long.ts";
import { sseEvents } from "../support/sse.ts";
import { verifies } from "../support/verifies.ts";
import { filesBelow, findSecrets, type Written } from "../support/written-secrets.ts";

/** The example of section 2 as it stands, without its comments; only the host is ours. */
const companySearch = `{
  "schema_version": "v1",

  "name": "search_company_basic",
  "description": "根据关键词（如公司名、注册号）查询企业的基础工商信息（成立日期、法人、状态等）。当用户询问某家公司的基本情况时调用。",

  "parameters": {
    "type": "object",
    "properties": {
      "keyword": {
        "type": "string",
        "description": "企业名称关键词，例如'字节跳动'或'腾讯科技'"
      },
      "page_index": {
        "type": "integer",
        "description": "页码，默认为1",
        "default": 1
      }
    },
    "required": ["keyword"]
  },

  "execution": {
    "method": "GET",
    "base_url": "http://api.qichacha.com/ECIV4/Search",
    "content_type": "application/x-www-form-urlencoded",
    "param_placement": "query"
  },

  "auth_config": {
    "type": "api_key",
    "mapping": [
      {
        "source": "QCC_KEY",
        "target": "Token",
        "location": "header"
      },
      {
        "source": "QCC_SECRET",
        "target": "Timespan",
        "location": "header"
      }
    ]
  }
}`;

/** What a model may know of it. */
const companySearchForModels = {
  type: "function",
  function: {
    name: "search_company_basic",
    description:
      "根据关键词（如公司名、注册号）查询企业的基础工商信息（成立日期、法人、状态等）。当用户询问某家公司的基本情况时调用。",
    parameters: {
      type: "object",
      properties: {
        keyword: { type: "string", description: "企业名称关键词，例如'字节跳动'或'腾讯科技'" },
        page_index: { type: "integer", description: "页码，默认为1", default: 1 },
      },
      required: ["keyword"],
    },
  },
};

/** Some hundred answers, from a database and a bucket that are 20 ms away. */
const readsAllWithinMs = 300_000;
const random = (): string => randomBytes(8).toString("hex");

/** Awkward where it is quoted, plain as a host name, not ASCII; one that is only ever sent along, one that comes later. */
const secrets = {
  QCC_KEY: `Qx7"sent%41inel"+&=/\\'<k>${random()}`,
  QCC_SECRET: `ts-plain-${random()}`,
  CRM_TOKEN: `密钥哨兵"%E5+/丁戊${random()}`,
  CRM_PASSWORD: `口令哨兵:&\\"${random()}`,
  MODEL_KEY: `mk"walk%2B+/${random()}`,
  INLINE_KEY: `in"line%2F+/${random()}`,
  NEXT_KEY: `Nx8"next%41+&=/\\'${random()}`,
} as const;
const secretValues = Object.values(secrets);

const company =
  '{"Status":"200","Result":[{"Name":"北京字节跳动科技有限公司","No":110108014811926,"Id":9007199254740993}]}';
const question = "查一下字节跳动";
const user = (content: string): { role: "user"; content: string } => ({ role: "user", content });
const lookUp = calls({ id: "up_1", name: "search_company_basic", arguments: { keyword: "字节跳动" } });

/** The secrets of a request, as its back end reads them. */
function sentSecrets({ headers, target }: RecordedRequest): readonly string[] {
  const authorization = String(headers.authorization ?? "").replace("Basic ", "");
  const basic = Buffer.from(authorization, "base64").toString("utf8");
  const query = new URL(target, "http://localhost").searchParams.get("token");
  return [headers["token"], headers["timespan"], query, authorization, basic, basic.split(/:(.*)/s)[1]].filter(
    (value): value is string => typeof value === "string" && value !== "",
  );
}

const inAscii = (value: unknown): string =>
  JSON.stringify(value).replace(/[^ -~]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
/** One of them that may stand anywhere, if it came. */
const plainOf = (sent: readonly string[]): string => sent.find((value) => value === secrets.QCC_SECRET) ?? "nothing";
const asQuery = (sent: readonly string[]): string => new URLSearchParams({ t: sent.join() }).toString();
const textPlain = { "content-type": "text/plain; charset=utf-8" };

type Echo = (sent: readonly string[]) => StubReply;

/** The one that is kept as a blob. */
const longEcho = "a long text, all along it";

/** Careless ways to answer, each with the secrets that came. */
const echoes: Readonly<Record<string, Echo>> = {
  JSON: (sent) => ({ body: JSON.stringify({ you_sent: sent, [sent[0] ?? ""]: 1 }) }),
  "JSON in ASCII": (sent) => ({ body: inAscii({ you_sent: sent }) }),
  "JSON with escaped slashes": (sent) => ({ body: JSON.stringify(sent).replaceAll("/", "\\/") }),
  "JSON within JSON": (sent) => ({ body: JSON.stringify({ log: JSON.stringify(JSON.stringify(sent)) }) }),
  text: (sent) => ({ headers: textPlain, body: `Your keys are ${sent.join(" and ")}.` }),
  "text without a type": (sent) => ({ headers: { "content-type": "" }, body: sent.join("\n") }),
  "text in UTF-16": (sent) => ({
    headers: { "content-type": "text/plain; charset=utf-16le" },
    body: Buffer.from(sent.join("\n"), "utf16le"),
  }),
  "UTF-8 that calls itself Latin-1": (sent) => ({
    headers: { "content-type": "text/plain; charset=iso-8859-1" },
    body: sent.join("\n"),
  }),
  HTML: (sent) => ({
    headers: { "content-type": "text/html" },
    body: `<p>${sent.join(" ").replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;")}</p>`,
  }),
  "a URL": (sent) => ({
    body: JSON.stringify({ next: `https://example.com/?${asQuery(sent)}` }),
  }),
  "a URL within a URL": (sent) => ({
    body: JSON.stringify(
      `https://example.com/?next=${encodeURIComponent(`/?t=${sent.map(encodeURIComponent).join("&u=")}`)}`,
    ),
  }),
  base64: (sent) => ({ body: JSON.stringify(sent.map((value) => Buffer.from(value).toString("base64"))) }),
  "base64 of a longer text": (sent) => ({
    body: JSON.stringify(Buffer.from(`sent: ${sent.join("; ")}!`).toString("base64url")),
  }),
  bytes: (sent) => ({
    headers: { "content-type": "application/octet-stream" },
    body: Buffer.concat([Buffer.from([0, 255, 254]), ...sent.map((value) => Buffer.from(`${value}\0`))]),
  }),
  "compressed JSON": (sent) => ({
    headers: { "content-encoding": "gzip" },
    body: gzipSync(JSON.stringify(sent)),
  }),
  "a body that only calls itself compressed": (sent) => ({
    headers: { "content-encoding": "gzip", ...textPlain },
    body: sent.join("\n"),
  }),
  [longEcho]: (sent) => ({
    headers: textPlain,
    body: Array.from({ length: 2_000 }, (_none, line) => `${line} ${longMark} ${sent[line % sent.length]}`).join("\n"),
  }),
  "an error in JSON": (sent) => ({
    status: 500,
    body: JSON.stringify({ error: { message: `bad ${sent.join()}`, sent } }),
  }),
  "an error in text": (sent) => ({ status: 401, headers: textPlain, body: `unknown key ${sent.join(" / ")}` }),
  "an error so long that it is cut": (sent) => ({
    status: 502,
    headers: textPlain,
    body: sent.map((value, index) => `${"x".repeat(index === 0 ? 8_180 : 30)}${value}`).join(""),
  }),
  headers: (sent) => ({
    headers: {
      "x-echo": encodeURIComponent(sent.join()),
      "set-cookie": `token=${encodeURIComponent(sent[0] ?? "")}`,
      "content-type": `text/${plainOf(sent)}; charset="${plainOf(sent)}"`,
      etag: `"${Buffer.from(sent.join()).toString("base64")}"`,
    },
    body: "see the headers",
  }),
  "headers of an error": (sent) => ({
    status: 401,
    headers: {
      "www-authenticate": `Bearer error_description="${encodeURIComponent(sent.join())}"`,
      "retry-after": plainOf(sent),
      "content-type": `text/${plainOf(sent)}`,
    },
    body: "see the headers",
  }),
  "a redirect to itself": (sent) => ({
    status: 302,
    headers: { location: `/after?${asQuery(sent)}` },
  }),
  "a redirect to a forbidden address": (sent) => ({
    status: 307,
    headers: { location: `http://10.1.2.3/${encodeURIComponent(sent.join())}` },
  }),
  "a redirect to a host of that name": (sent) => ({
    status: 302,
    headers: { location: `http://${plainOf(sent)}.invalid/` },
  }),
  "a redirect to a user of that name": (sent) => ({
    status: 302,
    headers: { location: `http://${plainOf(sent)}@10.1.2.3/` },
  }),
  "a redirect with a scheme of that name": (sent) => ({ status: 302, headers: { location: `${plainOf(sent)}:x` } }),
  "a redirect that is no URL": (sent) => ({
    status: 302,
    headers: { location: `http://[${encodeURIComponent(sent.join())}` },
  }),
};

/** Stands in long results, which are kept as blobs. */
const longMark = `long-mark-${random()}`;

/** What a model back end reads: all but the key that it asks for. */
function modelView(request: RecordedRequest, index: number): Written {
  expect(request.headers.authorization).toBe(`Bearer ${secrets.MODEL_KEY}`);
  const raw = request.raw.toString("latin1").replace(`Bearer ${secrets.MODEL_KEY}`, "");
  return { where: `model request ${index}`, bytes: Buffer.from(raw, "latin1") };
}

function sharedFields(one: Json, other: Json): Json {
  return Object.fromEntries(Object.entries(one).filter(([name]) => Object.hasOwn(other, name)));
}

const readersAtOnce = 4;

async function eachOf(paths: readonly string[], read: (path: string) => Promise<void>): Promise<void> {
  const left = paths.values();
  const reader = async (): Promise<void> => {
    for (const path of left) await read(path);
  };
  await Promise.all(Array.from({ length: readersAtOnce }, reader));
}

/**
 * All of it, in each of the homes; but what a back end may echo, as a whole, in the first one only: what takes secrets
 * out is the same in all of them.
 * @param before how many homes there are before these
 */
export function describeWalkThrough(homes: Readonly<Record<string, () => Promise<RunningHome>>>, before = 0): void {
  const inTurn = Object.entries(homes).map(([name, startHome], place) => ({ name, startHome, place: before + place }));
  describe.each(inTurn)("$name", ({ startHome, place }) => {
    walkThrough(startHome, echoesAt(place));
  });
}

/** A third of them, each time another one. */
function echoesAt(place: number): readonly (readonly [name: string, echo: Echo])[] {
  const all = Object.entries(echoes);
  return isLong || place === 0 ? all : all.filter(([name], index) => name === longEcho || index % 3 === place % 3);
}

function walkThrough(startHome: () => Promise<RunningHome>, echoed: ReturnType<typeof echoesAt>): void {
  let home: RunningHome;
  let backEnd: HttpStub;
  let llm: LlmStub;
  let tenant: TestTenant;
  let app: OpenAI;
  /** Every answer that anybody got, with its headers. */
  const answers: Written[] = [];

  beforeAll(async () => {
    [home, backEnd, llm] = await Promise.all([startHome(), startHttpStub(), startLlmStub()]);
  });
  afterAll(async () => {
    await Promise.all([home.close(), backEnd.close(), llm.close()]);
  });

  function keep(where: string, reply: Reply): Reply {
    const headers = [...reply.headers].map((header) => header.join(": ")).join("\n");
    answers.push({ where, bytes: Buffer.concat([Buffer.from(`${reply.status}\n${headers}\n\n`), reply.bytes]) });
    return reply;
  }

  async function ask(client: Client, method: string, path: string, body?: unknown): Promise<Reply> {
    return keep(`${method} ${path} ${JSON.stringify(body ?? "").slice(0, 80)}`, await client.send(method, path, body));
  }

  async function settledCall(query: string): Promise<Json> {
    let found: Json;
    await expect
      .poll(async () => {
        found = (await tenant.client.get(`/v1/calls?${query}`)).data[0];
        return found?.finished_at ?? null;
      })
      .not.toBeNull();
    return found;
  }

  test(`a tenant, its key, its secrets and its tool are four requests ${verifies("BLIND-1", "BLIND-5")}`, async () => {
    tenant = await home.newTenant();
    for (const [name, value] of Object.entries(secrets)) {
      if (name === "INLINE_KEY" || name === "NEXT_KEY") continue;
      const stored = await ask(tenant.client, "put", `/v1/credentials/${name}`, { value });
      expect(stored).toMatchObject({ status: 201, json: { name, version: 1 } });
    }
    await tenant.addProvider(llm.url, { credential: "MODEL_KEY" });
    const definition = companySearch.replace("api.qichacha.com", new URL(backEnd.url).host);
    const plugin = keep(
      "POST /v1/plugins",
      await tenant.client.send("post", "/v1/plugins", undefined, {
        raw: definition,
        headers: { "content-type": "application/json" },
      }),
    );
    expect(plugin).toMatchObject({
      status: 201,
      json: { name: "search_company_basic", status: "0", required_credentials: ["QCC_KEY", "QCC_SECRET"] },
    });
    app = new OpenAI({ apiKey: tenant.key, baseURL: `${home.url}/v1`, maxRetries: 0 });
  });

  /** All of the request, as the specification's definition asks for it. */
  function companyRequest(traceId: string): RegExp {
    const lines = [
      `GET /ECIV4/Search?keyword=${encodeURIComponent("字节跳动")}&page_index=1 HTTP/1.1`,
      `host: ${new URL(backEnd.url).host}`,
      "connection: keep-alive",
      `Token: ${secrets.QCC_KEY}`,
      `Timespan: ${secrets.QCC_SECRET}`,
      "accept: application/json, text/*;q=0.9, */*;q=0.8",
      "user-agent: toolyard",
      "accept-encoding: gzip, deflate, br",
      `traceparent: 00-${traceId}-`,
    ];
    const whole = lines.join("\r\n").replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&");
    return new RegExp(`^${whole}[0-9a-f]{16}-01\r\n\r\n$`);
  }

  test(`a chat runs the tool blind: request, model's view, answer, record ${verifies("BLIND-2", "BLIND-3", "BLIND-6", "BLIND-8", "CHAT-2", "CHAT-4", "CHAT-13")}`, async () => {
    backEnd.answer = () => ({ body: company });
    llm.script(lookUp, text("字节跳动的注册号是 110108014811926。", [40, 12]));
    const traceId = randomBytes(16).toString("hex");
    const began = Date.now();
    const answer = await app.chat.completions.create(
      { model: "stub-1", messages: [user(question)] },
      { headers: { traceparent: `00-${traceId}-${random()}-01` } },
    );

    expect(backEnd.requests).toHaveLength(1);
    expect(backEnd.requests[0]?.raw.toString("latin1")).toMatch(companyRequest(traceId));

    const [first, second] = llm.requests;
    expect(Object.keys(first ?? {}).sort()).toEqual(["messages", "model", "tools"]);
    expect(first).toMatchObject({ model: "stub-1", messages: [user(question)] });
    const [offered, ...others] = (first?.["tools"] ?? []) as Json[];
    expect(offered).toEqual(companySearchForModels);
    for (const { type, function: described } of others) {
      expect([type, Object.keys(described)]).toEqual(["function", ["name", "description", "parameters"]]);
    }
    expect(others.map((tool) => tool.function.name)).toEqual(["read_result"]);
    expect(second?.["messages"]).toEqual([
      user(question),
      {
        role: "assistant",
        content: null,
        tool_calls: [
          {
            id: "up_1",
            type: "function",
            function: { name: "search_company_basic", arguments: '{"keyword":"字节跳动"}' },
          },
        ],
      },
      { role: "tool", tool_call_id: "up_1", content: company },
    ]);
    expect(second?.["tools"]).toEqual(first?.["tools"]);
    for (const { raw } of llm.http.requests) {
      expect(raw.toString("utf8")).not.toMatch(/execution|auth_config|mapping|Token|Timespan|QCC_|ECIV4|base_url/);
    }

    expect(answer).toMatchObject({
      object: "chat.completion",
      model: "stub-1",
      choices: [
        {
          index: 0,
          message: { role: "assistant", content: "字节跳动的注册号是 110108014811926。" },
          finish_reason: "stop",
        },
      ],
      usage: { prompt_tokens: 60, completion_tokens: 20, total_tokens: 80 },
      tool_execution: { executed: true, tools_called: ["search_company_basic"] },
    });

    const chat = await settledCall("kind=chat");
    expect(chat).toMatchObject({ state: "completed", usage: { total_tokens: 80 }, trace_id: traceId });
    const listed = await settledCall("kind=tool");
    const call = await tenant.client.get(`/v1/calls/${listed.id}`);
    // Of two releases, one may tell what the other does not have.
    expect(sharedFields(call, listed)).toEqual(sharedFields(listed, call));
    expect(call).toMatchObject({
      object: "call",
      kind: "tool",
      state: "completed",
      tool: "search_company_basic",
      uri: "plugin://search_company_basic",
      effect: "read",
      async: false,
      attempt: 1,
      parent_id: chat.id,
      caller: {
        chain: [
          { kind: "key", id: tenant.keyId },
          { kind: "chat", id: chat.id },
        ],
      },
      route: "/v1/chat/completions",
      input: { keyword: "字节跳动", page_index: 1 },
      result: {
        preview: company,
        complete: true,
        media_type: "application/json",
        bytes: Buffer.byteLength(company),
        url: `/v1/calls/${listed.id}/result`,
      },
      error: null,
      trace_id: traceId,
    });
    const [created, started, finished] = [call.created_at, call.started_at, call.finished_at].map(Date.parse);
    expect(created).toBeGreaterThanOrEqual(began - 1_000);
    expect(started).toBeGreaterThanOrEqual(created ?? 0);
    expect(call.duration_ms).toBe((finished ?? 0) - (started ?? 0));
    const result = await tenant.client.send("get", `/v1/calls/${call.id}/result`);
    expect([result.text, result.headers.get("content-type")]).toEqual([company, "application/json"]);
  });

  test(`streamed, it is one clean message, or typed events with the tool's part in it ${verifies("CHAT-6", "CHAT-2", "CHAT-4")}`, async () => {
    llm.script(lookUp, text("It is No. 110108014811926.", [40, 12]));
    const before = backEnd.requests.length;
    const stream = app.chat.completions.stream({
      model: "stub-1",
      messages: [user(question)],
      stream_options: { include_usage: true },
    });
    const chunks: OpenAI.ChatCompletionChunk[] = [];
    for await (const chunk of stream) chunks.push(chunk);
    const whole = await stream.finalChatCompletion();
    expect(whole.choices).toMatchObject([
      { message: { role: "assistant", content: "It is No. 110108014811926." }, finish_reason: "stop" },
    ]);
    expect(whole.usage).toMatchObject({ prompt_tokens: 60, completion_tokens: 20, total_tokens: 80 });
    expect(chunks.flatMap(({ choices }) => choices).filter(({ delta }) => delta.tool_calls !== undefined)).toEqual([]);
    expect(chunks.filter(({ choices }) => choices[0]?.delta.role !== undefined)).toHaveLength(1);
    expect(backEnd.requests).toHaveLength(before + 1);

    llm.script(lookUp, text("It is No. 110108014811926.", [40, 12]));
    const typed = await ask(tenant.client, "post", "/api/chat/completions", {
      stream: true,
      messages: [user(question)],
      session_id: "walk",
    });
    expect(typed.headers.get("content-type")).toBe("text/event-stream");
    const events = sseEvents(typed.text) as Json[];
    expect(new Set(events.map((event) => event.type ?? event))).toEqual(
      new Set(["tool_call", "tool_result", "content", "done", "[DONE]"]),
    );
    const called = events.filter(({ type }) => type === "tool_call").flatMap(({ delta }) => delta.tool_calls);
    const { id, function: named } = called[0];
    expect(named.name).toBe("search_company_basic");
    expect(called.map((delta: Json) => delta.function.arguments).join("")).toBe('{"keyword":"字节跳动"}');
    expect(events.find(({ type }) => type === "tool_result")).toEqual({
      type: "tool_result",
      tool_call_id: id,
      result: { success: true, content: company },
    });
    expect(events.at(-2)).toMatchObject({
      type: "done",
      finish_reason: "stop",
      usage: { total_tokens: 80 },
      tool_execution: {
        executed: true,
        tools_called: ["search_company_basic"],
        session_id: "walk",
        workspace_path: "/mcp_workspaces/walk",
      },
    });
  });

  test(`a client reads what the model has said so far while it still speaks ${verifies("CHAT-6")}`, async () => {
    const isRead = Promise.withResolvers<void>();
    const speaking = await startHttpStub(async (_request, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(chunk({ role: "assistant", content: "so far" }));
      await isRead.promise;
      response.end([chunk({ content: ", so good" }), chunk({}, "stop"), done].join(""));
      return undefined;
    });
    await tenant.addProvider(`${speaking.url}/v1`, { models: { "speaking-1": "speaking-1" } });
    const stream = app.chat.completions.stream({ model: "speaking-1", messages: [user("go on")] });
    stream.once("content", () => isRead.resolve());
    expect(await stream.finalContent()).toBe("so far, so good");
    await speaking.close();
  });

  test(`explain shows the request with names where the secrets go ${verifies("BLIND-6")}`, async () => {
    const { json } = await ask(tenant.client, "post", "/v1/tools/explain", {
      uri: "plugin://search_company_basic",
      arguments: { keyword: "a&b=c #?/" },
    });
    expect(json.request).toEqual({
      method: "GET",
      url: `${backEnd.url}/ECIV4/Search?keyword=a%26b%3Dc%20%23%3F%2F&page_index=1`,
      headers: [
        ["host", new URL(backEnd.url).host],
        ["connection", "keep-alive"],
        ["Token", "***QCC_KEY"],
        ["Timespan", "***QCC_SECRET"],
        ["accept", "application/json, text/*;q=0.9, */*;q=0.8"],
        ["user-agent", "toolyard"],
        ["accept-encoding", "gzip, deflate, br"],
        ["traceparent", expect.stringMatching(/^00-[0-9a-f]{32}-[0-9a-f]{16}-01$/)],
      ],
      body: null,
      body_bytes: 0,
      credentials: [
        { name: "QCC_KEY", level: "tenant", version: 1, location: "header", target: "Token" },
        { name: "QCC_SECRET", level: "tenant", version: 1, location: "header", target: "Timespan" },
      ],
    });
    const member = (await tenant.newKey({ scopes: ["tools"] })).client;
    const told = await ask(member, "post", "/v1/tools/explain", {
      name: "search_company_basic",
      arguments: { keyword: "x" },
    });
    expect(told.json.request).toBeNull();
  });

  test(`a call that nobody waits for is carried out once, with the same request ${verifies("BLIND-8", "CHAT-13")}`, async () => {
    const before = backEnd.requests.length;
    const asked = await ask(tenant.client, "post", "/v1/tools/invoke", {
      name: "search_company_basic",
      arguments: { keyword: "字节跳动" },
      async: true,
    });
    expect(asked).toMatchObject({
      status: 202,
      json: { status: "queued", url: `${home.url}/v1/calls/${asked.json.id}` },
    });
    await home.deliver(tenant.id, asked.json.id);
    await expect
      .poll(async () => (await tenant.client.get(`/v1/calls/${asked.json.id}`)).state, { timeout: 15_000 })
      .toBe("completed");
    const call = await tenant.client.get(`/v1/calls/${asked.json.id}`);
    expect(call).toMatchObject({ async: true, attempt: 1, result: { preview: company }, parent_id: null });
    expect(backEnd.requests).toHaveLength(before + 1);
    expect(backEnd.requests.at(-1)?.raw.toString("latin1")).toMatch(companyRequest(call.trace_id));
  });

  test(`secrets that are not ASCII go where they can: a query, and basic authentication ${verifies("BLIND-2", "BLIND-3")}`, async () => {
    const noteId = { type: "object", properties: { note: { type: "string" } }, required: ["note"] };
    await tenant.addPlugin({
      name: "crm_note",
      parameters: noteId,
      execution: {
        method: "POST",
        base_url: `${backEnd.url}/crm/notes?v=2`,
        content_type: "application/json",
        param_placement: "body",
      },
      auth_config: { type: "api_key", mapping: [{ source: "CRM_TOKEN", target: "token", location: "query" }] },
    });
    await tenant.addPlugin({
      name: "crm_login",
      execution: { method: "GET", base_url: `${backEnd.url}/crm/login`, param_placement: "query" },
      auth_config: {
        type: "basic",
        mapping: [
          { source: "QCC_SECRET", target: "username" },
          { source: "CRM_PASSWORD", target: "password" },
        ],
      },
    });
    backEnd.answer = () => ({ body: '{"ok":true}' });
    const note = `"引号", 中文 & <b>${String.fromCharCode(0x2028)}`;
    expect(
      await ask(tenant.client, "post", "/v1/tools/invoke", { name: "crm_note", arguments: { note } }),
    ).toMatchObject({
      status: 200,
      json: { content: '{"ok":true}' },
    });
    const [head, body] = backEnd.requests.at(-1)?.raw.toString("utf8").split("\r\n\r\n") ?? [];
    expect(body).toBe(JSON.stringify({ note }));
    expect(head?.split("\r\n")).toEqual([
      `POST /crm/notes?v=2&token=${encodeURIComponent(secrets.CRM_TOKEN)} HTTP/1.1`,
      `host: ${new URL(backEnd.url).host}`,
      "connection: keep-alive",
      "content-type: application/json",
      "accept: application/json, text/*;q=0.9, */*;q=0.8",
      "user-agent: toolyard",
      "accept-encoding: gzip, deflate, br",
      expect.stringMatching(/^traceparent: 00-[0-9a-f]{32}-[0-9a-f]{16}-01$/),
      `content-length: ${Buffer.byteLength(body ?? "")}`,
    ]);
    await tenant.addPlugin({
      name: "crm_header",
      execution: { method: "GET", base_url: `${backEnd.url}/crm/header`, param_placement: "query" },
      auth_config: { type: "bearer", mapping: [{ source: "CRM_TOKEN" }] },
    });
    const before = backEnd.requests.length;
    expect(await ask(tenant.client, "post", "/v1/tools/invoke", { name: "crm_header" })).toMatchObject({
      json: { error: { code: "credential_invalid", message: expect.stringContaining("'CRM_TOKEN'") } },
    });
    expect(backEnd.requests).toHaveLength(before);
    await ask(tenant.client, "post", "/v1/tools/invoke", { name: "crm_login" });
    const basic = Buffer.from(`${secrets.QCC_SECRET}:${secrets.CRM_PASSWORD}`, "utf8").toString("base64");
    expect(backEnd.requests.at(-1)?.raw.toString("latin1")).toContain(`\r\nAuthorization: Basic ${basic}\r\n`);
  });

  test.each(echoed)(
    `what a back end echoes as %s does not bring a secret back ${verifies("BLIND-6")}`,
    async (name, echo) => {
      const earlier = { answers: answers.length, model: llm.http.requests.length };
      backEnd.answer = (request) =>
        request.target.startsWith("/after") ? { body: JSON.stringify(request.target) } : echo(sentSecrets(request));
      const targets = [
        { name: "search_company_basic", arguments: { keyword: name } },
        { name: "crm_note", arguments: { note: name } },
        { name: "crm_login", arguments: {} },
      ];
      for (const target of targets) {
        const before = backEnd.requests.length;
        const { json } = await ask(tenant.client, "post", "/v1/tools/invoke", target);
        expect(backEnd.requests.length).toBeGreaterThan(before);
        const id = json.id ?? json.error.call_id;
        await ask(tenant.client, "get", `/v1/calls/${id}`);
        await ask(tenant.client, "get", `/v1/calls/${id}/result`);
        llm.script(calls({ ...target, id: "up_1" }), text("done"));
        const chat = { stream: true, messages: [user(name)] };
        const { status, text: stream } = await ask(tenant.client, "post", "/api/chat/completions", chat);
        expect([status, stream]).toEqual([200, expect.stringMatching(/"type":"tool_result"[^]*"type":"done"/)]);
      }
      llm.script(lookUp, text("done"));
      await ask(tenant.client, "post", "/v1/chat/completions", { messages: [user(name)], on_tool_error: "fail" });
      llm.script(lookUp, text("done"));
      await tenant.client
        .with({ "x-toolyard-events": "1" })
        .send("post", "/v1/chat/completions", { stream: true, messages: [user(name)] })
        .then((reply) => keep(`stream with progress, ${name}`, reply));
      expect(findSecrets(answers.slice(earlier.answers), secretValues)).toEqual([]);
      const seen = llm.http.requests.slice(earlier.model).map(modelView);
      expect(findSecrets(seen, secretValues)).toEqual([]);
    },
  );

  test.each<[string, Round]>([
    ["a refused key", { status: 401, json: { error: { message: `Incorrect API key: ${secrets.MODEL_KEY}` } } }],
    [
      "a refused request",
      { status: 400, json: { error: { message: `no ${secrets.MODEL_KEY}`, code: secrets.MODEL_KEY } } },
    ],
    ["a failure in words, cut", { status: 400, json: `${"x".repeat(290)}${secrets.MODEL_KEY}` }],
    ["a failure in words, cut late", { status: 400, json: `${"x".repeat(990)}${secrets.MODEL_KEY}` }],
    [
      "a failure in the middle",
      { writes: [chunk({ content: "a" }), `data: ${JSON.stringify({ error: { message: secrets.MODEL_KEY } })}\n\n`] },
    ],
    [
      "an event that is no JSON",
      { writes: [chunk({ content: "a" }), `data: ${"x".repeat(190)}${secrets.MODEL_KEY}\n\n`] },
    ],
  ])(`what a model back end says as %s keeps its key ${verifies("BLIND-6")}`, async (_what, round) => {
    const earlier = answers.length;
    llm.script(round);
    // The stub has no whole answer for a stream that breaks off.
    for (const stream of "json" in round ? [true, false] : [true]) {
      const reply = await ask(tenant.client, "post", "/v1/chat/completions", { messages: [user("hi")], stream });
      expect(reply.text).toContain('"error":{');
      await ask(tenant.client, "get", "/v1/calls?kind=chat&limit=1");
    }
    expect(findSecrets(answers.slice(earlier), secretValues)).toEqual([]);
  });

  test(`a request that cannot be does not get its secrets back ${verifies("BLIND-6", "BLIND-7")}`, async () => {
    const value = secrets.QCC_KEY;
    const requests: readonly (readonly [string, string, unknown])[] = [
      ["put", "/v1/credentials/ODD", { value: `${value}\n` }],
      ["put", "/v1/credentials/ODD", { value: [value] }],
      ["put", "/v1/credentials/ODD", value],
      ["post", "/v1/credentials", { name: "ODD", value }],
      [
        "post",
        "/v1/plugins",
        { ...JSON.parse(companySearch), auth_config: { type: "api_key", mapping: [{ source: "K", value }] } },
      ],
      [
        "post",
        "/v1/tools/invoke",
        { name: "search_company_basic", runtime_config: { plugins: [], credentials: { K: [value] } } },
      ],
      ["post", "/v1/tools/explain", { name: "x", runtime_config: { plugins: [{ value }], credentials: { K: value } } }],
      ["post", "/v1/chat/completions", { messages: [user("hi")], runtime_config: { credentials: value } }],
    ];
    const earlier = answers.length;
    for (const [method, path, body] of requests) {
      const { status } = await ask(tenant.client, method, path, body);
      expect([path, status >= 400 && status < 500]).toEqual([path, true]);
    }
    const broken = await tenant.client.send("put", "/v1/credentials/ODD", undefined, {
      raw: `{"value": "${secrets.QCC_SECRET}", }`,
      headers: { "content-type": "application/json" },
    });
    expect(keep("broken JSON", broken).status).toBe(400);
    expect(findSecrets(answers.slice(earlier), secretValues)).toEqual([]);
  });

  test(`a configuration that comes with the request is used and not kept ${verifies("BLIND-7")}`, async () => {
    backEnd.answer = ({ headers }) => ({ body: JSON.stringify(headers) });
    const inline = { ...JSON.parse(companySearch), name: "inline_search" };
    inline.execution.base_url = `${backEnd.url}/inline`;
    const runtime_config = { plugins: [inline], credentials: { QCC_KEY: secrets.INLINE_KEY } };
    llm.script(calls({ name: "inline_search", arguments: { keyword: "x" } }), text("ok"));
    const reply = await ask(tenant.client, "post", "/v1/chat/completions", { messages: [user("hi")], runtime_config });
    expect(reply.json.tool_execution.tools_called).toEqual(["inline_search"]);
    expect(backEnd.requests.at(-1)?.headers).toMatchObject({ token: secrets.INLINE_KEY, timespan: secrets.QCC_SECRET });
    expect((await ask(tenant.client, "get", "/v1/tools?limit=100")).text).not.toContain("inline_search");
  });

  test(`a new value is used by the next request, wherever it goes, and so is none ${verifies("BLIND-5")}`, async () => {
    backEnd.answer = ({ headers }) => ({ body: JSON.stringify(headers) });
    const call = { name: "search_company_basic", arguments: { keyword: "x" } };
    await ask(tenant.client, "put", "/v1/credentials/QCC_KEY", { value: secrets.NEXT_KEY });
    for (let turn = 0; turn < 3; turn += 1) {
      expect(await ask(tenant.client, "post", "/v1/tools/invoke", call)).toMatchObject({ status: 200 });
      expect(backEnd.requests.at(-1)?.headers["token"]).toBe(secrets.NEXT_KEY);
    }
    await ask(tenant.client, "delete", "/v1/credentials/QCC_KEY");
    const before = { backEnd: backEnd.requests.length, model: llm.requests.length };
    const missing = {
      status: 400,
      json: { error: { code: "credential_missing", message: expect.stringContaining("QCC_KEY") } },
    };
    for (let turn = 0; turn < 2; turn += 1) {
      expect(await ask(tenant.client, "post", "/v1/tools/invoke", call)).toMatchObject(missing);
      const chat = { messages: [user("hi")], stream: turn === 1 };
      expect(await ask(tenant.client, "post", "/v1/chat/completions", chat)).toMatchObject(missing);
    }
    expect({ backEnd: backEnd.requests.length, model: llm.requests.length }).toEqual(before);
  });

  test(
    `whatever can be read tells no secret ${verifies("BLIND-6", "CHAT-13")}`,
    async () => {
      const { paths } = (await ask(home.nobody, "get", "/openapi.json")).json;
      const earlier = answers.length;
      const client = tenant.client;
      const gets = Object.keys(paths).filter((path) => paths[path].get !== undefined);
      const readers = [client, home.nobody, home.operator.with({ "x-toolyard-tenant": tenant.id })];
      await eachOf(gets, async (path) => {
        if (!path.includes("{")) {
          for (const who of readers) await ask(who, "get", path);
          for (const query of ["limit=100", "format=openai", "format=mcp"])
            await ask(client, "get", `${path}?${query}`);
          return;
        }
        const [collection = "", , more = ""] = path.split(/\{|\}/);
        const list = await client.send("get", `${collection.replace(/\/$/, "")}?limit=100`);
        for (const { id } of list.json?.data ?? [])
          await ask(client, "get", `${collection}${encodeURIComponent(id)}${more}`);
      });
      const seen = answers.slice(earlier).map(({ where }) => where);
      expect(seen.filter((where) => /\/v1\/calls\/\w+\/result/.test(where)).length).toBeGreaterThan(50);
      for (const kind of [
        "credentials",
        "plugins",
        "providers",
        "api-keys",
        "models",
        "tools",
        "sessions",
        "settings",
      ]) {
        expect(seen.some((where) => where.includes(`/v1/${kind}`))).toBe(true);
      }
      expect(findSecrets(answers.slice(earlier), [...secretValues, tenant.key.slice(-24), ...home.ownSecrets])).toEqual(
        [],
      );
    },
    readsAllWithinMs,
  );

  test(`nothing that is kept or logged holds a secret, before the end and after it ${verifies("BLIND-5", "BLIND-6")}`, async () => {
    const wanted = [...secretValues, tenant.key.slice(-24), ...home.ownSecrets];
    await expect.poll(async () => (await tenant.client.get("/v1/calls?state=running")).data.length).toBe(0);
    for (const isRunning of [true, false]) {
      if (!isRunning) await home.stop();
      await home.unload?.();
      // Keys that the process made for itself are in files of their own.
      const files = (await filesBelow(...home.directories)).filter(({ where }) => !where.endsWith(".key"));
      const log: Written = { where: "the log", bytes: Buffer.from(home.output()) };
      expect(findSecrets([...files, log], wanted)).toEqual([]);
      // What is looked for would be found there.
      const holders = files.filter(({ bytes }) => bytes.includes(longMark)).map(({ where }) => where);
      expect(holders).toContainEqual(expect.stringMatching(/\.db(-wal)?$/));
      expect(holders).toContainEqual(expect.not.stringMatching(/\.db(-wal)?$/));
      expect(findSecrets(files, [tenant.id])).not.toEqual([]);
      expect(log.bytes.toString("utf8")).toContain(tenant.id);
    }
    expect(findSecrets(answers, secretValues)).toEqual([]);
    expect(findSecrets(llm.http.requests.map(modelView), secretValues)).toEqual([]);
  });
}
