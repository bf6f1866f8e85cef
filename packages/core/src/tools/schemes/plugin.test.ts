import { randomBytes } from "node:crypto";
import { connect } from "node:net";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { emptyConfig, unscripted } from "../../../../../test/support/fake-core.ts";
import { startHttpStub, type HttpStub, type RecordedRequest } from "../../../../../test/support/http-stub.ts";
import { verifies } from "../../../../../test/support/verifies.ts";
import { createCredentialResolver } from "../../blind/credential-resolver.ts";
import { credentialAad, type StoredCredential } from "../../secrets/credential.ts";
import { createEgress, type EgressOptions } from "../../blind/egress.ts";
import { explainBlind } from "../../blind/explain.ts";
import { parseRuntimeConfig, registerPlugin } from "../../blind/register.ts";
import type { PluginRecord } from "../../blind/plugin.ts";
import type { RuntimeConfig } from "../../blind/runtime-config.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import type { JsonObject } from "../../json.ts";
import type { TokenSource } from "../../oauth/access-token.ts";
import type { Egress } from "../../ports/egress.ts";
import type { KeyVault } from "../../ports/key-vault.ts";
import { Redactor } from "../../secrets/redactor.ts";
import { Sealer } from "../../secrets/sealer.ts";
import { deliveryOf } from "../../errors/delivery.ts";
import type { InvocationContext, ToolReply } from "../tool-call.ts";
import { compileArguments } from "../arguments.ts";
import { parseToolUri } from "../uri.ts";
import { createPluginAdapter } from "./plugin.ts";

const vault: KeyVault = {
  currentKeyId: "k1",
  wrap: (_tenant, key) => Promise.resolve(Buffer.from(key).toString("base64")),
  unwrap: (_tenant, wrapped) => Promise.resolve(Buffer.from(wrapped, "base64")),
};
const sealer = new Sealer(vault, { now: () => 0, sleep: () => Promise.resolve() });
const wrappedKey = randomBytes(32).toString("base64");
const tenant = "ten_a";
const traceId = "0af7651916cd43dd8448eb211c80319c";

let stub: HttpStub;
const egresses: Egress[] = [];
beforeAll(async () => {
  stub = await startHttpStub();
});
afterAll(() => stub.close());
afterEach(async () => {
  stub.requests.length = 0;
  stub.answer = () => ({ body: '{"ok":true}' });
  await Promise.all(egresses.splice(0).map((egress) => egress.close()));
});

function openEgress(options: Partial<EgressOptions> = {}): Egress {
  const egress = createEgress({ allowCidrs: ["127.0.0.0/8"], ...options });
  egresses.push(egress);
  return egress;
}

const definition = (more: JsonObject = {}, execution: JsonObject = {}): JsonObject => ({
  schema_version: "v1",
  name: "lookup",
  description: "Looks something up.",
  parameters: { type: "object", properties: { q: { type: "string" } } },
  execution: { method: "GET", base_url: `${stub.url}/look`, param_placement: "query", ...execution },
  ...more,
});

let nextId = 1;
function recordOf(input: JsonObject): PluginRecord {
  return { ...registerPlugin(input, { egress: openEgress() }), pluginId: nextId++, createdAt: 0, updatedAt: 0 };
}

interface World {
  readonly plugins?: readonly PluginRecord[];
  readonly credentials?: Readonly<Record<string, string>>;
  readonly userCredentials?: Readonly<Record<string, string>>;
  readonly runtimeConfig?: RuntimeConfig;
  readonly settings?: Partial<InvocationContext["config"]["settings"]>;
  readonly signal?: AbortSignal;
}

async function contextOf(world: World): Promise<InvocationContext> {
  const stored: StoredCredential[] = [];
  for (const [name, value] of Object.entries(world.credentials ?? {})) {
    const ref = { name, level: "tenant", version: 1 } as const;
    stored.push({ ...ref, sealed: await sealer.seal(tenant, wrappedKey, credentialAad(ref), value) });
  }
  for (const [name, value] of Object.entries(world.userCredentials ?? {})) {
    const ref = { name, level: "user", userId: "ann", version: 1 } as const;
    stored.push({ ...ref, sealed: await sealer.seal(tenant, wrappedKey, credentialAad(ref), value) });
  }
  const config = emptyConfig(tenant);
  return {
    tenant,
    caller: { kind: "key", id: "key_1", role: "member", scopes: [], tools: null, userId: "ann" },
    config: {
      ...config,
      settings: { ...config.settings, ...world.settings },
      plugins: world.plugins ?? [],
      credentials: stored,
      wrappedKey,
    },
    requestId: "req_1",
    traceId,
    redactor: new Redactor(),
    signal: world.signal ?? new AbortController().signal,
    ...(world.runtimeConfig === undefined ? {} : { runtimeConfig: world.runtimeConfig }),
  };
}

interface Invocation {
  readonly context: InvocationContext;
  readonly reply: Promise<ToolReply>;
}

const tokens = unscripted<TokenSource>("tokens");

/** As the dispatcher does it: resolve, check the arguments, invoke. */
async function invoke(world: World, uri: string, args: JsonObject, egress = openEgress()): Promise<Invocation> {
  const adapter = createPluginAdapter({ egress, tokens, credentials: createCredentialResolver({ sealer }) });
  const context = await contextOf(world);
  const parsed = parseToolUri(uri);
  const tool = adapter.resolve(parsed, context);
  if (tool === undefined) throw new Error(`no tool at ${uri}`);
  const checked = compileArguments(tool.parameters).validate(args);
  if (!checked.ok) throw new Error(JSON.stringify(checked.errors));
  const reply = adapter.invoke({ id: "call_1", tool, uri: parsed, arguments: checked.value, attempt: 1 }, context);
  // Looked at by each test in its own way.
  reply.catch(() => undefined);
  return { context, reply };
}

async function failureOf(work: Promise<unknown>): Promise<GatewayError> {
  const error = await work.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  if (!(error instanceof GatewayError)) throw new Error(`expected a GatewayError, got ${String(error)}`);
  return error;
}

function onlyRequest(): RecordedRequest {
  const [request, second] = stub.requests;
  if (request === undefined || second !== undefined) throw new Error(`${stub.requests.length} requests instead of one`);
  return request;
}

describe(`the specification's company search ${verifies("BLIND-1", "BLIND-2", "BLIND-3", "BLIND-8", "API-1")}`, () => {
  const companySearch: JsonObject = {
    schema_version: "v1",
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
    execution: {
      method: "GET",
      base_url: "http://api.qichacha.com/ECIV4/Search",
      content_type: "application/x-www-form-urlencoded",
      param_placement: "query",
    },
    auth_config: {
      type: "api_key",
      mapping: [
        { source: "QCC_KEY", target: "Token", location: "header" },
        { source: "QCC_SECRET", target: "Timespan", location: "header" },
      ],
    },
  };
  const answer = '{"Status":"200","Result":[{"KeyNo":12345678901234567890,"Name":"北京字节跳动科技有限公司"}]}';

  /** The public address of the vendor, played by the stub. */
  const vendor = (): Partial<EgressOptions> => ({
    allowCidrs: [],
    resolve: () => Promise.resolve([{ address: "93.184.216.34", family: 4 }]),
    connector: (target, callback) => {
      const socket = connect(stub.port, "127.0.0.1");
      Object.defineProperty(socket, "remoteAddress", { value: target.hostname });
      socket.once("connect", () => callback(null, socket));
    },
  });

  test("goes out byte for byte as the document says, and the answer comes back as it was", async () => {
    stub.answer = () => ({ body: answer });
    const world = {
      plugins: [recordOf(companySearch)],
      credentials: { QCC_KEY: "sk-123-sentinel", QCC_SECRET: "1719999999" },
    };
    const { reply, context } = await invoke(
      world,
      "plugin://search_company_basic",
      { keyword: "字节跳动" },
      openEgress(vendor()),
    );
    expect(await reply).toEqual({ mediaType: "application/json", body: answer });
    const request = onlyRequest();
    expect(request.method).toBe("GET");
    expect(request.target).toBe("/ECIV4/Search?keyword=%E5%AD%97%E8%8A%82%E8%B7%B3%E5%8A%A8&page_index=1");
    expect(request.body).toHaveLength(0);
    expect(request.rawHeaders.slice(0, -1)).toEqual([
      "host",
      "api.qichacha.com",
      "connection",
      "keep-alive",
      "Token",
      "sk-123-sentinel",
      "Timespan",
      "1719999999",
      "accept",
      "application/json, text/*;q=0.9, */*;q=0.8",
      "user-agent",
      "toolyard",
      "accept-encoding",
      "gzip, deflate, br",
      "traceparent",
    ]);
    expect(request.headers["traceparent"]).toMatch(new RegExp(`^00-${traceId}-[0-9a-f]{16}-01$`));
    // From here on the redactor knows the secrets of this call.
    expect(context.redactor.redact("key sk-123-sentinel at 1719999999")).toBe("key [redacted] at [redacted]");
  });

  test("without its second credential nothing is sent, and the key is named", async () => {
    const world = { plugins: [recordOf(companySearch)], credentials: { QCC_KEY: "sk-123" } };
    const { reply } = await invoke(world, "plugin://search_company_basic", { keyword: "x" }, openEgress(vendor()));
    const error = await failureOf(reply);
    expect(error).toMatchObject({ code: "credential_missing", details: { param: "QCC_SECRET" } });
    expect(deliveryOf(error)).toBe("not_sent");
    expect(stub.requests).toHaveLength(0);
  });

  test("what a model sees holds neither address nor auth", async () => {
    const adapter = createPluginAdapter({
      egress: openEgress(),
      tokens,
      credentials: createCredentialResolver({ sealer }),
    });
    const [tool] = adapter.list(await contextOf({ plugins: [recordOf(companySearch)] }));
    const { name, description, parameters } = tool ?? {};
    expect(JSON.stringify({ name, description, parameters })).not.toMatch(/qichacha|Token|QCC/);
    expect(tool).toMatchObject({ name: "search_company_basic", requiredCredentials: ["QCC_KEY", "QCC_SECRET"] });
  });
});

describe(`plugins as tools ${verifies("BLIND-9", "CHAT-10")}`, () => {
  const adapter = () =>
    createPluginAdapter({ egress: openEgress(), tokens, credentials: createCredentialResolver({ sealer }) });

  test.each([
    [{ method: "GET" }, "read", "never"],
    [{ method: "POST" }, "write", "never"],
    [{ method: "PATCH" }, "write", "never"],
    [{ method: "PUT" }, "write", "natural"],
    [{ method: "DELETE" }, "write", "natural"],
    [{ method: "POST", effect: "read" }, "read", "never"],
    [{ method: "GET", effect: "write" }, "write", "never"],
    [{ method: "POST", idempotency_header: "Idempotency-Key" }, "write", "key"],
  ])("%j is a %s, repeated %s", async (execution, effect, repeat) => {
    const record = recordOf(definition({}, { ...execution, timeout_ms: 5, max_attempts: 3 }));
    const tool = adapter().resolve(parseToolUri("plugin://lookup"), await contextOf({ plugins: [record] }));
    expect(tool).toMatchObject({
      uri: "plugin://lookup",
      kind: "HTTP",
      effect,
      repeat,
      service: stub.url,
      outputTrust: "outside",
      timeoutMs: 5,
      maxAttempts: 3,
      hash: record.hash,
    });
  });

  test("a tool is made once for its row, and unknown names are none", async () => {
    const context = await contextOf({ plugins: [recordOf(definition())] });
    const one = adapter();
    const uri = parseToolUri("plugin://lookup");
    expect(one.resolve(uri, context)).toBe(one.resolve(uri, context));
    expect(one.list(context)[0]).toBe(one.resolve(uri, context));
    expect(one.resolve(parseToolUri("plugin://other"), context)).toBeUndefined();
    expect(one.resolve(parseToolUri("plugin://constructor"), context)).toBeUndefined();
  });

  test("a name that is none is told why, and one of another kind by what it is called", async () => {
    const vcp = { ...recordOf(definition()), name: "Greeter", type: "VCP" } as const;
    const context = await contextOf({ plugins: [recordOf(definition()), vcp] });
    const why = (uri: string): string | undefined => adapter().whyMissing?.(parseToolUri(uri), context);
    expect(why("plugin://Lookup")).toBe(
      "there is no plugin 'Lookup', in this case of letters; GET /v1/plugins lists those that there are.",
    );
    expect(why("plugin://Greeter")).toBe("'Greeter' is of the type VCP; call it by its name.");
  });

  test(`plugins sent with the request come first, and only for that request ${verifies("BLIND-7")}`, async () => {
    const stored = recordOf(definition({ description: "stored" }));
    const runtimeConfig = parseRuntimeConfig(
      { plugins: [definition({ description: "inline" }), definition({ name: "extra" })], credentials: {} },
      { egress: openEgress() },
    );
    const one = adapter();
    const withInline = await contextOf({ plugins: [stored], runtimeConfig });
    expect(one.list(withInline).map(({ name, description }) => [name, description])).toEqual([
      ["lookup", "inline"],
      ["extra", "Looks something up."],
    ]);
    expect(one.list(await contextOf({ plugins: [stored] })).map(({ description }) => description)).toEqual(["stored"]);
  });

  test("a plugin sent with the request is the one that runs", async () => {
    const runtimeConfig = parseRuntimeConfig(
      { plugins: [definition({}, { base_url: `${stub.url}/inline` })] },
      { egress: openEgress() },
    );
    await (
      await invoke({ plugins: [recordOf(definition())], runtimeConfig }, "plugin://lookup", {})
    ).reply;
    expect(onlyRequest().target).toBe("/inline");
  });

  test("a row that cannot be read fails its own calls, not the list", async () => {
    const good = recordOf(definition());
    const bad: PluginRecord = {
      ...good,
      name: "bad",
      executionConfig: {
        schema_version: "v1",
        execution: { method: "GET", base_url: "{", content_type: "application/json", param_placement: "query" },
      },
    };
    const native: PluginRecord = {
      ...good,
      name: "native",
      type: "NATIVE",
      executionConfig: { class_name: "ReadFile" },
    };
    const context = await contextOf({ plugins: [bad, native, good] });
    expect(
      adapter()
        .list(context)
        .map(({ name }) => name),
    ).toEqual(["lookup"]);
    expect(() => adapter().resolve(parseToolUri("plugin://bad"), context)).toThrow(GatewayError);
    // Rows of other types have schemes of their own.
    expect(adapter().resolve(parseToolUri("plugin://native"), context)).toBeUndefined();
  });

  test("another method than the definition's is refused", async () => {
    const { reply } = await invoke({ plugins: [recordOf(definition())] }, "plugin://lookup?method=DELETE", {});
    expect(await failureOf(reply)).toMatchObject({ code: "invalid_uri", details: { param: "method" } });
    expect(stub.requests).toHaveLength(0);
    await (
      await invoke({ plugins: [recordOf(definition())] }, "plugin://lookup?method=GET", {})
    ).reply;
    expect(stub.requests).toHaveLength(1);
  });
});

describe(`what leaves and what does not ${verifies("BLIND-6", "BLIND-8")}`, () => {
  const secured = (more: JsonObject = {}) =>
    definition(
      {
        auth_config: {
          type: "basic",
          mapping: [
            { source: "USER", target: "username" },
            { source: "PASS", target: "password" },
          ],
        },
      },
      more,
    );
  const credentials = { USER: "ann", PASS: "sentinel-pass" };

  test("falsy arguments and defaults arrive with their types", async () => {
    const properties = {
      offset: { type: "integer", default: 0 },
      archived: { type: "boolean", default: false },
      prefix: { type: "string", default: "" },
      limit: { type: "integer", default: 20 },
    };
    const inQuery = recordOf(definition({ parameters: { type: "object", properties } }));
    const inBody = recordOf(
      definition(
        { name: "post", parameters: { type: "object", properties } },
        { method: "POST", param_placement: "body" },
      ),
    );
    for (const [args, query, body] of [
      [{}, "offset=0&archived=false&prefix=&limit=20", { offset: 0, archived: false, prefix: "", limit: 20 }],
      [{ limit: 0 }, "limit=0&offset=0&archived=false&prefix=", { offset: 0, archived: false, prefix: "", limit: 0 }],
      [
        { archived: true, offset: 0 },
        "archived=true&offset=0&prefix=&limit=20",
        { offset: 0, archived: true, prefix: "", limit: 20 },
      ],
    ] as const) {
      stub.requests.length = 0;
      await (
        await invoke({ plugins: [inQuery, inBody] }, "plugin://lookup", args)
      ).reply;
      await (
        await invoke({ plugins: [inQuery, inBody] }, "plugin://post", args)
      ).reply;
      const [first, second] = stub.requests;
      expect(new Set(first?.target.split("?")[1]?.split("&"))).toEqual(new Set(query.split("&")));
      expect(JSON.parse(second?.body.toString() ?? "")).toEqual(body);
    }
  });

  test("the call's id goes out where the back end honours a key", async () => {
    const record = recordOf(
      definition({}, { method: "POST", param_placement: "body", idempotency_header: "Idempotency-Key" }),
    );
    await (
      await invoke({ plugins: [record] }, "plugin://lookup", { q: "x" })
    ).reply;
    expect(onlyRequest().headers["idempotency-key"]).toBe("call_1");
    expect(onlyRequest().body.toString()).toBe('{"q":"x"}');
  });

  test("a user's own credential beats the tenant's, one sent with the request beats both", async () => {
    const bearer = definition({ auth_config: { type: "bearer", mapping: [{ source: "TOKEN" }] } });
    const world = {
      plugins: [recordOf(bearer)],
      credentials: { TOKEN: "of-the-tenant" },
      userCredentials: { TOKEN: "of-ann" },
    };
    await (
      await invoke(world, "plugin://lookup", {})
    ).reply;
    const runtimeConfig = { plugins: [], credentials: { TOKEN: "of-the-request" } };
    await (
      await invoke({ ...world, runtimeConfig }, "plugin://lookup", {})
    ).reply;
    expect(stub.requests.map(({ headers }) => headers["authorization"])).toEqual([
      "Bearer of-ann",
      "Bearer of-the-request",
    ]);
  });

  test("secrets that a back end echoes in an error are taken out, in each form it saw", async () => {
    const basic = Buffer.from("ann:sentinel-pass").toString("base64");
    stub.answer = ({ headers }) => ({ status: 401, body: `no: ${String(headers["authorization"])} / sentinel-pass` });
    const { reply } = await invoke({ plugins: [recordOf(secured())], credentials }, "plugin://lookup", {});
    const error = await failureOf(reply);
    const shown = error.message + JSON.stringify(error.details);
    expect(onlyRequest().headers["authorization"]).toBe(`Basic ${basic}`);
    expect(shown).not.toContain("sentinel-pass");
    expect(shown).not.toContain(basic);
    expect(error).toMatchObject({ code: "tool_failed", details: { extra: { status: 401 } } });
    expect(deliveryOf(error)).toBe("answered");
  });

  test("no error shows a credential that goes in the query", async () => {
    const record = recordOf(
      definition({ auth_config: { type: "api_key", mapping: [{ source: "KEY", target: "key", location: "query" }] } }),
    );
    stub.answer = (_request, response) => {
      response.destroy();
      return undefined;
    };
    const { reply } = await invoke({ plugins: [record], credentials: { KEY: "sentinel-key" } }, "plugin://lookup", {
      q: "private",
    });
    const error = await failureOf(reply);
    expect(onlyRequest().target).toBe("/look?q=private&key=sentinel-key");
    expect(error.code).toBe("tool_unreachable");
    expect(error.message + JSON.stringify(error.details)).not.toMatch(/sentinel-key|private/);
    expect(deliveryOf(error)).toBe("uncertain");
  });

  test("credentials do not follow a redirect to another origin", async () => {
    const other = await startHttpStub();
    const record = recordOf(
      definition({
        auth_config: { type: "api_key", mapping: [{ source: "KEY", target: "X-Secret", location: "header" }] },
      }),
    );
    stub.answer = () => ({ status: 302, headers: { location: `${other.url}/there` } });
    const { reply } = await invoke({ plugins: [record], credentials: { KEY: "sentinel-key" } }, "plugin://lookup", {});
    expect(await reply).toMatchObject({ body: "{}" });
    expect(stub.requests[0]?.headers["x-secret"]).toBe("sentinel-key");
    expect(other.requests[0]?.rawHeaders.join()).not.toContain("sentinel");
    await other.close();
  });

  test("a credential with a line break is refused and nothing is sent", async () => {
    const record = recordOf(definition({ auth_config: { type: "bearer", mapping: [{ source: "TOKEN" }] } }));
    const { reply } = await invoke(
      { plugins: [record], credentials: { TOKEN: "abc\r\nX-Evil: 1" } },
      "plugin://lookup",
      {},
    );
    const error = await failureOf(reply);
    expect(error).toMatchObject({ code: "credential_invalid", details: { param: "TOKEN" } });
    expect(deliveryOf(error)).toBe("not_sent");
    expect(stub.requests).toHaveLength(0);
  });

  test("an argument that cannot be sent has sent nothing", async () => {
    const record = recordOf(
      definition(
        { parameters: { type: "object", properties: { q: { type: "string" } }, required: ["q"] } },
        { base_url: `${stub.url}/look/{q}` },
      ),
    );
    const error = await failureOf((await invoke({ plugins: [record] }, "plugin://lookup", { q: ".." })).reply);
    expect(error).toMatchObject({ code: "invalid_arguments", details: { param: "q" } });
    expect(deliveryOf(error)).toBe("not_sent");
    expect(stub.requests).toHaveLength(0);
  });

  test("cancelling ends the call, its fate open", async () => {
    const controller = new AbortController();
    stub.answer = () => {
      controller.abort();
      return { delayMs: 5_000 };
    };
    const { reply } = await invoke(
      { plugins: [recordOf(definition())], signal: controller.signal },
      "plugin://lookup",
      {},
    );
    const error = await failureOf(reply);
    expect(error.code).toBe("call_cancelled");
    expect(deliveryOf(error)).toBe("uncertain");
  });

  test("the time limit of the URI beats the definition's", async () => {
    stub.answer = () => ({ delayMs: 2_000 });
    const record = recordOf(definition({}, { timeout_ms: 60_000 }));
    const { reply } = await invoke({ plugins: [record] }, "plugin://lookup?timeout=50", {});
    const error = await failureOf(reply);
    expect(error.code).toBe("tool_timeout");
    expect(deliveryOf(error)).toBe("uncertain");
  });

  test("a reply beyond the tenant's cap is refused", async () => {
    stub.answer = () => ({ body: "x".repeat(5_000) });
    const { reply } = await invoke(
      { plugins: [recordOf(definition())], settings: { result_max_bytes: 2_000 } },
      "plugin://lookup",
      {},
    );
    expect((await failureOf(reply)).code).toBe("tool_output_too_large");
  });

  test("a name that resolves to an inside address is refused at the call", async () => {
    const egress = openEgress({ allowCidrs: [], resolve: () => Promise.resolve([{ address: "10.0.0.7", family: 4 }]) });
    const record = recordOf(definition({}, { base_url: "https://api.example.com/x" }));
    const { reply } = await invoke({ plugins: [record] }, "plugin://lookup", {}, egress);
    expect(await failureOf(reply)).toMatchObject({ code: "egress_denied" });
  });
});

describe(`explaining a call ${verifies("BLIND-6")}`, () => {
  const record = (): PluginRecord =>
    recordOf(
      definition(
        {
          parameters: {
            type: "object",
            properties: { id: { type: "string", default: "a/b" }, note: { type: "string" } },
          },
          auth_config: {
            type: "api_key",
            mapping: [
              { source: "KEY", target: "X-Key" },
              { source: "SIGN", target: "sign", location: "query" },
            ],
          },
        },
        {
          method: "POST",
          base_url: `${stub.url}/items/{id}?v=1`,
          param_placement: "path",
          headers: { "X-Version": "2" },
          idempotency_header: "X-Once",
        },
      ),
    );

  test("shows what would be sent, whose credential stands where, and no value; nothing is sent", async () => {
    const context = await contextOf({ credentials: { KEY: "sentinel-1" }, userCredentials: { KEY: "sentinel-2" } });
    const explained = await explainBlind(record(), { id: "a/b", note: "hi" }, context);
    expect(explained).toMatchObject({
      method: "POST",
      url: `${stub.url}/items/a%2Fb?v=1&sign=***SIGN`,
      body: '{"note":"hi"}',
      body_bytes: 13,
      credentials: [
        { name: "KEY", level: "user", user_id: "ann", version: 1, location: "header", target: "X-Key" },
        { name: "SIGN", level: "missing", location: "query", target: "sign" },
      ],
    });
    expect(JSON.stringify(explained)).not.toContain("sentinel");
    expect(stub.requests).toHaveLength(0);
  });

  test("is the request that is then sent, but for the masks and the ids of the call", async () => {
    const plugin = record();
    const world = { plugins: [plugin], credentials: { KEY: "real-key", SIGN: "real-sign" } };
    const explained = await explainBlind(plugin, { id: "a/b", note: "hi" }, await contextOf(world));
    await (
      await invoke(world, "plugin://lookup", { note: "hi" })
    ).reply;
    const sent = onlyRequest();
    const unmask = (text: string): string =>
      text.replace("***KEY", "real-key").replace("***SIGN", "real-sign").replace("<id of the call>", "call_1");
    expect(`${stub.url}${sent.target}`).toBe(unmask(explained.url));
    const pairs = explained.headers.map(([name, value]) => [
      name,
      name === "traceparent" ? sent.headers["traceparent"] : unmask(value),
    ]);
    expect(sent.rawHeaders).toEqual(pairs.flat());
    expect(sent.body.toString()).toBe(explained.body);
  });

  test("refuses what the call would refuse", async () => {
    const error = await failureOf(explainBlind(record(), { id: ".." }, await contextOf({})));
    expect(error).toMatchObject({ code: "invalid_arguments", details: { param: "id" } });
  });
});
