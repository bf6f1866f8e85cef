/**
 * A conversation while it is being prepared. What is hidden goes to the model as a system message and is
 * known here for what it is, so that nothing else ever gets it (VCP-9).
 */
import { isOfPictures } from "../../chat/pictures.ts";
import type { JsonObject } from "../../json.ts";
import { isOfSystem } from "../message-text.ts";

export interface DraftMessage {
  readonly message: JsonObject;
  readonly isHidden: boolean;
}

export type Draft = readonly DraftMessage[];

/** Pictures of results are for the model alone, too: they are nothing that was said. */
export function toDraft(messages: readonly JsonObject[]): Draft {
  return messages.map((message) => ({ message, isHidden: isOfPictures(message) }));
}

export function messagesOf(draft: Draft): readonly JsonObject[] {
  return draft.map(({ message }) => message);
}

/** Each message changed; what is hidden stays so. */
export function mapDraft(draft: Draft, change: (message: JsonObject) => JsonObject): Draft {
  return draft.map((entry) => {
    const message = change(entry.message);
    return message === entry.message ? entry : { ...entry, message };
  });
}

/** The same draft with other texts, message by message. */
export function withMessages(draft: Draft, messages: readonly JsonObject[]): Draft {
  if (messages.length !== draft.length) {
    throw new Error(`A step that keeps messages made ${messages.length} of ${draft.length}.`);
  }
  return draft.map((entry, at) => ({ ...entry, message: messages[at] ?? entry.message }));
}

/** What others may see. */
export function visibleMessages(draft: Draft): readonly JsonObject[] {
  return draft.flatMap(({ message, isHidden }) => (isHidden ? [] : [message]));
}

/**
 * Visible messages as somebody else has left them, with what is hidden back in its place: as far from the
 * beginning as before where it stood with the leading system messages, else as far from the end.
 */
export function withVisible(draft: Draft, visible: readonly JsonObject[]): Draft {
  const leading = draft.findIndex(({ message }) => !isOfSystem(message));
  const ahead = leading < 0 ? draft.length : leading;
  const total = visibleMessages(draft).length;
  const inserted = new Map<number, DraftMessage[]>();
  let before = 0;
  draft.forEach((entry, at) => {
    if (!entry.isHidden) {
      before += 1;
      return;
    }
    const place = at < ahead ? Math.min(before, visible.length) : Math.max(0, visible.length - (total - before));
    inserted.set(place, [...(inserted.get(place) ?? []), entry]);
  });
  const result: DraftMessage[] = [];
  for (let at = 0; at <= visible.length; at += 1) {
    result.push(...(inserted.get(at) ?? []));
    const message = visible[at];
    if (message !== undefined) result.push({ message, isHidden: false });
  }
  return result;
}
