/**
 * What happens to a conversation before a model gets it (VCP specification 4.5; VCP-8): the Tavern, then
 * variables, media, knowledge, the other preprocessors in the tenant's order, detectors, and last the role divider.
 * Each step exists once, so a tenant's plugin of an upstream step's name is not run beside it.
 */
import type { CallContext } from "../../context.ts";
import type { CoreDeps } from "../../core-deps.ts";
import type { JsonObject } from "../../json.ts";
import type { AskedKnowledge } from "../../knowledge/asked.ts";
import type { Informed } from "./knowledge.ts";
import type { PreprocessContext } from "../modules/preprocess.ts";
import { translateMedia } from "./translate-media.ts";
import { applyDetectors } from "../placeholders/detectors.ts";
import { expandPlaceholders } from "../placeholders/expand-placeholders.ts";
import { takeMediaMarks, type MediaMark } from "../placeholders/media-marks.ts";
import { applyTavern } from "../tavern/step.ts";
import { messagesOf, toDraft, visibleMessages, withMessages, withVisible, type Draft } from "./draft.ts";
import { MediaSource } from "./media-source.ts";
import { prepareMedia } from "./media.ts";
import { preprocessorsOf } from "./preprocessor-order.ts";
import { divideRoles } from "./role-divider.ts";
import type { PreparedMessages } from "./prepared-chat.ts";

export interface Conversation {
  readonly messages: readonly JsonObject[];
  /** As the back end knows it. */
  readonly model: string;
  /** Of the chat; decides about chance, too. */
  readonly callId: string;
  /** That the request names. */
  readonly session: string | undefined;
  /** What the request has for preprocessors (`vcpchatExtensions`). */
  readonly extensions: JsonObject | undefined;
  /** All steps, or knowledge alone. */
  readonly isWhole: boolean;
  /** Undefined: the chat draws on none. */
  readonly knowledge: AskedKnowledge | undefined;
  readonly signal: AbortSignal;
}

/**
 * @throws GatewayError `invalid_request`, `payload_too_large` naming a picture or a sound that cannot be taken;
 * `placeholder_limit`
 */
export async function prepareMessages(
  deps: CoreDeps,
  context: CallContext,
  conversation: Conversation,
): Promise<PreparedMessages> {
  const { draft, sources } = conversation.isWhole
    ? await runSteps(deps, context, conversation)
    : await addAsked(deps, context, toDraft(conversation.messages), conversation);
  return {
    messages: messagesOf(draft),
    hidden: new Set(draft.flatMap(({ message, isHidden }) => (isHidden ? [message] : []))),
    sources,
  };
}

async function addAsked(
  deps: CoreDeps,
  context: CallContext,
  draft: Draft,
  { knowledge, callId: within, signal }: Conversation,
): Promise<Informed> {
  if (knowledge === undefined) return { draft, sources: [] };
  const { addKnowledge } = await import("./knowledge.ts");
  return addKnowledge(deps, context, draft, { knowledge, within, signal });
}

async function runSteps(deps: CoreDeps, context: CallContext, conversation: Conversation): Promise<Informed> {
  const { messages, model, callId, session, extensions, signal } = conversation;
  const asked = takeMediaMarks(messages);
  const marks = new Set(asked.marks);
  let draft = await applyTavern(deps, context, toDraft(asked.messages), { callId, session });
  const onMediaMark = (mark: MediaMark): void => void marks.add(mark);
  draft = withMessages(draft, await expandPlaceholders(deps, context, messagesOf(draft), { model, onMediaMark }));
  if (!marks.has("ShowBase64")) {
    draft = await prepareMedia(draft, mediaSource(deps, context, signal));
    const keepOriginals = marks.has("TransBase64+");
    if (keepOriginals || marks.has("TransBase64")) {
      draft = await translateMedia(deps, context, draft, { keepOriginals, within: callId, signal });
    }
  }
  const informed = await addAsked(deps, context, draft, conversation);
  ({ draft } = informed);
  const told = extensions === undefined ? {} : { extensions };
  draft = await applyPreprocessors(deps, { ...context, ...told, signal }, draft);
  draft = withMessages(draft, await applyDetectors(deps, context, messagesOf(draft)));
  draft = applyRoleDivider(draft);
  return { draft, sources: informed.sources };
}

/** The tenant's own plugins, which get what is visible and give what is visible. */
async function applyPreprocessors(deps: CoreDeps, context: PreprocessContext, draft: Draft): Promise<Draft> {
  const plugins = preprocessorsOf(context.config);
  if (plugins.length === 0) return draft;
  const { runPreprocessors } = await import("../modules/preprocess.ts");
  const before = visibleMessages(draft);
  const after = await runPreprocessors(deps, context, plugins, before);
  return after === before ? draft : withVisible(draft, after);
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
