/** Flows for tests: published as their authors do it, followed as anybody may. */
import { expect } from "vitest";
import type { Json, TestTenant } from "./gateway-client.ts";

export type Nodes = Readonly<Record<string, Readonly<Record<string, unknown>>>>;

export interface TestFlow {
  readonly name: string;
  readonly start: string;
  readonly nodes: Nodes;
  readonly [field: string]: unknown;
}

/** @returns its id */
export async function publishFlow(tenant: TestTenant, flow: TestFlow): Promise<string> {
  const definition = { schema_version: 1, description: `The flow ${flow.name}.`, ...flow };
  const { status, json, text } = await tenant.client.send("post", "/v1/flows", { definition, publish: true });
  expect(status, text).toBe(201);
  return json.id;
}

/** As JSON has it: an object literal with a `then` looks like a promise. */
export function condition(test: string, yes: string, no: string): Readonly<Record<string, unknown>> {
  const [positive, negative] = ["then", "else"] as const;
  return { kind: "condition", if: test, [positive]: yes, [negative]: no };
}

export function invokeFlow(
  tenant: TestTenant,
  uri: string,
  args: Readonly<Record<string, unknown>> = {},
  more: Readonly<Record<string, unknown>> = {},
): Promise<{ readonly status: number; readonly json: Json; readonly text: string }> {
  return tenant.client.send("post", "/v1/tools/invoke", { uri, arguments: args, ...more });
}

const callEnds: readonly string[] = ["completed", "failed", "cancelled", "unknown", "rejected"];

/** The call once it has ended, or is in one of these states. */
export async function callIn(
  tenant: TestTenant,
  id: string,
  states: readonly string[] = callEnds,
  withinMs = 15_000,
): Promise<Json> {
  for (const until = performance.now() + withinMs; ;) {
    const call = await tenant.client.get(`/v1/calls/${id}`);
    if (states.includes(call.state)) return call;
    if (performance.now() > until) throw new Error(`Call ${id} is still '${call.state}': ${JSON.stringify(call)}`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

export async function childrenOf(tenant: TestTenant, id: string): Promise<readonly Json[]> {
  return (await tenant.client.get(`/v1/calls?parent_id=${id}&limit=100&order=asc`)).data;
}
