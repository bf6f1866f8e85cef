/**
 * What the gateway and a node say to each other about MCP servers that the node holds: the arguments and the
 * result of a run (nodes/run.ts). A message of the protocol goes there and its answer comes back; that the process
 * is started, greeted, kept and started again is the node's.
 */
import * as z from "zod";
import { isJsonObject, parseJson, type JsonObject } from "../json.ts";
import { isTooDeep } from "./json-rpc.ts";
import type { Elicitation } from "./server-requests.ts";
import { toTooDeep } from "./transport.ts";

const jsonObject = z.custom<JsonObject>(isJsonObject, "must be a JSON object");

/** Owner of the process that all callers share who have no credentials of their own. */
export const tenantsOwn = "tenant";

const heldServerSchema = z.strictObject({
  /** `svc_…` of the tool service. */
  service: z.string().min(1).max(64),
  /** Of its configuration: a newer one ends the process of an older one. */
  version: z.int(),
  /** Whose credentials it has: each has a process of its own. */
  owner: z.string().max(256),
  /** Of the credentials; with other values another process takes over. */
  generation: z.string().max(128),
  /** Variables that the service sets; secrets. */
  environment: z.record(z.string(), z.string()),
  elicitation: z.enum(["ask", "defaults", "decline"] as const satisfies readonly Elicitation[]),
  /** Parameters of `initialize`; absent: each request says all there is to say. */
  initialize: jsonObject.exactOptional(),
});
export type HeldServer = z.infer<typeof heldServerSchema>;

export const mcpRunSchema = z.strictObject({
  server: heldServerSchema,
  request: z.strictObject({ method: z.string().min(1).max(128), params: jsonObject }),
  timeout_ms: z.int().min(1),
  /** Bytes that the answer may have. */
  max_bytes: z.int().min(1),
});
export type McpRun = z.infer<typeof mcpRunSchema>;

const answerSchema = z.union([
  z.strictObject({ result: jsonObject }),
  z.strictObject({
    error: z.strictObject({ code: z.number(), message: z.string(), data: z.json().default(null) }),
  }),
]);
export type McpAnswer = z.infer<typeof answerSchema>;

/**
 * Undefined for what is none.
 * @param name of the server, for errors
 * @throws GatewayError `tool_failed`, answered, for one that is nested without an end
 */
export function readMcpAnswer(text: string, name: string): McpAnswer | undefined {
  const value = parseJson(text);
  if (isTooDeep(text, value)) throw toTooDeep(name);
  const parsed = answerSchema.safeParse(value);
  return parsed.success ? parsed.data : undefined;
}
