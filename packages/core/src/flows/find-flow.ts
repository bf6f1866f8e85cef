/**
 * Which flow a name means, and its definition. Heads are part of the tenant's snapshot; definitions are read when a
 * run needs them, once for each version of them, since a version never changes (FLOW-4).
 */
import { createHash } from "node:crypto";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { canonicalJson, parseJson } from "../json.ts";
import type { FlowHead } from "../ports/flows.ts";
import type { TenantConfig } from "../tenant-config.ts";
import { flowDefinitionSchema, type FlowDefinition } from "./definition.ts";
import { nearestName } from "../nearest-name.ts";
import { shippedFlows } from "./shipped/index.ts";

/** The tenant's own, else the shipped one. */
export function findFlow({ flows }: Pick<TenantConfig, "flows">, name: string): FlowHead | undefined {
  return flows.find((flow) => flow.name === name) ?? shippedHeads().get(name);
}

/** Why a name means no flow, as a part of a sentence. */
export function whyNoFlow({ flows }: Pick<TenantConfig, "flows">, name: string): string {
  const nearest = nearestName(name, [...flows.map((flow) => flow.name), ...shippedHeads().keys()]);
  // A draft of that name is in no snapshot, so publishing is named beside every guess.
  const guess = nearest === undefined ? "" : `, or is '${nearest}' meant?`;
  return `there is no published flow '${name}'; publish it with POST /v1/flows/{id}/publish${guess}`;
}

/** @throws GatewayError `flow_not_found` for a name or a version that there is not, or a flow that is disabled */
export function requireFlowHead(config: Pick<TenantConfig, "flows">, name: string, version?: number): FlowHead {
  const head = findFlow(config, name);
  if (head === undefined) {
    const why = whyNoFlow(config, name);
    throw new GatewayError(
      "flow_not_found",
      `${why.charAt(0).toUpperCase()}${why.slice(1)}${why.endsWith("?") ? "" : "."}`,
      {
        param: "workflow_id",
      },
    );
  }
  if (!head.enabled) {
    throw new GatewayError("flow_not_found", `Flow '${name}' is disabled; enable it with PATCH /v1/flows/${head.id}.`, {
      param: "workflow_id",
    });
  }
  if (version !== undefined && !head.versions.some(({ number }) => number === version)) {
    throw noSuchVersion(head, version);
  }
  return head;
}

export function noSuchVersion({ name, versions, latest }: FlowHead, version: number): GatewayError {
  const first = versions[0]?.number ?? latest;
  const known = first === latest ? `only version ${latest} is there` : `versions ${first} to ${latest} are there`;
  return new GatewayError("flow_not_found", `Flow '${name}' has no version ${version}; ${known}.`, {
    param: "version",
    toolName: name,
  });
}

/** By what a run has noted: it goes on with what it began with. @throws GatewayError `flow_not_found` */
export async function readDefinition(
  { repos }: Pick<CoreDeps, "repos">,
  tenant: string,
  hash: string,
): Promise<FlowDefinition> {
  const own = shippedDefinitions().get(hash);
  if (own !== undefined) return own;
  const key = `${tenant} ${hash}`;
  const known = definitions.get(key);
  if (known !== undefined) return known;
  const text = await repos.flows.definition(tenant, hash);
  if (text === undefined) {
    throw new GatewayError("flow_not_found", "The flow's definition has been deleted since the run began.");
  }
  // Checked when it was published, and again because another release may have written it.
  const definition = flowDefinitionSchema.parse(parseJson(text));
  definitions.set(key, definition);
  const oldest = definitions.keys().next().value;
  if (definitions.size > capacity && oldest !== undefined) definitions.delete(oldest);
  return definition;
}

const capacity = 500;
const definitions = new Map<string, FlowDefinition>();

export function hashOf(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

interface Shipped {
  readonly heads: ReadonlyMap<string, FlowHead>;
  readonly definitions: ReadonlyMap<string, FlowDefinition>;
}

let shipped: Shipped | undefined;

function readShipped(): Shipped {
  const heads = new Map<string, FlowHead>();
  const byHash = new Map<string, FlowDefinition>();
  for (const [name, given] of Object.entries(shippedFlows)) {
    const definition = flowDefinitionSchema.parse(given);
    const hash = hashOf(canonicalJson(given));
    const { description, input, effect } = definition;
    heads.set(name, {
      id: name,
      name,
      enabled: true,
      latest: 1,
      description,
      input,
      effect,
      versions: [{ number: 1, hash }],
    });
    byHash.set(hash, definition);
  }
  return { heads, definitions: byHash };
}

function shippedHeads(): Shipped["heads"] {
  return (shipped ??= readShipped()).heads;
}

function shippedDefinitions(): Shipped["definitions"] {
  return (shipped ??= readShipped()).definitions;
}
