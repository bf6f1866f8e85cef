/**
 * Character cards as others write them: JSON of versions 1, 2 and 3, or a PNG picture that carries it (`ccv3`,
 * `chara`: base 64 of the JSON).
 */
import { isUtf8 } from "node:buffer";
import { isJsonObject, parseJson, type JsonValue } from "../../json.ts";
import { characterSchema, type Character } from "./character.ts";
import { ForeignFields, refused } from "./foreign-fields.ts";
import { readWorldInfo } from "./import-world-info.ts";
import { isPng, pngTexts } from "./png-text.ts";

export interface ImportedCharacter {
  readonly character: Character;
  readonly notes: readonly string[];
}

/**
 * @param isPicture it was said to be one
 * @throws GatewayError `invalid_definition` saying what is wrong
 */
export function readCharacterCard(bytes: Uint8Array, isPicture = false): ImportedCharacter {
  if (isPicture && !isPng(bytes)) throw refused("body", "is no PNG picture, which its Content-Type says");
  return readCard(isPng(bytes) ? cardOfPicture(bytes) : cardOfText(bytes, "body"));
}

function cardOfPicture(bytes: Uint8Array): JsonValue {
  const texts = pngTexts(bytes);
  const encoded = texts.get("ccv3") ?? texts.get("chara");
  if (encoded === undefined) throw refused("body", "is a picture without a character in it");
  if (!/^[A-Za-z0-9+/\s]*(?:=\s*){0,2}$/.test(encoded)) throw refused("body", "holds a character that is not base 64");
  return cardOfText(Buffer.from(encoded, "base64"), "chara");
}

function cardOfText(bytes: Uint8Array, param: string): JsonValue {
  if (!isUtf8(bytes)) throw refused(param, "is not UTF-8");
  const value = parseJson(new TextDecoder().decode(bytes));
  if (value === undefined) throw refused(param, "is neither JSON nor a PNG picture");
  return value;
}

const longestText = 100_000;

/** Version 1 has its fields at the top, later ones in `data`. */
function readCard(card: JsonValue): ImportedCharacter {
  const data = isJsonObject(card) && isJsonObject(card["data"]) ? card["data"] : card;
  const fields = new ForeignFields(data, data === card ? "" : "data.");
  const name = fields.text("name", 10_000).trim();
  if (name === "") throw refused("name", "is missing: this is no character card");
  const book = fields.value("character_book");
  const imported = isJsonObject(book) ? readWorldInfo(book, "character_book.") : undefined;
  const character = characterSchema.parse({
    name: name.slice(0, 200),
    description: fields.text("description", longestText),
    personality: fields.text("personality", longestText),
    scenario: fields.text("scenario", longestText),
    system_prompt: fields.text("system_prompt", longestText),
    post_history_instructions: fields.text("post_history_instructions", longestText),
    examples: fields.text("mes_example", longestText),
    first_message: fields.text("first_mes", longestText),
    alternate_greetings: textsOf(fields, "alternate_greetings", { most: 100, longest: longestText }),
    notes: fields.text(fields.has("creator_notes") ? "creator_notes" : "creatorcomment", longestText),
    creator: fields.text("creator", 10_000).slice(0, 500),
    version: fields.text("character_version", 10_000).slice(0, 200),
    tags: textsOf(fields, "tags", { most: 200, longest: 10_000 }).map((tag) => tag.slice(0, 200)),
    ...(imported === undefined ? {} : { world_book: imported.book }),
  });
  return { character, notes: imported?.notes ?? [] };
}

function textsOf(
  fields: ForeignFields,
  name: string,
  limits: { readonly most: number; readonly longest: number },
): readonly string[] {
  const texts = (fields.list(name) ?? []).filter((text) => typeof text === "string");
  if (texts.length > limits.most) throw refused(name, `has ${texts.length} texts; ${limits.most} are the most`);
  const long = texts.findIndex((text) => text.length > limits.longest);
  if (long >= 0) throw refused(`${name}[${long}]`, `has more than ${limits.longest} characters`);
  return texts;
}
