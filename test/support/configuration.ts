/** The configuration of a tenant as a document, and things to stand in one. */
import { expect } from "vitest";
import type { Client, Json } from "./gateway-client.ts";

export const path = "/v1/configuration";
export const textOf = async (client: Client): Promise<string> => (await client.send("get", path)).text;
export const plan = (client: Client, configuration: Json, more: Json = {}): Promise<Json> =>
  client.post(`${path}/plan`, { configuration, ...more });
export const apply = (client: Client, configuration: Json, more: Json = {}): Promise<Json> =>
  client.post(`${path}/apply`, { configuration, ...more });
export const refused = async (client: Client, configuration: Json, more: Json = {}): Promise<Json> => {
  const reply = await client.send("post", `${path}/apply`, { configuration, ...more });
  expect(reply.status).toBeGreaterThanOrEqual(400);
  return reply.json.error;
};

export const definition = (name: string, change: Json = {}): Json => ({
  schema_version: "v1",
  name,
  description: "Looks up a customer.",
  parameters: { type: "object", properties: { id: { type: "string" } } },
  execution: { method: "GET", base_url: "https://crm.example.com/customers", param_placement: "query" },
  ...change,
});

export const flow = (name: string): Json => ({
  schema_version: 1,
  name,
  description: "Looks up.",
  start: "look",
  nodes: { look: { kind: "tool", uri: "api://crm/customer_list", arguments: {} } },
});
