/**
 * Marks that say what happens to pictures, sounds and films of a request: `{{ShowBase64}}` leaves them as they are
 * (VCP specification 11), `{{TransBase64}}` asks for their translation into text, and with `+` for the originals
 * after it. They stand in messages of users and of the system, and are cut out.
 */
import type { JsonObject } from "../../json.ts";
import { mapText } from "../message-text.ts";

const names = ["ShowBase64", "TransBase64", "TransBase64+"] as const;
export type MediaMark = (typeof names)[number];

const marks = /\{\{(ShowBase64|TransBase64\+?)\}\}/g;

export function toMediaMark(name: string): MediaMark | undefined {
  return names.find((each) => each === name);
}

/** The messages as they came in without their marks; those of prompts are found where these are expanded. */
export function takeMediaMarks(messages: readonly JsonObject[]): {
  readonly messages: readonly JsonObject[];
  readonly marks: ReadonlySet<MediaMark>;
} {
  const found = new Set<MediaMark>();
  const without = messages.map((message) => {
    const { role } = message;
    if (role !== "user" && role !== "system" && role !== "developer") return message;
    return mapText(message, (text) =>
      text.includes("Base64") ? text.replace(marks, (_whole, name: string) => cut(found, name)) : text,
    );
  });
  return { messages: without, marks: found };
}

function cut(found: Set<MediaMark>, name: string): string {
  const mark = toMediaMark(name);
  if (mark !== undefined) found.add(mark);
  return "";
}
