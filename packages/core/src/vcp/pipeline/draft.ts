/**
 * A conversation while it is being prepared. What is hidden goes to the model as a system message and is
 * known here for what it is, so that nothing else ever gets it (VCP-9).
 */
import type { JsonObject } from "../../json.ts";

export interface DraftMessage {
  readonly message: JsonObject;
  readonly isHidden: boolean;
}

export type Draft = readonly DraftMessage[];

export function toDraft(messages: readonly JsonObject[]): Draft {
  return messages.map((message) => ({ message, isHidden: false }));
}

/** Each message changed; what is hidden stays so. */
export function mapDraft(draft: Draft, change: (message: JsonObject) => JsonObject): Draft {
  return draft.map((entry) => {
    const message = change(entry.message);
    return message === entry.message ? entry : { ...entry, message };
  });
}
