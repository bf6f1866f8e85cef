/**
 * `{{TransBase64}}`: pictures, sounds and films of users are put into words by another model, for models that only
 * read (VCP specification 4.5, step 3). What was put into words once is known to the process for a while.
 */
import { createHash } from "node:crypto";
import type { CallContext } from "../../context.ts";
import type { CoreDeps } from "../../core-deps.ts";
import { toGatewayError } from "../../errors/gateway-error.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";
import { askModel } from "./ask-model.ts";
import type { Draft } from "./draft.ts";
import { joinText } from "../message-text.ts";

export interface Translation {
  /** The media go on beside their words. */
  readonly keepOriginals: boolean;
  /** The chat that it is for. */
  readonly within: string;
  readonly signal: AbortSignal;
}

/** Descriptions that a process remembers. */
const mostKnown = 500;
const known = new Map<string, string>();

/** The draft with words for its media; media that could not be put into words stay as they are, and that is told. */
export async function translateMedia(
  deps: CoreDeps,
  context: CallContext,
  draft: Draft,
  translation: Translation,
): Promise<Draft> {
  const model = context.config.settings.media_translation_model;
  if (model === undefined) {
    report(deps, context, "the setting 'media_translation_model' is not set");
    return draft;
  }
  const translated: Draft[number][] = [];
  for (const entry of draft) {
    const { message, isHidden } = entry;
    const words = isHidden ? message : await translateMessage(deps, context, message, { ...translation, model });
    translated.push(words === message ? entry : { ...entry, message: words });
  }
  return translated;
}

type Task = Translation & { readonly model: string };

async function translateMessage(
  deps: CoreDeps,
  context: CallContext,
  message: JsonObject,
  task: Task,
): Promise<JsonObject> {
  const { role, content } = message;
  if (role !== "user" || !Array.isArray(content)) return message;
  const words = await Promise.all(
    content.map(async (part) => (isMedium(part) ? describe(deps, context, part, task) : undefined)),
  );
  const texts = words.filter((text) => text !== undefined);
  if (texts.length === 0) return message;
  const left = task.keepOriginals ? content : content.filter((_part, at) => words[at] === undefined);
  const { media_translation_prompt: prompt } = context.config.settings;
  const text = `<VCP_MULTIMODAL_INFO>\n${prompt}\n${texts.join("\n")}\n</VCP_MULTIMODAL_INFO>`;
  return joinText({ ...message, content: left }, text, "after");
}

const mediaTypes = ["image_url", "input_audio", "video_url"];

function isMedium(part: JsonValue): part is JsonObject {
  return isJsonObject(part) && mediaTypes.some((type) => type === part["type"]);
}

/** Undefined: it could not be put into words. */
async function describe(
  deps: CoreDeps,
  context: CallContext,
  part: JsonObject,
  { model, within, signal }: Task,
): Promise<string | undefined> {
  const { media_translation_prompt: prompt } = context.config.settings;
  const key = createHash("sha256")
    .update(JSON.stringify([context.tenant, model, prompt, part]))
    .digest("base64url");
  const before = known.get(key);
  if (before !== undefined) return before;
  try {
    const messages = [{ role: "user", content: [{ type: "text", text: prompt }, part] }];
    const text = await askModel(deps, context, { model, messages, within, signal });
    known.set(key, text);
    const oldest = known.keys().next().value;
    if (known.size > mostKnown && oldest !== undefined) known.delete(oldest);
    return text;
  } catch (thrown) {
    if (signal.aborted) throw thrown;
    report(deps, context, toGatewayError(thrown).message);
    return undefined;
  }
}

function report({ log }: CoreDeps, { tenant, requestId, redactor }: CallContext, reason: string): void {
  log.log("warn", "media were not put into words", { tenant, request_id: requestId, reason: redactor.redact(reason) });
}
