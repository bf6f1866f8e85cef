/**
 * Where credentials may stand in a request of a plugin, the path and the body included: they arrive there, and are told
 * nowhere (BLIND-3, BLIND-6). A stored value may have several lines, as keys in PEM form have. Wherever one leaves, it arrives whole, or the call is
 * refused before anything is sent: a line break would end a header, and begin another (BLIND-10).
 */
import { generateKeyPairSync, type KeyObject } from "node:crypto";
import { jwtVerify } from "jose";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { loyaltyDescriptors, startGrpcPeer } from "../support/grpc-peer.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { startVendorStub } from "../support/sms-vendors.ts";
import { startSmtpStub } from "../support/smtp-stub.ts";
import { localCertificate } from "../support/tls-pair.ts";
import { verifies } from "../support/verifies.ts";

const lines = "first line\r\nX-Evil: 1";
/** Prints its variable. */
const program = `
  process.stdin.on("data", (part) => {
    for (const line of String(part).split("\\n").filter(Boolean)) {
      const { id, method } = JSON.parse(line);
      const send = (result) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id, result }) + "\\n");
      if (method === "initialize") send({ protocolVersion: "2025-06-18", capabilities: { tools: {} }, serverInfo: { name: "env" } });
      if (method === "tools/list") send({ tools: [{ name: "say", inputSchema: { type: "object" } }] });
      const is = process.env.LINES === "first line\\r\\nX-Evil: 1";
      if (method === "tools/call") send({ content: [{ type: "text", text: is ? "whole" : "torn" }] });
    }
  });
`;

let gateway: Gateway;
let backEnd: HttpStub;
let tenant: TestTenant;

beforeEach(() => {
  backEnd.answer = () => ({ body: "{}" });
});

beforeAll(async () => {
  const commands = { env: { command: [process.execPath, "-e", program], env: ["LINES"] } };
  gateway = await startGateway({ env: { TOOLYARD_MCP_COMMANDS: JSON.stringify(commands) } });
  backEnd = await startHttpStub();
  tenant = await gateway.newTenant();
  await tenant.putCredential("LINES", lines);
  await tenant.putCredential("PLAIN", "plain-value");
});
afterAll(async () => {
  await gateway.close();
  await backEnd.close();
});

const reference = { credential: "LINES" };
const listing = { list: { description: "Lists.", endpoint: "/list" } };

const addService = (scheme: string, serviceId: string, config: Json): Promise<Json> =>
  tenant.client.post("/v1/tool-services", { scheme, service_id: serviceId, config });
const invoke = (call: Json): Promise<Reply> => tenant.client.send("post", "/v1/tools/invoke", call);

async function usePlugin(name: string, type: string, mapping: Json): Promise<Reply> {
  await tenant.addPlugin({
    name,
    execution: {
      method: "GET",
      base_url: `${backEnd.url}/${mapping.location === "path" ? "{key}" : "x"}`,
      param_placement: "query",
    },
    auth_config: { type, mapping: [{ source: "LINES", ...mapping }] },
  });
  return invoke({ name });
}

async function useService(scheme: string, serviceId: string, tool: string, config: Json): Promise<Reply> {
  await addService(scheme, serviceId, config);
  return invoke({ uri: `${scheme}://${serviceId}/${tool}` });
}

async function useProvider(path: string, model: string, body: Json): Promise<Reply> {
  await tenant.addProvider(`${backEnd.url}/v1`, { credential: "LINES", models: { [model]: model } });
  return tenant.client.send("post", path, { model, ...body });
}

const bearer = { auth_type: "bearer", auth_config: { token: reference } };
const endpoints = (): Json => [{ host: "127.0.0.1", port: backEnd.port }];

const ways: Readonly<Record<string, () => Promise<Reply>>> = {
  "a header of a plugin": () => usePlugin("in_header", "api_key", { target: "X-Key", location: "header" }),
  "a cookie of a plugin": () => usePlugin("in_cookie", "api_key", { target: "Cookie", location: "header" }),
  "a path of a plugin": () => usePlugin("in_path", "api_key", { target: "key", location: "path" }),
  "a body of a plugin": () => usePlugin("in_body", "api_key", { target: "key", location: "body" }),
  "a query of a plugin": () => usePlugin("in_query", "api_key", { target: "key", location: "query" }),
  "a bearer token of a plugin": () => usePlugin("as_bearer", "bearer", {}),
  "a user name of a plugin": () => usePlugin("as_user", "basic", { target: "username", location: "header" }),
  "an HTTP service": () => useService("api", "web", "list", { base_url: backEnd.url, ...bearer, tools: listing }),
  "a microservice": () =>
    useService("svc", "web", "list", { protocol: "http", endpoints: endpoints(), ...bearer, tools: listing }),
  "the token of Consul": () =>
    useService("svc", "consul", "list", {
      protocol: "http",
      discovery: { type: "consul", url: backEnd.url, service: "x", token: reference },
      tools: listing,
    }),
  "the token of Kubernetes": () =>
    useService("svc", "kubernetes", "list", {
      protocol: "http",
      discovery: { type: "kubernetes", url: backEnd.url, service: "x", namespace: "y", token: reference },
      tools: listing,
    }),
  "an MCP server": () => useService("mcp", "web", "say", { url: backEnd.url, ...bearer }),
  "keys of an object store": () =>
    useService("oss", "store", "list", {
      vendor: "minio",
      bucket: "bucket",
      endpoint: backEnd.url,
      region: "us-east-1",
      access_key_id: { credential: "PLAIN" },
      secret_access_key: { credential: "PLAIN" },
      session_token: reference,
    }),
  "the key of a chat": () =>
    useProvider("/v1/chat/completions", "chats", { messages: [{ role: "user", content: "x" }] }),
  "the key of an embedding": () => useProvider("/v1/embeddings", "vectors", { input: "x" }),
};

describe(`a credential of several lines ${verifies("BLIND-10", "BLIND-5")}`, () => {
  test.each(Object.entries(ways))("is refused in %s, before anything is sent", async (_way, use) => {
    const before = backEnd.requests.length;
    const { json, text } = await use();
    expect(json.error, text).toMatchObject({ code: "credential_invalid", param: "LINES" });
    expect(text).not.toContain("X-Evil");
    expect(backEnd.requests).toHaveLength(before);
  });

  test("is refused in metadata of gRPC, before anything is sent", async () => {
    const peer = await startGrpcPeer();
    try {
      const { json, text } = await useService("svc", "grpc", "loyalty.v1.Customers/List", {
        protocol: "grpc",
        grpc: { descriptors: loyaltyDescriptors },
        endpoints: [{ host: "127.0.0.1", port: peer.port }],
        ...bearer,
      });
      expect(json.error, text).toMatchObject({ code: "credential_invalid", param: "LINES" });
      expect(peer.asked).toEqual([]);
    } finally {
      await peer.close();
    }
  });

  test("arrives whole as a variable of a process", async () => {
    const config = { transport: "stdio", command: "env", env: { LINES: reference } };
    const { json, text } = await useService("mcp", "process", "say", config);
    expect(json.content, text).toBe("whole");
  });

  test("arrives whole as a password of a mail server", async () => {
    const smtp = await startSmtpStub({ user: { name: "shop", password: lines } });
    try {
      const { port } = smtp;
      const login = { host: "127.0.0.1", port, tls: { ca: localCertificate }, username: "shop", password: reference };
      await addService("mail", "shop", { ...login, from: "shop@example.com", profiles: { one: {} } });
      const args = { to: "user@example.com", subject: "Hello", body: "you" };
      const { status, text } = await invoke({ uri: "mail://shop/one", arguments: args });
      expect([status, smtp.mails.length], text).toEqual([200, 1]);
    } finally {
      await smtp.close();
    }
  });

  test.each([
    ["twilio", "auth_token"],
    ["tencent", "token"],
    ["aliyun", "security_token"],
  ] as const)("is no header of its own as the secret of an SMS account: %s", async (vendor, secret) => {
    const stub = await startVendorStub(vendor);
    try {
      const account = { ...stub.account, [secret]: reference };
      const config = { vendor, account, sign_name: "示例签名", country_code: "86", profiles: { code: {} } };
      await addService("sms", vendor, config);
      const args = { to: "+8613800000000", template: stub.template, params: { code: "012345" } };
      const { json } = await invoke({ uri: `sms://${vendor}/code`, arguments: args });
      expect(json.error.code).toBe("credential_invalid");
      expect(JSON.stringify(stub.sent)).not.toContain("evil");
    } finally {
      await stub.close();
    }
  });
});

describe(`a credential in path and body ${verifies("BLIND-3", "BLIND-6", "BLIND-9")}`, () => {
  const secrets = { BOT: "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw", SIGN: 'quoted "sign" & more' };

  test("arrives where its definition says, and whoever calls sees none of it", async () => {
    backEnd.answer = ({ target, body }) => ({
      status: 400,
      body: JSON.stringify({
        asked: `${backEnd.url}${target}`,
        sent: body.toString(),
        decoded: decodeURIComponent(target),
      }),
    });
    for (const [name, value] of Object.entries(secrets)) await tenant.putCredential(name, value);
    await tenant.addPlugin({
      name: "send_message",
      parameters: { type: "object", properties: { text: { type: "string" } }, required: ["text"] },
      execution: { method: "POST", base_url: `${backEnd.url}/bot{bot}/sendMessage`, param_placement: "body" },
      auth_config: {
        type: "api_key",
        mapping: [
          { source: "BOT", target: "bot", location: "path" },
          { source: "SIGN", target: "sign", location: "body" },
        ],
      },
    });
    const { json, text } = await invoke({ name: "send_message", arguments: { text: "hi", bot: "mine", sign: "mine" } });
    const sent = backEnd.requests.at(-1);
    expect([sent?.target, JSON.parse(String(sent?.body))]).toEqual([
      `/bot${secrets.BOT}/sendMessage`,
      { text: "hi", sign: secrets.SIGN },
    ]);
    expect(json.error.code).toBe("tool_failed");
    const told = [text, JSON.stringify(await tenant.client.get("/v1/calls?limit=5")), JSON.stringify(gateway.logged)];
    expect(told.join()).not.toMatch(/AAHdqTcv|quoted/);

    const { request } = await tenant.client.post("/v1/tools/explain", {
      name: "send_message",
      arguments: { text: "hi" },
    });
    expect(request).toMatchObject({
      url: `${backEnd.url}/bot***BOT/sendMessage`,
      body: '{"text":"hi","sign":"***SIGN"}',
      credentials: [
        { name: "BOT", level: "tenant", location: "path", target: "bot" },
        { name: "SIGN", level: "tenant", location: "body", target: "sign" },
      ],
    });
  });

  test("follows no redirect to another host", async () => {
    const other = await startHttpStub();
    backEnd.answer = () => ({ status: 307, headers: { location: `${other.url}/there` } });
    await tenant.addPlugin({
      name: "sign_in",
      execution: { method: "POST", base_url: `${backEnd.url}/in`, param_placement: "body" },
      auth_config: { type: "api_key", mapping: [{ source: "PLAIN", target: "secret", location: "body" }] },
    });
    const { json } = await invoke({ name: "sign_in" });
    await other.close();
    expect([json.error.code, json.error.reason]).toEqual(["egress_denied", "secret_redirected"]);
    expect(other.requests).toEqual([]);
  });

  test.each(["path", "body"])("has no place in a service, which says so: %s", async (location) => {
    const { status, json } = await tenant.client.send("post", "/v1/tool-services", {
      scheme: "api",
      service_id: `mapped-${location}`,
      config: {
        base_url: backEnd.url,
        auth_type: "mapping",
        auth_config: { type: "api_key", mapping: [{ source: "PLAIN", target: "key", location }] },
        tools: listing,
      },
    });
    expect([status, json.error.param]).toEqual([400, "config.auth_config.mapping.0.location"]);
    expect(json.error.message).toContain("make it a plugin");
  });
});

describe(`a key in PEM form ${verifies("BLIND-5", "SVC-2")}`, () => {
  const pem = (key: KeyObject): string => key.export({ type: "pkcs8", format: "pem" }).toString();

  test("is stored as it stands in its file, and signs", async () => {
    const { privateKey, publicKey } = generateKeyPairSync("rsa", { modulusLength: 2_048 });
    const key = pem(privateKey);
    expect(key.endsWith("\n")).toBe(true);
    await tenant.putCredential("PEM", key);
    await addService("svc", "signed", {
      protocol: "http",
      endpoints: endpoints(),
      auth_type: "jwt",
      auth_config: { algorithm: "RS256", key: { credential: "PEM" }, audience: "loyalty" },
      tools: listing,
    });
    const { status, text } = await invoke({ uri: "svc://signed/list" });
    expect(status, text).toBe(200);
    const token = String(backEnd.requests.at(-1)?.headers["authorization"]).replace("Bearer ", "");
    await expect(jwtVerify(token, publicKey, { audience: "loyalty" })).resolves.toBeDefined();
  });
});
