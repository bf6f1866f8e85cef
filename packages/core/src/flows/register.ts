/**
 * Creates, changes, publishes and deletes flows (FLOW-4, CFG-4). A draft may have faults, which are told with it;
 * what is published has none and never changes: publishing is the next number, and that is what a call without
 * `version` gets from then on.
 */
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { schemaProblem } from "../errors/schema-problems.ts";
import { newId } from "../ids.ts";
import { canonicalJson, isDeeperThan, parseJson, type JsonObject, type JsonValue } from "../json.ts";
import type { FlowContent, FlowRecord } from "../ports/flows.ts";
import { findReferencesTo, referencedError, type Reference } from "../services/references.ts";
import { announceChange, type AnnouncingDeps } from "../subscriptions/announce.ts";
import { formatToolUri } from "../tools/uri.ts";
import { flowNameSchema } from "./definition.ts";
import { hashOf } from "./find-flow.ts";
import { checkFlow, deepest, refuseTooLarge, requireFlow, type FlowProblem } from "./validate.ts";

export interface EditedFlow {
  readonly flow: FlowRecord;
  /** Of the draft. */
  readonly problems: readonly FlowProblem[];
}

/** @throws GatewayError `invalid_definition` for a name that is none, `conflict`, `payload_too_large` */
export async function createFlow(
  deps: AnnouncingDeps,
  { tenant }: CallContext,
  { definition, enabled }: { readonly definition: JsonObject; readonly enabled: boolean },
): Promise<EditedFlow> {
  const name = nameOf(definition);
  const { content, problems } = await readDraft(definition);
  const flow = await deps.repos.flows.create(tenant, { id: newId("flow"), name, enabled, ...content });
  return { flow, problems };
}

export interface FlowPatch {
  readonly definition?: JsonObject;
  readonly enabled?: boolean;
}

/** @throws GatewayError as `createFlow`; `not_found`; `version_conflict` */
export async function updateFlow(
  deps: AnnouncingDeps,
  { tenant }: CallContext,
  { id, patch, expected }: { readonly id: string; readonly patch: FlowPatch; readonly expected?: number },
): Promise<EditedFlow> {
  const { definition, enabled } = patch;
  const before = await requireFlowRecord(deps, tenant, id);
  if (definition !== undefined) refuseOtherName(before, nameOf(definition));
  const read = definition === undefined ? undefined : await readDraft(definition);
  const change = {
    ...(read === undefined ? {} : { draft: read.content }),
    ...(enabled === undefined ? {} : { enabled }),
  };
  const flow = await deps.repos.flows.update(tenant, id, change, expected);
  if (flow === undefined) throw noSuchFlow(id);
  if (enabled !== undefined && enabled !== before.enabled) await announceChange(deps, tenant);
  return { flow, problems: read?.problems ?? (await problemsOf(flow)) };
}

/**
 * The draft becomes the next version; publishing it again changes nothing.
 * @throws GatewayError `not_found`; `flow_invalid` with all problems; `version_conflict`
 */
export async function publishFlow(
  deps: AnnouncingDeps,
  { tenant, caller }: CallContext,
  { id, expected }: { readonly id: string; readonly expected?: number },
): Promise<FlowRecord> {
  const draft = await requireFlowRecord(deps, tenant, id);
  const { definition, refs } = await requireFlow(parseJson(draft.draft) ?? null);
  const { description, input, effect } = definition;
  const published = await deps.repos.flows.publish(tenant, id, {
    definition: draft.draft,
    hash: draft.draftHash,
    refs,
    description,
    input,
    effect,
    publishedBy: caller.id,
    revision: expected ?? draft.revision,
  });
  if (published === undefined) throw noSuchFlow(id);
  await announceChange(deps, tenant);
  return published;
}

/** Runs under way end with what they have noted. @throws GatewayError `not_found`; `service_referenced` */
export async function deleteFlow(
  deps: AnnouncingDeps,
  context: CallContext,
  { id, force }: { readonly id: string; readonly force: boolean },
): Promise<void> {
  const flow = await requireFlowRecord(deps, context.tenant, id);
  const references = force ? [] : await flowReferences(deps, context, flow);
  if (references.length > 0) throw referencedError(formatToolUri("flow", flow.name), references);
  if (!(await deps.repos.flows.delete(context.tenant, id))) throw noSuchFlow(id);
  await announceChange(deps, context.tenant);
}

/** Who would miss it. What it says of itself does not count. */
export async function flowReferences(
  deps: Pick<CoreDeps, "repos">,
  context: CallContext,
  { id, name }: FlowRecord,
): Promise<readonly Reference[]> {
  const uri = formatToolUri("flow", name);
  const references = await findReferencesTo(deps, context, { uri, namePrefix: `${uri}/`, toolNames: new Set([name]) });
  return references.filter((reference) => reference.kind !== "flow" || reference.id !== id);
}

/** @throws GatewayError `not_found` */
export async function requireFlowRecord(
  { repos }: Pick<CoreDeps, "repos">,
  tenant: string,
  id: string,
): Promise<FlowRecord> {
  const flow = await repos.flows.get(tenant, id);
  if (flow === undefined) throw noSuchFlow(id);
  return flow;
}

export async function problemsOf({ draft }: FlowRecord): Promise<readonly FlowProblem[]> {
  return (await checkFlow(parseJson(draft) ?? null)).problems;
}

export function noSuchFlow(id: string): GatewayError {
  return new GatewayError("not_found", `There is no flow '${id}'.`, { param: "id" });
}

async function readDraft(
  definition: JsonValue,
): Promise<{ readonly content: FlowContent; readonly problems: readonly FlowProblem[] }> {
  refuseTooLarge(definition);
  if (isDeeperThan(definition, deepest)) await requireFlow(definition);
  const { problems, refs } = await checkFlow(definition);
  const text = canonicalJson(definition);
  return { content: { definition: text, hash: hashOf(text), refs }, problems };
}

/** Known to addresses and prompts, so it cannot be wrong in a draft either. */
function nameOf({ name }: JsonObject): string {
  const parsed = flowNameSchema.safeParse(name);
  if (parsed.success) return parsed.data;
  const { says } = schemaProblem(parsed.error);
  throw new GatewayError("invalid_definition", `'definition.name' ${says}.`, { param: "definition.name" });
}

function refuseOtherName({ name }: FlowRecord, wanted: string): void {
  if (name === wanted) return;
  throw new GatewayError(
    "invalid_definition",
    `'definition.name' is '${wanted}', and this flow is '${name}', as others call it; create a new flow for another name.`,
    { param: "definition.name" },
  );
}
