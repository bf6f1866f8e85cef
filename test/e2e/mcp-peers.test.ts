/** `mcp://` against servers that others have made: the reference servers, and both generations of the SDK. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startEverything, startOldSse, startStateless, startWebSocket, type McpPeer } from "../support/mcp-peers.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let tenant: TestTenant;
beforeAll(async () => {
  gateway = await startGateway({ timing: { cancelPollMs: 50 } });
});
afterAll(() => gateway.close());
beforeEach(async () => {
  tenant = await gateway.newTenant();
});

const addService = (config: Json, serviceId = "peer"): Promise<Json> =>
  tenant.client.post("/v1/tool-services", { scheme: "mcp", service_id: serviceId, config });
const invoke = (uri: string, args: Json = {}): Promise<Reply> =>
  tenant.client.send("post", "/v1/tools/invoke", { uri, arguments: args });
const names = ({ data }: Json): readonly string[] => data.map(({ uri }: Json) => uri.split("/").at(-1));

describe(`the reference server over Streamable HTTP ${verifies("MCP-1", "MCP-2", "MCP-3")}`, () => {
  let peer: McpPeer;
  beforeAll(async () => {
    peer = await startEverything("streamableHttp");
  });
  afterAll(() => peer.close());

  test("lists its tools as soon as the service is there, and says what it is when tested", async () => {
    const { id } = await addService({ url: peer.url });
    const listed = await tenant.client.get(`/v1/tool-services/${id}/tools`);
    expect(names(listed)).toEqual(expect.arrayContaining(["echo", "get-sum", "get-tiny-image"]));
    expect(listed).toMatchObject({ quarantined: [], warnings: [], discovered_at: expect.any(String) });
    const report = await tenant.client.post(`/v1/tool-services/${id}/test`);
    expect(report).toMatchObject({ ok: true, detail: expect.stringContaining("2025-11-25") });
  });

  test("gives text, a structured result, pictures and resources as what they are", async () => {
    await addService({ url: peer.url });
    expect((await invoke("mcp://peer/get-sum", { a: 2, b: 40 })).json.content).toContain("42");
    const structured = await invoke("mcp://peer/get-structured-content", { location: "Chicago" });
    expect(JSON.parse(structured.json.content)).toMatchObject({ temperature: expect.any(Number) });
    const mixed = await invoke("mcp://peer/get-tiny-image");
    expect(mixed.json.content).toMatch(/\[image: image\/png, \d+ bytes\]/);
    expect(mixed.json.content).not.toContain("iVBOR");
    const whole = await tenant.client.send("get", `/v1/calls/${mixed.json.id}/result`);
    expect(whole.json.content).toContainEqual(expect.objectContaining({ type: "image", mimeType: "image/png" }));
    const links = await invoke("mcp://peer/get-resource-links", { count: 2 });
    expect(links.json.content).toMatch(/\[resource link: .*\]/);
    const resource = await invoke("mcp://peer/get-resource-reference", { resourceType: "Text", resourceId: 1 });
    expect(resource.json.content).toContain("[resource ");
  });

  test("passes through what takes its time and tells of its progress", async () => {
    await addService({ url: peer.url });
    const { status, text } = await invoke("mcp://peer/trigger-long-running-operation", { duration: 1, steps: 4 });
    expect(status, text).toBe(200);
    expect(gateway.logged.filter(({ message }) => message.includes("how far")).length).toBeGreaterThan(0);
  });
});

describe(`servers of revision 2026-07-28 ${verifies("MCP-1", "MCP-3")}`, () => {
  test.each([
    ["that speaks nothing else", { alsoSessions: false }],
    ["that speaks the earlier ones as well", { alsoSessions: true }],
  ])("one %s is asked without a session", async (_which, options) => {
    const peer = await startStateless(options);
    try {
      const { id } = await addService({ url: peer.url });
      const { json, text } = await invoke("mcp://peer/echo", { text: "hello" });
      expect(json, text).toMatchObject({ status: "completed", content: "again: hello" });
      const report = await tenant.client.post(`/v1/tool-services/${id}/test`);
      expect(report.detail).toBe("'stateless-peer 2.0.0' speaks 2026-07-28; it has 1 tools.");
    } finally {
      await peer.close();
    }
  });

  test("is spoken to by session where the configuration says so", async () => {
    const peer = await startStateless({ alsoSessions: true });
    try {
      const { id } = await addService({ url: peer.url, protocol: "session" });
      expect((await invoke("mcp://peer/echo", { text: "hello" })).json.content).toBe("again: hello");
      expect((await tenant.client.post(`/v1/tool-services/${id}/test`)).detail).toContain("2025-11-25");
    } finally {
      await peer.close();
    }
  });
});

describe(`HTTP with SSE ${verifies("MCP-1", "MCP-4")}`, () => {
  test.each(["http", "sse"])(
    "is spoken where 'transport' is %s and the server knows nothing newer",
    async (transport) => {
      const peer = await startOldSse();
      try {
        await addService({ url: peer.url, transport });
        const both = await Promise.all(["one", "two"].map((text) => invoke("mcp://peer/echo", { text })));
        expect(both.map(({ json }) => json.content)).toEqual(["again: one", "again: two"]);
        peer.cut();
        // A call that comes before the end has been noticed is sent, and nobody knows what became of it.
        await new Promise((done) => setTimeout(done, 100));
        expect((await invoke("mcp://peer/echo", { text: "three" })).json.content).toBe("again: three");
      } finally {
        await peer.close();
      }
    },
  );

  test("works with the reference server", async () => {
    const peer = await startEverything("sse");
    try {
      await addService({ url: peer.url });
      expect((await invoke("mcp://peer/echo", { message: "hello" })).json.content).toContain("hello");
    } finally {
      await peer.close();
    }
  });
});

describe(`WebSocket ${verifies("MCP-1", "MCP-4", "MCP-5")}`, () => {
  test("one connection serves all calls, with the service's key, and another is opened after it broke", async () => {
    const peer = await startWebSocket("Bearer socket-secret-1");
    try {
      const auth = { auth_type: "bearer", auth_config: { token: "socket-secret-1" } };
      await addService({ transport: "websocket", url: peer.url, ...auth });
      const texts = ["one", "two", "x".repeat(70_000)];
      const answers = await Promise.all(texts.map((text) => invoke("mcp://peer/echo", { text })));
      const contents = answers.map(({ json }) => json.content.slice(0, 10));
      expect(contents).toEqual(["again: one", "again: two", "again: xxx"]);
      expect(peer.opened()).toBe(1);
      peer.cut();
      await expect
        .poll(async () => (await invoke("mcp://peer/echo", { text: "three" })).json.content)
        .toBe("again: three");
      expect(peer.opened()).toBe(2);
    } finally {
      await peer.close();
    }
  });

  test("a server that refuses who is calling, or speaks no WebSocket, is said to", async () => {
    const peer = await startWebSocket("Bearer right");
    const web = await startStateless();
    try {
      const { id } = await addService({ transport: "websocket", url: peer.url });
      const report = await tenant.client.post(`/v1/tool-services/${id}/test`);
      expect(report).toMatchObject({ ok: false, error: { code: "credential_invalid" } });
      await addService({ transport: "websocket", url: web.url }, "web");
      expect((await invoke("mcp://web/echo", { text: "x" })).json.error.code).toMatch(/^tool_(failed|unreachable)$/);
    } finally {
      await peer.close();
      await web.close();
    }
  });

  test("an address that is not to be reached is not reached by socket either", async () => {
    const config = { transport: "websocket", url: "ws://169.254.169.254/mcp" };
    const { json } = await tenant.client.send("post", "/v1/tool-services", { scheme: "mcp", service_id: "in", config });
    expect(json.error).toMatchObject({ code: "egress_denied", param: "config.url" });
  });
});
