/** Creates, changes and deletes subscriptions; checked as a whole, like tool services (MQ-3, CFG-1, CFG-3). */
import type { Caller } from "../callers/caller.ts";
import { requireMayRunTools } from "../callers/grant.ts";
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { newId } from "../ids.ts";
import { isJsonObject } from "../json.ts";
import type { Tool } from "../tools/tool.ts";
import { parseToolUri } from "../tools/uri.ts";
import { announceChange, type AnnouncingDeps } from "./announce.ts";
import { checkMapping, namesIn } from "./mapping.ts";
import { findSource, tryTarget, type SubscriptionDraft } from "./standing.ts";
import type { MessageSubscription, NewSubscription, SubscriptionOptions, SubscriptionTarget } from "./subscription.ts";

export type SubscriptionDeps = AnnouncingDeps & Pick<CoreDeps, "adapters">;

export interface SubscriptionRequest {
  readonly name: string;
  readonly description: string | null;
  /** `mq://service/topic` */
  readonly uri: string;
  readonly target: SubscriptionTarget;
  readonly options: SubscriptionOptions;
  readonly enabled: boolean;
}

/**
 * @throws GatewayError `invalid_definition`, `invalid_uri`, `tool_not_found` whose `param` is the field; `conflict`;
 * `permission_denied` for callers that may not run every tool
 */
export async function createSubscription(
  deps: SubscriptionDeps,
  context: CallContext,
  { uri, ...request }: SubscriptionRequest,
): Promise<MessageSubscription> {
  const draft: NewSubscription = {
    ...request,
    ...readTopicUri(uri),
    id: newId("subscription"),
    role: roleOf(context.caller),
  };
  await check(deps, context, draft);
  const created = await deps.repos.subscriptions.create(context.tenant, draft);
  await announceChange(deps, context.tenant);
  return created;
}

export type SubscriptionPatch = Partial<Omit<SubscriptionRequest, "name">>;

/** @throws GatewayError as `createSubscription`; `not_found`; `version_conflict` where a version was expected */
export async function updateSubscription(
  deps: SubscriptionDeps,
  context: CallContext,
  {
    id,
    patch,
    expectedVersion,
  }: { readonly id: string; readonly patch: SubscriptionPatch; readonly expectedVersion?: number },
): Promise<MessageSubscription> {
  const record = await requireSubscription(deps, context.tenant, id);
  const { uri, ...plain } = patch;
  const isOther = uri !== undefined || patch.target !== undefined || patch.options !== undefined;
  const change = {
    ...plain,
    ...(uri === undefined ? {} : readTopicUri(uri)),
    ...(isOther ? { role: roleOf(context.caller) } : {}),
  };
  if (isOther) await check(deps, context, { ...record, ...change });
  // What was checked is what is written: somebody else's change in between is not mixed with it.
  const expected = expectedVersion ?? (isOther ? record.version : undefined);
  const updated = await deps.repos.subscriptions.update(context.tenant, id, change, expected);
  if (updated === undefined) throw noSuchSubscription(id);
  await announceChange(deps, context.tenant);
  return updated;
}

/** Calls that were made of its messages stay, and those under way end. @throws GatewayError `not_found` */
export async function deleteSubscription(deps: AnnouncingDeps, tenant: string, id: string): Promise<void> {
  if (!(await deps.repos.subscriptions.delete(tenant, id))) throw noSuchSubscription(id);
  await announceChange(deps, tenant);
}

/** @throws GatewayError `not_found` */
export async function requireSubscription(
  { repos }: Pick<CoreDeps, "repos">,
  tenant: string,
  id: string,
): Promise<MessageSubscription> {
  const record = await repos.subscriptions.get(tenant, id);
  if (record === undefined) throw noSuchSubscription(id);
  return record;
}

function noSuchSubscription(id: string): GatewayError {
  return new GatewayError("not_found", `There is no subscription '${id}'.`, { param: "id" });
}

/**
 * Nobody hands out more than they have, and an operator's place is above the tenant's.
 * @throws GatewayError `permission_denied` for callers that may not run every tool
 */
function roleOf(caller: Caller): MessageSubscription["role"] {
  requireMayRunTools(caller, "a subscription");
  return caller.role === "member" ? "member" : "admin";
}

/** @throws GatewayError `invalid_uri` */
function readTopicUri(text: string): Pick<MessageSubscription, "serviceId" | "topic"> {
  const { scheme, service, tool, options } = parseToolUri(text);
  if (scheme !== "mq" || Object.keys(options).length > 0) {
    throw new GatewayError("invalid_uri", "'uri' must be 'mq://{service}/{topic}', without options.", { param: "uri" });
  }
  return { serviceId: service, topic: tool };
}

async function check({ adapters }: SubscriptionDeps, context: CallContext, draft: SubscriptionDraft): Promise<void> {
  checkMapping(draft.target.arguments, "target.arguments");
  findSource(context.config, draft);
  const tried = await tryTarget(adapters, context, draft);
  if (tried.kind === "refused") {
    const { code, message } = tried.outcome;
    // A target that is switched off now may be switched on later, and arguments come with messages.
    const isPassing = code === "service_disabled" || code === "invalid_arguments" || code === "credential_missing";
    if (!isPassing) throw new GatewayError(code, `'target.uri': ${message}`, { param: "target.uri" });
  }
  const tool = tried.kind === "refused" ? tried.tool : tried.call.tool;
  if (tool === undefined) return;
  refuseOwnTopic(draft, tool);
  checkNames(draft, tool);
}

function refuseOwnTopic({ serviceId, topic }: SubscriptionDraft, { uri }: Tool): void {
  const { scheme, service, tool } = parseToolUri(uri);
  if (scheme !== "mq" || service !== serviceId || tool !== topic) return;
  throw new GatewayError("invalid_definition", "'target.uri' publishes to the topic that is subscribed to.", {
    param: "target.uri",
  });
}

/** What can be said of the arguments before there is a message. */
function checkNames({ target }: SubscriptionDraft, { parameters, uri }: Tool): void {
  const names = namesIn(target.arguments);
  if (names === undefined) return;
  const { properties, required, additionalProperties } = parameters;
  const known = isJsonObject(properties) ? Object.keys(properties) : [];
  const strange = additionalProperties === false ? names.find((name) => !known.includes(name)) : undefined;
  if (strange !== undefined) {
    throw new GatewayError(
      "invalid_definition",
      `'target.arguments.${strange}' is not a parameter of '${uri}'; it has ${known.join(", ") || "none"}.`,
      { param: `target.arguments.${strange}` },
    );
  }
  const needed: readonly unknown[] = Array.isArray(required) ? required : [];
  const missing = needed.filter((name) => typeof name === "string").find((name) => !names.includes(name));
  if (missing !== undefined) {
    throw new GatewayError("invalid_definition", `'target.arguments' must give '${missing}', which '${uri}' needs.`, {
      param: "target.arguments",
    });
  }
}
