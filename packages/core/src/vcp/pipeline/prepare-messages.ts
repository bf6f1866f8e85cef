/**
 * What happens to a conversation before a model gets it (VCP specification 4.5; VCP-8): the Tavern, then
 * variables, media, retrieval, the other preprocessors in the tenant's order, and last the role divider.
 * Each step exists once, so a tenant's plugin of an upstream step's name is not run beside it.
 */
import type { CallContext } from "../../context.ts";
import type { CoreDeps } from "../../deps.ts";
import type { JsonObject } from "../../json.ts";
import { applyTavern } from "../tavern/step.ts";
import { toDraft, type Draft } from "./draft.ts";
import { MediaSource } from "./media-source.ts";
import { prepareMedia } from "./media.ts";
import { divideRoles } from "./role-divider.ts";

export interface Conversation {
  readonly messages: readonly JsonObject[];
  /** As the back end knows it. */
  readonly model: string;
  /** Decides about chance. */
  readonly seed: string;
  readonly signal: AbortSignal;
}

export interface PreparedMessages {
  readonly messages: readonly JsonObject[];
  /** Those of `messages` that nobody but the model may get: no tool, no push, no history. */
  readonly hidden: ReadonlySet<JsonObject>;
}

/** @throws GatewayError `invalid_request` naming a picture or a sound that cannot be taken */
export async function prepareMessages(
  deps: CoreDeps,
  context: CallContext,
  { messages, seed, signal }: Conversation,
): Promise<PreparedMessages> {
  let draft = toDraft(messages);
  draft = await applyTavern(deps, context, draft, seed);
  draft = await prepareMedia(draft, mediaSource(deps, context, signal));
  draft = applyRoleDivider(draft);
  return {
    messages: draft.map(({ message }) => message),
    hidden: new Set(draft.flatMap(({ message, isHidden }) => (isHidden ? [message] : []))),
  };
}

function mediaSource(deps: CoreDeps, context: CallContext, signal: AbortSignal): MediaSource {
  const bytes = context.config.settings.media_bytes;
  return new MediaSource(deps, context, { limits: { bytes, totalBytes: 4 * bytes }, signal });
}

function applyRoleDivider(draft: Draft): Draft {
  return draft.flatMap((entry, at) =>
    at === 0 || entry.isHidden
      ? [entry]
      : divideRoles(entry.message).map((message) => (message === entry.message ? entry : { message, isHidden: false })),
  );
}
