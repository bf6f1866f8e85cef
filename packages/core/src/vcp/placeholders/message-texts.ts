/** The texts of messages, where content is a string or a list of parts. */
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";

/** The same object where no text changes. */
export function mapTexts(message: JsonObject, change: (text: string) => string): JsonObject {
  const { content } = message;
  if (typeof content === "string") {
    const text = change(content);
    return text === content ? message : { ...message, content: text };
  }
  if (!Array.isArray(content)) return message;
  const parts = content.map((part) => mapPart(part, change));
  return parts.every((part, at) => part === content[at]) ? message : { ...message, content: parts };
}

function mapPart(part: JsonValue, change: (text: string) => string): JsonValue {
  if (!isJsonObject(part) || part["type"] !== "text" || typeof part["text"] !== "string") return part;
  const text = change(part["text"]);
  return text === part["text"] ? part : { ...part, text };
}

export function textsOf(message: JsonObject): readonly string[] {
  const texts: string[] = [];
  mapTexts(message, (text) => {
    texts.push(text);
    return text;
  });
  return texts;
}
