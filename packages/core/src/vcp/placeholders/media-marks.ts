/**
 * Marks that say what happens to pictures, sounds and films of a request: `{{ShowBase64}}` leaves them as they are
 * (VCP specification 11), `{{TransBase64}}` asks for their translation into text, and with `+` for the originals
 * after it. They stand in messages of users and of the system, and are cut out.
 */
import type { JsonObject } from "../../json.ts";
import { mapTexts } from "./message-texts.ts";

export interface MediaMarks {
  readonly messages: readonly JsonObject[];
  /** Media pass as they are, whatever else is asked for. */
  readonly showBase64: boolean;
  readonly translate: boolean;
  /** The originals go on beside the translation. */
  readonly keepOriginals: boolean;
}

const marks = /\{\{(ShowBase64|TransBase64\+?)\}\}/g;

export function takeMediaMarks(messages: readonly JsonObject[]): MediaMarks {
  const found = new Set<string>();
  const without = messages.map((message) => {
    const { role } = message;
    if (role !== "user" && role !== "system" && role !== "developer") return message;
    return mapTexts(message, (text) =>
      text.includes("Base64") ? text.replace(marks, (_whole, name: string) => cut(found, name)) : text,
    );
  });
  const keepOriginals = found.has("TransBase64+");
  return {
    messages: without,
    showBase64: found.has("ShowBase64"),
    translate: keepOriginals || found.has("TransBase64"),
    keepOriginals,
  };
}

function cut(found: Set<string>, name: string): string {
  found.add(name);
  return "";
}
