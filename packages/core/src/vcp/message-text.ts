/** The text of a message, wherever it stands: content is a string, or a list of parts some of which are text. */
import { isJsonObject, type JsonObject, type JsonValue } from "../json.ts";

/** Messages of developers are what newer models read in the place of the system's. */
export function isOfSystem({ role }: JsonObject): boolean {
  return role === "system" || role === "developer";
}

/** All text of a message; that of several parts is joined by line ends. */
export function textOf(message: JsonObject): string {
  return textsOf(message).join("\n");
}

/** Each of its texts; none where it has none. */
export function textsOf({ content }: JsonObject): readonly string[] {
  if (typeof content === "string") return [content];
  if (!Array.isArray(content)) return [];
  return content.flatMap((part) => (isTextPart(part) ? [part.text] : []));
}

/** The message with each of its texts changed; the same object where nothing changes. */
export function mapText(message: JsonObject, change: (text: string) => string): JsonObject {
  const { content } = message;
  if (typeof content === "string") {
    const changed = change(content);
    return changed === content ? message : { ...message, content: changed };
  }
  if (!Array.isArray(content)) return message;
  let isChanged = false;
  const parts = content.map((part) => {
    if (!isTextPart(part)) return part;
    const text = change(part.text);
    if (text === part.text) return part;
    isChanged = true;
    return { ...part, text };
  });
  return isChanged ? { ...message, content: parts } : message;
}

/** The message with a text before or after its own, set off by a blank line. */
export function joinText(message: JsonObject, text: string, position: "before" | "after"): JsonObject {
  const { content } = message;
  const join = (own: string): string => {
    if (own === "") return text;
    return position === "before" ? `${text}\n\n${own}` : `${own}\n\n${text}`;
  };
  if (!Array.isArray(content)) return { ...message, content: join(typeof content === "string" ? content : "") };
  const at = position === "before" ? content.findIndex(isTextPart) : content.findLastIndex(isTextPart);
  const part = content[at];
  if (part === undefined || !isTextPart(part)) return { ...message, content: [{ type: "text", text }, ...content] };
  return { ...message, content: content.with(at, { ...part, text: join(part.text) }) };
}

function isTextPart(part: JsonValue | undefined): part is JsonObject & { readonly text: string } {
  return isJsonObject(part) && part["type"] === "text" && typeof part["text"] === "string";
}
