/** `svc://` through the whole gateway, against servers of gRPC and HTTP and the registries that know them (SVC-1 to SVC-4). */
import { constants, createServer as createHttp2Server } from "node:http2";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { status as grpcStatus } from "@grpc/grpc-js";
import { jwtVerify } from "jose";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Client, Json, Reply } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import {
  descriptorSetNamed,
  descriptorSetOf,
  loyaltyDescriptors,
  startGrpcPeer,
  type GrpcPeer,
  type GrpcPeerOptions,
} from "../support/grpc-peer.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import {
  powerlessToken,
  startConsul,
  startKubernetes,
  startNacos,
  type RegistryStub,
} from "../support/schemes/registries.ts";
import { localCertificate, localKey } from "../support/tls-pair.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
const open: { close(): Promise<void> }[] = [];
beforeAll(async () => {
  gateway = await startGateway();
});
afterAll(async () => {
  await gateway.close();
  await Promise.all(open.map((each) => each.close()));
});

async function opened<Opened extends { close(): Promise<void> }>(starting: Promise<Opened>): Promise<Opened> {
  const started = await starting;
  open.push(started);
  return started;
}

const grpcPeer = (options: GrpcPeerOptions = {}): Promise<GrpcPeer> => opened(startGrpcPeer(options));
const at = (...ports: readonly number[]): Json => ports.map((port) => ({ host: "127.0.0.1", port }));

async function serviceOf(config: Json): Promise<{ readonly client: Client; readonly id: string }> {
  const { client } = await gateway.newTenant();
  const { id } = await client.post("/v1/tool-services", { scheme: "svc", service_id: "loyalty", config });
  return { client, id };
}

const invoke = (client: Client, tool: string, args: Json = {}): Promise<Reply> =>
  client.send("post", "/v1/tools/invoke", { uri: `svc://loyalty/${tool}`, arguments: args });

async function result(client: Client, tool: string, args: Json = {}): Promise<Json> {
  const { json, status, text } = await invoke(client, tool, args);
  if (status !== 200) throw new Error(text);
  return JSON.parse(json.content);
}

async function refusal(client: Client, tool: string, args: Json = {}): Promise<Json> {
  const { json, status } = await invoke(client, tool, args);
  return { ...json.error, status };
}

describe(`a gRPC service ${verifies("SVC-1")}`, () => {
  const described = { protocol: "grpc", grpc: { descriptors: loyaltyDescriptors } };

  test("is called by method, with arguments and answers as JSON", async () => {
    const peer = await grpcPeer();
    peer.answer = () => ({
      message: { customers: [{ customerId: "C001", level: "GOLD" }], totalCount: "9007199254740993" },
    });
    const { client } = await serviceOf({
      ...described,
      endpoints: at(peer.port),
      auth_type: "bearer",
      auth_config: { token: "sentinel-token" },
      headers: { "X-Region": "eu" },
    });
    const answer = await result(client, "loyalty.v1.Customers/List?timeout=4000", { page: 2, level: "SILVER" });
    expect(answer).toMatchObject({
      customers: [{ customerId: "C001", level: "GOLD", name: "", points: {} }],
      totalCount: "9007199254740993",
    });
    expect(peer.asked).toMatchObject([
      {
        path: "/loyalty.v1.Customers/List",
        request: { page: 2, level: "SILVER" },
        metadata: {
          authorization: "Bearer sentinel-token",
          "x-region": "eu",
          traceparent: expect.stringMatching(/^00-/),
        },
      },
    ]);
  });

  test("has its methods as tools, with schemas, comments and effects", async () => {
    const peer = await grpcPeer();
    const tools = { "customers/watch": { method: "loyalty.v1.Customers/Watch", max_messages: 2 } };
    const { client, id } = await serviceOf({ ...described, endpoints: at(peer.port), tools });
    const { data } = await client.get(`/v1/tool-services/${id}/tools`);
    const byUri = Object.fromEntries(data.map((tool: Json) => [tool.uri, tool]));
    expect(Object.keys(byUri).sort()).toEqual([
      "svc://loyalty/customers/watch",
      "svc://loyalty/loyalty.v1.Customers/Create",
      "svc://loyalty/loyalty.v1.Customers/List",
      "svc://loyalty/loyalty.v1.Customers/SetPoints",
      "svc://loyalty/loyalty.v1.Echo/Say",
    ]);
    expect(byUri["svc://loyalty/loyalty.v1.Customers/List"]).toMatchObject({
      description: "Lists customers, page by page.",
      effect: "read",
      parameters: { properties: { page: { type: "integer" } } },
    });
    expect(byUri["svc://loyalty/loyalty.v1.Customers/Create"].effect).toBe("write");
    expect(peer.asked).toEqual([]);
  });

  test("refuses keys that the message does not have before anything leaves", async () => {
    const peer = await grpcPeer();
    const { client } = await serviceOf({ ...described, endpoints: at(peer.port) });
    const error = await refusal(client, "loyalty.v1.Customers/Create", { name: "Ada", colour: "red" });
    expect(error).toMatchObject({ status: 400, code: "invalid_arguments", message: expect.stringContaining("colour") });
    expect(peer.asked).toEqual([]);
  });

  test("collects the messages of a stream, as many as are wanted", async () => {
    const peer = await grpcPeer();
    peer.answer = () => ({ messages: [{ kind: "a" }, { kind: "b" }, { kind: "c" }] });
    const tools = { some: { method: "loyalty.v1.Customers/Watch", max_messages: 2 } };
    const config = { ...described, grpc: { ...described.grpc, emit_defaults: false }, endpoints: at(peer.port) };
    const all = await serviceOf(config);
    expect(await result(all.client, "loyalty.v1.Customers/Watch")).toEqual({
      messages: [{ kind: "a" }, { kind: "b" }, { kind: "c" }],
    });
    const some = await serviceOf({ ...config, tools });
    expect(await result(some.client, "some")).toEqual({ messages: [{ kind: "a" }, { kind: "b" }], truncated: true });
  });

  test.each([
    ["INVALID_ARGUMENT", 400, "invalid_arguments"],
    ["NOT_FOUND", 502, "tool_failed"],
    ["PERMISSION_DENIED", 502, "tool_failed"],
    ["UNAVAILABLE", 502, "tool_failed"],
    ["DEADLINE_EXCEEDED", 502, "outcome_unknown"],
  ] as const)("says %s in the words of the catalogue", async (name, http, code) => {
    const peer = await grpcPeer();
    peer.answer = () => ({ status: grpcStatus[name], details: "nein: 没有" });
    const { client } = await serviceOf({ ...described, endpoints: at(peer.port) });
    const error = await refusal(client, "loyalty.v1.Customers/Create", { name: "Ada" });
    expect(error).toMatchObject({ status: http, code });
    expect(error.message).toContain(code === "outcome_unknown" ? "" : `${name}: nein: 没有`);
    expect(peer.asked).toHaveLength(1);
  });

  test("is asked again where a read was not available", async () => {
    const peer = await grpcPeer();
    peer.answer = ({ path }) =>
      peer.asked.length === 1 ? { status: grpcStatus.UNAVAILABLE, details: path } : { message: {} };
    const { client } = await serviceOf({ ...described, endpoints: at(peer.port) });
    await result(client, "loyalty.v1.Customers/List?max-attempts=2");
    expect(peer.asked).toHaveLength(2);
  });

  test("is called by a new connection where it ends the old one and refuses unseen what came by that, writes too", async () => {
    let asked = 0;
    const server = createHttp2Server();
    server.on("stream", (stream) => {
      asked += 1;
      stream.on("error", () => undefined);
      if (asked === 2) {
        stream.session?.goaway(constants.NGHTTP2_NO_ERROR, 1);
        stream.close(constants.NGHTTP2_REFUSED_STREAM);
        return;
      }
      stream.respond({ "content-type": "application/grpc" }, { waitForTrailers: true });
      stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
      // A message that says nothing.
      stream.end(Buffer.alloc(5));
    });
    await new Promise<void>((done) => void server.listen(0, "127.0.0.1", done));
    open.push({ close: () => new Promise((done) => void server.close(() => done())) });
    const { client } = await serviceOf({ ...described, endpoints: at((server.address() as AddressInfo).port) });
    for (const name of ["Ada", "Bob"])
      expect((await invoke(client, "loyalty.v1.Customers/Create", { name })).status).toBe(200);
    expect(asked).toBe(3);
  });

  test.each([
    ["v1", "protoc"],
    ["v1alpha", "protoc"],
    ["v1", "protobufjs"],
  ] as const)(
    "describes itself by reflection %s where nothing is uploaded, with descriptors that %s has made",
    async (reflection, describedBy) => {
      const peer = await grpcPeer({ reflection, describedBy, health: "serving" });
      peer.answer = ({ request }) => ({ message: request });
      const { client, id } = await serviceOf({ protocol: "grpc", endpoints: at(peer.port) });
      expect(
        await result(client, "loyalty.v1.Echo/Say", {
          anInt64: "5",
          packed: { "@type": "type.googleapis.com/shop.Money", amount: "7" },
        }),
      ).toMatchObject({ anInt64: "5" });
      const { data } = await client.get(`/v1/tool-services/${id}/tools`);
      expect(data.map((tool: Json) => tool.uri)).toContain("svc://loyalty/loyalty.v1.Customers/List");
      expect(await refusal(client, "loyalty.v1.Echo/Nothing")).toMatchObject({ status: 404, code: "tool_not_found" });
      expect(await client.post(`/v1/tool-services/${id}/test`)).toMatchObject({
        ok: true,
        detail: expect.stringContaining("serving"),
      });
    },
  );

  test("without reflection and descriptors says what to upload; one that does not serve fails its test", async () => {
    const peer = await grpcPeer({ health: "not_serving" });
    const { client, id } = await serviceOf({ protocol: "grpc", endpoints: at(peer.port) });
    const error = await refusal(client, "loyalty.v1.Customers/List");
    expect(error).toMatchObject({ code: "tool_failed", message: expect.stringContaining("config.grpc.descriptors") });
    expect(await client.post(`/v1/tool-services/${id}/test`)).toMatchObject({ ok: false });
  });

  test("is reached over TLS, with a certificate of our own where it asks for one", async () => {
    const tls = { cert: localCertificate, key: localKey, ca: localCertificate };
    const peer = await grpcPeer({ tls });
    peer.answer = () => ({ message: { totalCount: "1" } });
    const endpoints = at(peer.port);
    const own = { ca: localCertificate, cert: localCertificate, key: localKey };
    const known = await serviceOf({ ...described, endpoints, tls: own });
    expect(await result(known.client, "loyalty.v1.Customers/List")).toMatchObject({ totalCount: "1" });
    const named = await serviceOf({ ...described, endpoints, tls: { ...own, server_name: "localhost" } });
    expect(await result(named.client, "loyalty.v1.Customers/List")).toMatchObject({ totalCount: "1" });
    for (const bad of [
      { ca: localCertificate },
      { ...own, server_name: "other.example.com" },
      { cert: own.cert, key: own.key },
    ]) {
      const { client } = await serviceOf({ ...described, endpoints, tls: bad });
      expect(await refusal(client, "loyalty.v1.Customers/List")).toMatchObject({
        status: 502,
        code: "tool_unreachable",
      });
    }
  });

  test("that is no gRPC server is told as such", async () => {
    const http = await opened(startHttpStub());
    const { client } = await serviceOf({ ...described, endpoints: at(http.port) });
    expect(await refusal(client, "loyalty.v1.Customers/List?timeout=3000")).toMatchObject({
      status: 502,
      code: "tool_unreachable",
    });
  });

  test.each([
    [{ grpc: { descriptors: "not base64!" } }, "config.grpc.descriptors"],
    [{ grpc: { descriptors: "AAAA" } }, "config.grpc.descriptors"],
    [{ grpc: { descriptors: loyaltyDescriptors, services: ["loyalty.v1.Nobody"] } }, "config.grpc.services.0"],
    [{ tools: { x: { method: "loyalty.v1.Customers/Nothing" } } }, "config.tools.x.method"],
    [{ tools: { x: { method: "loyalty.v1.Customers/Import" } } }, "config.tools.x.method"],
    [{ tools: { x: { endpoint: "/x" } } }, "config.tools.x.endpoint"],
    [{ headers: { "grpc-timeout": "1S" } }, "config.headers.grpc-timeout"],
    [{ base_path: "/v1" }, "config.base_path"],
    [{ endpoints: [{ host: "169.254.169.254", port: 80 }] }, "config.endpoints.0.host"],
    [{ endpoints: null }, "config.endpoints"],
    [{ discovery: { type: "consul", url: "http://127.0.0.1:8500", service: "loyalty" } }, "config.endpoints"],
  ])("is refused with the field %#", async (change: Json, param) => {
    const { client } = await gateway.newTenant();
    const config: Json = { ...described, endpoints: at(1), ...change };
    if (config.endpoints === null) delete config.endpoints;
    const { status, json } = await client.send("post", "/v1/tool-services", { scheme: "svc", service_id: "x", config });
    expect([status, json.error?.param], JSON.stringify(json)).toEqual([param.includes("host") ? 403 : 400, param]);
  });
});

describe(`an uploaded descriptor set ${verifies("SVC-1", "CFG-1")}`, () => {
  let client: Client;
  beforeAll(async () => {
    client = (await gateway.newTenant()).client;
  });
  const upload = (raw: Uint8Array<ArrayBuffer>, by = client): Promise<Reply> =>
    by.send("post", "/v1/descriptor-sets", undefined, { raw });

  test("is kept as it is under the name of its content, and says what is in it", async () => {
    const bytes = descriptorSetNamed("kept");
    const { status, json } = await upload(bytes);
    expect(status).toBe(201);
    expect(json).toMatchObject({ object: "descriptor_set", bytes: bytes.byteLength, used_by: [] });
    expect(json.services).toContainEqual({ name: "loyalty.v1.Customers", methods: expect.arrayContaining(["List"]) });
    const again = await upload(bytes);
    expect([again.status, again.json.id]).toEqual([200, json.id]);
    expect(await client.get(`/v1/descriptor-sets/${json.id}`)).toEqual(json);
  });

  test("goes before what the server says of itself, and a service can go on to another and back", async () => {
    const peer = await grpcPeer();
    const first = (await upload(descriptorSetNamed("first"))).json.id;
    const second = (await upload(descriptorSetNamed("second"))).json.id;
    const config = {
      protocol: "grpc",
      endpoints: [{ host: "127.0.0.1", port: peer.port }],
      grpc: { descriptor_set: first },
      tools: { customers_list: { method: "loyalty.v1.Customers/List" } },
    };
    const { id } = await client.post("/v1/tool-services", { scheme: "svc", service_id: "loyalty", config });
    peer.answer = () => ({ message: { customers: [{ name: "Ada" }] } });
    for (const set of [first, second, first]) {
      await client.expect("patch", `/v1/tool-services/${id}`, { config: { grpc: { descriptor_set: set } } });
      const listed = await client.get(`/v1/tool-services/${id}/tools`);
      const tool = listed.data.find(({ uri }: Json) => uri === "svc://loyalty/customers_list");
      expect(tool).toMatchObject({ effect: "read", parameters: { properties: { page: expect.anything() } } });
      expect((await result(client, "customers_list", { page: 1 })).customers[0].name).toBe("Ada");
      expect((await client.get(`/v1/descriptor-sets/${set}`)).used_by).toEqual(["svc://loyalty"]);
    }
    const inUse = await client.send("delete", `/v1/descriptor-sets/${first}`);
    expect([inUse.status, inUse.json.error.code]).toEqual([409, "conflict"]);
    expect(inUse.json.error.message).toContain("svc://loyalty");
    expect((await client.send("delete", `/v1/descriptor-sets/${second}`)).status).toBe(204);
    expect((await client.send("get", `/v1/descriptor-sets/${second}`)).status).toBe(404);
  });

  test.each<[string, Uint8Array<ArrayBuffer>, RegExp]>([
    ["no FileDescriptorSet", new Uint8Array(Buffer.from('syntax = "proto3";')), /FileDescriptorSet|no service/],
    ["nothing", new Uint8Array(), /no service/],
    ["without a service", new Uint8Array(Buffer.from("CgkKB2EucHJvdG8=", "base64")), /no service/],
    // As protoc writes it without --include_imports.
    ["without what it imports", descriptorSetOf("loyalty.proto"), /imports 'money\.proto', which is not among them/],
  ])("is refused where it is %s", async (_what, bytes, reason) => {
    const { status, json } = await upload(bytes);
    expect([status, json.error.code, json.error.param]).toEqual([400, "invalid_definition", "body"]);
    expect(json.error.message).toMatch(reason);
  });

  test("is refused where it is too large", async () => {
    const { status, json } = await upload(new Uint8Array(8_388_609));
    expect([status, json.error.code, json.error.limit_bytes]).toEqual([413, "payload_too_large", 8_388_608]);
  });

  test("that is not there, is another tenant's or lacks a method is said by the field of the configuration", async () => {
    const { client: stranger } = await gateway.newTenant();
    const theirs = (await upload(descriptorSetNamed("theirs"), stranger)).json.id;
    const ours = (await upload(descriptorSetNamed("ours"))).json.id;
    const base = { protocol: "grpc", endpoints: [{ host: "127.0.0.1", port: 9 }] };
    const refused = async (grpc: Json, tools: Json = {}): Promise<Json> => {
      const config = { ...base, grpc, tools };
      const body = { scheme: "svc", service_id: "refused", config };
      return (await client.send("post", "/v1/tool-services", body)).json.error;
    };
    expect(await refused({ descriptor_set: theirs })).toMatchObject({
      code: "invalid_definition",
      param: "config.grpc.descriptor_set",
      message: expect.stringContaining("/v1/descriptor-sets"),
    });
    expect(await refused({ descriptor_set: "loyalty" })).toMatchObject({ param: "config.grpc.descriptor_set" });
    expect(await refused({ descriptor_set: ours, descriptors: loyaltyDescriptors })).toMatchObject({
      param: "config.grpc.descriptor_set",
    });
    expect(await refused({ descriptor_set: ours }, { x: { method: "loyalty.v1.Customers/None" } })).toMatchObject({
      param: "config.tools.x.method",
    });
  });
});

describe(`an HTTP service ${verifies("SVC-2")}`, () => {
  const listing = { customers_list: { description: "Lists customers.", endpoint: "/customers" } };

  test("gets a token of its own with each call, for its audience and a short time", async () => {
    const backEnd = await opened(startHttpStub());
    const key = "a shared secret of thirty-two bytes";
    const { client } = await serviceOf({
      protocol: "http",
      endpoints: at(backEnd.port),
      auth_type: "jwt",
      auth_config: { key, issuer: "toolyard", audience: "loyalty", expires_in_s: 30, claims: { region: "eu" } },
      tools: listing,
    });
    await result(client, "customers_list");
    await result(client, "customers_list");
    const tokens = backEnd.requests.map(({ headers }) => String(headers["authorization"]).replace("Bearer ", ""));
    const verified = await Promise.all(
      tokens.map((token) => jwtVerify(token, Buffer.from(key), { issuer: "toolyard", audience: "loyalty" })),
    );
    expect(new Set(verified.map(({ payload }) => payload.jti)).size).toBe(2);
    for (const { payload } of verified) {
      expect((payload.exp ?? 0) - (payload.iat ?? 0)).toBe(30);
      expect(payload["region"]).toBe("eu");
    }
  });

  test("is told by name that a key does not sign", async () => {
    const { client } = await serviceOf({
      protocol: "http",
      endpoints: at(9),
      auth_type: "jwt",
      auth_config: { key: "no PEM", algorithm: "RS256", audience: "loyalty" },
      tools: listing,
    });
    expect(await refusal(client, "customers_list")).toMatchObject({
      code: "credential_invalid",
      message: expect.stringContaining("RS256"),
    });
  });

  test("knows us by our certificate", async () => {
    const server = createServer(
      { cert: localCertificate, key: localKey, ca: localCertificate, requestCert: true, rejectUnauthorized: true },
      (_request, response) => response.end('{"ok":true}'),
    );
    await new Promise<void>((done) => void server.listen(0, "127.0.0.1", done));
    open.push({ close: () => new Promise((done) => void server.close(() => done())) });
    const { port } = server.address() as AddressInfo;
    const tls = { ca: localCertificate, cert: localCertificate, key: localKey };
    const known = await serviceOf({ protocol: "http", endpoints: at(port), tls, tools: listing });
    expect(await result(known.client, "customers_list")).toEqual({ ok: true });
    const { client } = await serviceOf({ protocol: "http", endpoints: at(port), tls: { ca: tls.ca }, tools: listing });
    expect((await refusal(client, "customers_list")).code).toBe("tool_unreachable");
  });

  test(`goes on to another instance where one is dead ${verifies("SVC-3")}`, async () => {
    const backEnd = await opened(startHttpStub());
    const { client } = await serviceOf({ protocol: "http", endpoints: at(9, backEnd.port), tools: listing });
    for (let calls = 0; calls < 4; calls += 1) await result(client, "customers_list");
    expect(backEnd.requests).toHaveLength(4);
  });

  test(`answers the fallback when it has failed too often ${verifies("SVC-4")}`, async () => {
    const backEnd = await opened(startHttpStub(() => ({ status: 500 })));
    const breaker = { failures: 2, open_ms: 60_000, fallback: { customers: [] } };
    const config = { protocol: "http", endpoints: at(backEnd.port), tools: listing };
    const { client } = await serviceOf({ ...config, breaker });
    for (let calls = 0; calls < 2; calls += 1)
      expect((await refusal(client, "customers_list?max-attempts=1")).code).toBe("tool_failed");
    expect(await result(client, "customers_list")).toEqual({ customers: [], degraded: true });
    expect(backEnd.requests).toHaveLength(2);
  });
});

describe(`instances ${verifies("SVC-3")}`, () => {
  const listing = { customers_list: { description: "Lists customers.", endpoint: "/customers" } };
  let first: HttpStub;
  let second: HttpStub;
  beforeAll(async () => {
    first = await opened(startHttpStub());
    second = await opened(startHttpStub());
  });

  const refreshed = { refresh_ms: 500 };
  type Started = readonly [registry: RegistryStub, discovery: Json];
  const nacos = async (version: 1 | 2 | 3): Promise<Started> => {
    const user = { username: "nacos", password: "nacos-password" };
    const stub = await startNacos({ version, user });
    return [stub, { type: "nacos", url: stub.url, service: "loyalty", ...user }];
  };
  const registries: readonly (readonly [name: string, start: () => Promise<Started>])[] = [
    [
      "Consul",
      async () => {
        const stub = await startConsul({ token: "consul-token" });
        return [stub, { type: "consul", url: stub.url, service: "loyalty", token: "consul-token" }];
      },
    ],
    ["Nacos with the API of version 1", () => nacos(1)],
    ["Nacos with the API of version 2", () => nacos(2)],
    ["Nacos with the API of version 3", () => nacos(3)],
    [
      "Kubernetes",
      async () => {
        const token = "kubernetes-token";
        const stub = await startKubernetes({ token });
        const place = { service: "loyalty", namespace: "shop", port: "main" };
        return [stub, { type: "kubernetes", url: stub.url, token, ...place }];
      },
    ],
  ];

  const hits = (): readonly number[] => [first.requests.length, second.requests.length];
  const changeOf = (before: readonly number[]): readonly number[] =>
    hits().map((count, index) => count - (before[index] ?? 0));

  test.each(registries)(
    "come from %s, are kept, leave with the next refresh and outlast an outage",
    async (_name, start) => {
      const [registry, discovery] = await start();
      open.push(registry);
      registry.known = [
        { host: "127.0.0.1", port: first.port },
        { host: "127.0.0.1", port: second.port },
        { host: "127.0.0.1", port: 9, healthy: false },
      ];
      const { client } = await serviceOf({
        protocol: "http",
        discovery: { ...discovery, ...refreshed },
        tools: listing,
      });
      const before = hits();
      for (let calls = 0; calls < 4; calls += 1) await result(client, "customers_list");
      expect(changeOf(before)).toEqual([2, 2]);

      registry.known = [{ host: "127.0.0.1", port: second.port }];
      await new Promise((done) => setTimeout(done, 550));
      const between = hits();
      for (let calls = 0; calls < 2; calls += 1) await result(client, "customers_list");
      expect(changeOf(between)).toEqual([0, 2]);

      registry.isDown = true;
      await new Promise((done) => setTimeout(done, 550));
      await result(client, "customers_list");
      expect(changeOf(between)).toEqual([0, 3]);
    },
  );

  test("come anew where Nacos has forgotten our token", async () => {
    const user = { username: "nacos", password: "nacos-password" };
    const registry = await opened(startNacos({ version: 3, user }));
    registry.known = [{ host: "127.0.0.1", port: first.port }];
    const discovery = { type: "nacos", url: registry.url, service: "loyalty", ...user, ...refreshed };
    const { client } = await serviceOf({ protocol: "http", discovery, tools: listing });
    await result(client, "customers_list");
    registry.forgetTokens();
    registry.known = [{ host: "127.0.0.1", port: second.port }];
    await new Promise((done) => setTimeout(done, 550));
    const before = hits();
    await result(client, "customers_list");
    expect(changeOf(before)).toEqual([0, 1]);
  });

  test("are not asked at addresses that may not be reached", async () => {
    const { client } = await gateway.newTenant();
    const discovery = { type: "consul", url: "http://169.254.169.254", service: "loyalty" };
    const service = { scheme: "svc", service_id: "loyalty", config: { protocol: "http", discovery, tools: listing } };
    const { json } = await client.send("post", "/v1/tool-services", service);
    expect(json.error).toMatchObject({ code: "egress_denied", param: "config.discovery.url" });
  });

  test("that nobody may ask for, or that are not there, are told", async () => {
    const registry = await opened(startConsul({ token: "right" }));
    const base = { type: "consul", url: registry.url, service: "loyalty" };
    for (const [token, said] of [
      ["wrong", "refused who is asking (403): ACL not found"],
      [powerlessToken, "the token needs 'read' for the service and for the nodes that it is on"],
    ] as const) {
      const { client } = await serviceOf({ protocol: "http", discovery: { ...base, token }, tools: listing });
      expect(await refusal(client, "customers_list")).toMatchObject({
        code: "credential_invalid",
        param: "config.discovery",
        message: expect.stringContaining(said),
      });
    }
    const gone = await serviceOf({
      protocol: "http",
      discovery: { ...base, url: "http://127.0.0.1:9" },
      tools: listing,
    });
    expect(await refusal(gone.client, "customers_list")).toMatchObject({
      param: "config.discovery",
      message: "The host of 'Consul of loyalty' refused the connection; see 'config.discovery'.",
    });
    for (const [token, said] of [
      [{ token: "right" }, "Consul knows none of 'loyalty' that is well; see 'config.discovery'"],
      [{}, "that is well, or none that may be read without a token; see"],
    ] as const) {
      const { client } = await serviceOf({ protocol: "http", discovery: { ...base, ...token }, tools: listing });
      expect(await refusal(client, "customers_list")).toMatchObject({
        code: "tool_unreachable",
        param: "config.discovery",
        message: expect.stringContaining(said),
      });
    }
  });

  test.each([
    [{ datacenter: "mars" }, "500: No path to datacenter; see"],
    [{ namespace: "team" }, '400: Invalid query parameter: "ns" - Namespaces are a Consul Enterprise feature'],
    [{ partition: "team" }, '400: Invalid query parameter: "partition" - Partitions are a Consul Enterprise feature'],
  ])("are looked for with %j at a Consul that says in plain text why not", async (place, said) => {
    const registry = await opened(startConsul());
    const discovery = { type: "consul", url: registry.url, service: "loyalty", ...place };
    const { client } = await serviceOf({ protocol: "http", discovery, tools: listing });
    expect(await refusal(client, "customers_list")).toMatchObject({
      code: "tool_unreachable",
      param: "config.discovery",
      message: expect.stringContaining(said),
    });
  });

  test("are not told to who cannot log in to Nacos, and why is said, also where it is not there yet", async () => {
    const user = { username: "shop", password: "password-of-shop" };
    const registry = await opened(startNacos({ version: 2, user }));
    const asking = async (change: Json): Promise<Json> => {
      const discovery = { type: "nacos", url: registry.url, service: "loyalty", ...user, ...change };
      return refusal((await serviceOf({ protocol: "http", discovery, tools: listing })).client, "customers_list");
    };
    expect(await asking({ password: "wrong-password" })).toMatchObject({
      code: "credential_invalid",
      message: expect.stringContaining("(403): the login failed: unknown user!; check"),
    });
    expect(await asking({ username: "nobody" })).toMatchObject({
      code: "tool_unreachable",
      message: expect.stringContaining("answered the login with status 500: caused: nobody; (which it says of users"),
    });
    expect(await asking({ url: `${registry.url}/elsewhere` })).toMatchObject({
      code: "tool_unreachable",
      message: expect.stringContaining("correct 'config.discovery.url'"),
    });
    expect(await asking({ username: undefined, password: undefined })).toMatchObject({
      code: "credential_invalid",
      message: expect.stringContaining("(403): user not found!"),
    });
    registry.isStarting = true;
    expect(await asking({})).toMatchObject({
      code: "tool_unreachable",
      retryable: true,
      message: expect.stringContaining("answered the login with status 503: server is STARTING now"),
    });
  });

  test.each([{ namespace: "Shop" }, { service: "loyalty,app=x" }, { service: "x".repeat(64) }])(
    "are not looked for under %j, which Kubernetes has no names for",
    async (names) => {
      const { client } = await gateway.newTenant();
      const place = { type: "kubernetes", url: "https://127.0.0.1:9", token: "secret", service: "loyalty", ...names };
      const config = { protocol: "http", discovery: place, tools: listing };
      const { json } = await client.send("post", "/v1/tool-services", { scheme: "svc", service_id: "loyalty", config });
      expect(json.error).toMatchObject({
        code: "invalid_definition",
        param: `config.discovery.${Object.keys(names)[0]}`,
        message: expect.stringContaining("must be a name of Kubernetes"),
      });
    },
  );

  test("have ports that are named where Kubernetes knows none of those asked for", async () => {
    const token = "kubernetes-token";
    const registry = await opened(startKubernetes({ token }));
    registry.known = [{ host: "127.0.0.1", port: first.port }];
    const discovery = { type: "kubernetes", url: registry.url, token, service: "loyalty", namespace: "shop" };
    const { client } = await serviceOf({ protocol: "http", discovery: { ...discovery, port: 80 }, tools: listing });
    expect(await refusal(client, "customers_list")).toMatchObject({
      code: "tool_unreachable",
      message: expect.stringContaining(`has TCP port main (${first.port}), metrics (9) of its endpoints`),
    });
    const before = hits();
    const usual = await serviceOf({ protocol: "http", discovery, tools: listing });
    await result(usual.client, "customers_list");
    expect(changeOf(before)).toEqual([1, 0]);
  });

  test("of a gRPC service come from a registry, too", async () => {
    const peer = await grpcPeer();
    const registry = await opened(startConsul());
    registry.known = [{ host: "127.0.0.1", port: peer.port }];
    const { client } = await serviceOf({
      protocol: "grpc",
      grpc: { descriptors: loyaltyDescriptors },
      discovery: { type: "consul", url: registry.url, service: "loyalty" },
    });
    await result(client, "loyalty.v1.Customers/List");
    expect(peer.asked).toHaveLength(1);
  });
});
