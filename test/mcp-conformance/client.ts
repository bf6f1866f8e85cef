/**
 * The client that the conformance suite runs: it has the gateway reach the scenario's server, by an `mcp://`
 * service of a tenant of its own, and calls the server's tools as callers of the gateway do. Started by
 * `conformance client`, with the gateway's address and key and, as the last word, the server's address.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { isJsonObject, parseJson, type JsonObject, type JsonValue } from "@toolyard/core/json";
import { createDriver, type Json, type TestTenant } from "../support/gateway-client.ts";

const [gatewayUrl = "", adminKey = "", url = ""] = process.argv.slice(2);
/** The suite says by variables what it wants. */
const {
  MCP_CONFORMANCE_SCENARIO: scenario = "",
  MCP_CONFORMANCE_PROTOCOL_VERSION: revision = "",
  MCP_CONFORMANCE_CONTEXT: contextText = "",
} = process.env;
const context = parseJson(contextText);

/** What a scenario's service needs beside its address. */
const configs: Readonly<Record<string, JsonObject>> = {
  // The scenario wants what people would be asked answered with the defaults of the form.
  "elicitation-sep1034-client-defaults": { elicitation: "defaults" },
};

/** As somebody does who sets the service up: reads where the server's tokens come from. */
async function authOf(): Promise<JsonObject> {
  if (scenario !== "auth/client-credentials-basic" || !isJsonObject(context)) return {};
  const { origin, pathname } = new URL(url);
  const resource = await readJson(`${origin}/.well-known/oauth-protected-resource${pathname}`);
  const issuer = new URL(resource.authorization_servers[0]);
  const wellKnown = new URL(`/.well-known/oauth-authorization-server${issuer.pathname.replace(/\/$/, "")}`, issuer);
  const { token_endpoint: tokenUrl } = await readJson(wellKnown.href);
  const { client_id: id, client_secret: secret } = context;
  const client = { client_id: id ?? "", client_secret: secret ?? "", token_url: tokenUrl, client_auth: "basic" };
  return { auth_type: "oauth2", auth_config: { ...client, resource: resource.resource } };
}

async function readJson(address: string): Promise<Json> {
  return (await fetch(address)).json();
}

interface ToolCall {
  readonly name: string;
  readonly arguments: JsonObject;
}

function callsOf(listed: Json): readonly ToolCall[] {
  const wanted = isJsonObject(context) ? context["toolCalls"] : undefined;
  if (Array.isArray(wanted)) {
    return wanted
      .filter(isJsonObject)
      .map((call) => ({ name: JSON.stringify(call["name"]).slice(1, -1), arguments: withoutNulls(call["arguments"]) }));
  }
  const echoed = listed.find(({ uri }: Json) => uri.endsWith("/json_schema_2020_12_tool"))?.parameters;
  return listed.map(({ uri, parameters }: Json) => {
    const name = decodeURIComponent(uri.split("/").at(-1));
    return { name, arguments: name === "json_schema_echo" ? { schema: echoed } : required(parameters) };
  });
}

/** What a tool's own schema does not allow, callers of the gateway leave out. */
function withoutNulls(value: unknown): JsonObject {
  return Object.fromEntries(Object.entries(isJsonObject(value) ? value : {}).filter(([, each]) => each !== null));
}

const examples: Readonly<Record<string, JsonValue>> = { string: "text", number: 5, integer: 5, boolean: true };

function required({ required: names = [], properties = {} }: Json): JsonObject {
  return Object.fromEntries(names.map((name: string) => [name, examples[properties[name]?.type] ?? {}]));
}

async function callTool({ client }: TestTenant, { name, arguments: args }: ToolCall): Promise<void> {
  const uri = `mcp://scenario/${encodeURIComponent(name)}`;
  const { json, text } = await client.send("post", "/v1/tools/invoke", { uri, arguments: args });
  process.stdout.write(`${name}: ${text}\n`);
  if (json.status === "input_required") await answer(client, json);
}

/** As a person would who is asked to confirm. */
async function answer(client: TestTenant["client"], { id, input_requests: requests }: Json): Promise<void> {
  const input = Object.fromEntries(
    Object.keys(requests).map((key) => [key, { action: "accept", content: { confirmed: true } }]),
  );
  await client.post(`/v1/calls/${id}/approve`, { input });
  for (;;) {
    const call = await client.get(`/v1/calls/${id}`);
    if (!["queued", "running"].includes(call.state)) {
      process.stdout.write(`${JSON.stringify(parseJson(JSON.stringify(call)))}\n`);
      return;
    }
    await sleep(100);
  }
}

const driver = createDriver(gatewayUrl, adminKey);
const tenant = await driver.newTenant();
// A server that is asked for by an older revision is met by it, as services of such servers are configured.
const protocol = revision === "2026-07-28" ? "auto" : "session";
const config = { url, protocol, ...configs[scenario], ...(await authOf()) };
const service = await tenant.client.post("/v1/tool-services", { scheme: "mcp", service_id: "scenario", config });
const { data: tools } = await tenant.client.get(`/v1/tool-services/${service.id}/tools?refresh=true`);
for (const call of callsOf(tools)) await callTool(tenant, call);
