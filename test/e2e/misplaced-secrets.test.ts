/** Secrets where they do not belong: in the place of a name, in a header or an address. Everybody would be told of them. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { verifies } from "../support/verifies.ts";

const key = "sk-proj-Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4z";

let gateway: Gateway;
let tenant: TestTenant;

beforeAll(async () => {
  gateway = await startGateway();
  tenant = await gateway.newTenant();
});
afterAll(() => gateway.close());

const send = (path: string, body: Json): Promise<Reply> => tenant.client.send("post", path, body);

const plugin = (execution: Json, auth?: Json): Promise<Reply> =>
  send("/v1/plugins", {
    schema_version: "v1",
    name: "crm",
    description: "Customers.",
    parameters: { type: "object", properties: {} },
    execution: { method: "GET", base_url: "https://crm.example.com/x", param_placement: "query", ...execution },
    ...(auth === undefined ? {} : { auth_config: auth }),
  });
const service = (config: Json): Promise<Reply> =>
  send("/v1/tool-services", {
    scheme: "api",
    service_id: "crm",
    config: { base_url: "https://crm.example.com", tools: { list: { description: "L.", endpoint: "/l" } }, ...config },
  });

describe(`A secret where everybody would be told of it ${verifies("BLIND-5", "BLIND-6")}`, () => {
  test.each<readonly [string, string, () => Promise<Reply>]>([
    [
      "a provider's credential",
      "credential",
      () =>
        send("/v1/providers", { name: "p", kind: "openai", base_url: "https://llm.example.com/v1", credential: key }),
    ],
    ["a credential's own name", "name", () => tenant.client.send("put", `/v1/credentials/${key}`, { value: "x" })],
    [
      "a plugin's source",
      "auth_config.mapping.0.source",
      () => plugin({}, { type: "bearer", mapping: [{ source: key }] }),
    ],
    [
      "a plugin's fixed header",
      "execution.headers.X-Api-Key",
      () => plugin({ headers: { "X-Api-Key": "abc-123-def" } }),
    ],
    ["a plugin's header by any name", "execution.headers.X-Custom", () => plugin({ headers: { "X-Custom": key } })],
    [
      "a plugin's address",
      "execution.base_url",
      () => plugin({ base_url: "https://crm.example.com/x?api_key=abc-123-def" }),
    ],
    [
      "a service's reference",
      "config.auth_config.token.credential",
      () => service({ auth_type: "bearer", auth_config: { token: { credential: key } } }),
    ],
    [
      "a service's mapping",
      "config.auth_config.mapping.0.source",
      () => service({ auth_type: "mapping", auth_config: { type: "bearer", mapping: [{ source: key }] } }),
    ],
    ["a service's header", "config.headers.X-Custom", () => service({ headers: { "X-Custom": key } })],
    [
      "a service's endpoint",
      "config.tools.list.endpoint",
      () => service({ tools: { list: { description: "L.", endpoint: `/l?api_key=${key}` } } }),
    ],
    ["a service's query", "config.query.q", () => service({ query: { q: key } })],
  ])("is refused as %s, and not repeated", async (_what, param, attempt) => {
    const { status, json } = await attempt();
    expect(status).toBe(400);
    expect(json).toMatchObject({
      error: { param, message: expect.stringMatching(/PUT \/v1\/credentials/) },
    });
    expect(JSON.stringify(json)).not.toContain(key);
  });

  test("is taken with a request's own definitions, which nobody else sees", async () => {
    const definition = {
      schema_version: "v1",
      name: "inline",
      description: "Customers.",
      parameters: { type: "object", properties: {} },
      execution: {
        method: "GET",
        base_url: "http://127.0.0.1:9/x?token=1",
        param_placement: "query",
        headers: { "X-Api-Key": key },
      },
      auth_config: { type: "bearer", mapping: [{ source: key }] },
    };
    const runtime = { plugins: [definition], credentials: { [key]: "value" } };
    const { json } = await send("/v1/tools/invoke", { name: "inline", runtime_config: runtime });
    expect(json).toMatchObject({ error: { code: "tool_unreachable" } });
  });

  test("is taken as a literal where a service takes secrets, and told to nobody", async () => {
    const { status } = await service({ auth_type: "bearer", auth_config: { token: key } });
    expect(status).toBe(201);
    expect(JSON.stringify(await tenant.client.get("/v1/tool-services"))).not.toContain(key);
  });
});
