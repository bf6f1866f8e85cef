/**
 * World books as others write them: SillyTavern's world info, where `entries` is an object by number, and the
 * `character_book` of character cards, where it is a list. Both become our own form; what has no place in
 * it is named in the notes.
 */
import { isJsonObject, type JsonValue } from "../../json.ts";
import { ForeignFields, refused } from "./foreign-fields.ts";
import type { InjectedRole } from "./preset.ts";
import {
  BookPatterns,
  entrySchema,
  largestBook,
  unusableKey,
  worldBookSchema,
  type WorldBook,
  type WorldBookEntry,
} from "./world-book.ts";

export interface ImportedBook {
  readonly book: WorldBook;
  /** What was changed or left out, for people. */
  readonly notes: readonly string[];
}

/** @throws GatewayError `invalid_definition` naming the field */
export function readWorldInfo(value: JsonValue | undefined, path = ""): ImportedBook {
  const fields = new ForeignFields(value, path);
  const entries = listOf(fields.value("entries"));
  if (!isJsonObject(value) || entries === undefined) {
    throw refused(`${path}entries`, "is neither the object of a world info nor the list of a character book");
  }
  if (entries.length > largestBook.entries) {
    throw refused(`${path}entries`, `has ${entries.length} entries; ${largestBook.entries} are the most`);
  }
  const notes = new Notes();
  const reading = { notes, patterns: new BookPatterns() };
  const book = worldBookSchema.parse({
    description: fields.text("description", 10_000),
    ...given("scan_depth", fields.integer("scan_depth", 0, 1_000)),
    ...given("token_budget", fields.integer("token_budget", 0, 1_000_000)),
    ...given("recursive", fields.flag("recursive_scanning") ?? fields.flag("recursive")),
    ...given("case_sensitive", fields.flag("case_sensitive")),
    ...given("whole_words", fields.flag("whole_words")),
    entries: entries.map((entry, at) => readEntry(new ForeignFields(entry, `${path}entries[${at}].`), reading)),
  });
  return { book, notes: notes.lines };
}

function listOf(entries: JsonValue | undefined): readonly JsonValue[] | undefined {
  if (Array.isArray(entries)) return entries;
  if (!isJsonObject(entries)) return undefined;
  return Object.values(entries);
}

function given<Name extends string, Value>(name: Name, value: Value | undefined): { readonly [Key in Name]?: Value } {
  return value === undefined ? {} : ({ [name]: value } as { [Key in Name]: Value });
}

/** Lines of one kind are counted, so that a book of thousands of entries gives a page that can be read. */
class Notes {
  readonly #counts = new Map<string, number>();

  add(line: string): void {
    this.#counts.set(line, (this.#counts.get(line) ?? 0) + 1);
  }

  get lines(): readonly string[] {
    return [...this.#counts].map(([line, times]) => (times === 1 ? line : `${line} (${times} times)`)).slice(0, 50);
  }
}

interface Reading {
  readonly notes: Notes;
  readonly patterns: BookPatterns;
}

const logics = ["and_any", "not_all", "not_any", "and_all"] as const;
const roles: readonly InjectedRole[] = ["system", "user", "assistant"];

/** Cards keep SillyTavern's own fields in `extensions`. */
function readEntry(own: ForeignFields, reading: Reading): WorldBookEntry {
  const { notes } = reading;
  const more = own.fields("extensions");
  const number = (name: string, extension: string): number | undefined => own.number(name) ?? more.number(extension);
  const flag = (name: string, extension: string): boolean | undefined => own.flag(name) ?? more.flag(extension);
  const isSelective = own.flag("selective") ?? true;
  const chance = own.flag("useProbability") ?? more.flag("useProbability") ?? true;
  const secondary = own.has("keysecondary") ? "keysecondary" : "secondary_keys";
  const logic = number("selectiveLogic", "selectiveLogic") ?? 0;
  for (const name of ["group", "automationId", "sticky", "cooldown", "delay"]) {
    const value = own.value(name) ?? more.value(name);
    if (value !== undefined && value !== null && value !== "" && value !== 0) notes.add(`'${name}' is not used`);
  }
  return entrySchema.parse({
    name: own.text(own.has("comment") ? "comment" : "name", 10_000).slice(0, 500),
    keys: usable(own.words(own.has("key") ? "key" : "keys", largestBook.keys), reading),
    secondary_keys: isSelective ? usable(own.words(secondary, largestBook.keys), reading) : [],
    ...given("logic", logics[logic]),
    content: own.text("content", largestBook.content),
    enabled: own.flag("enabled") ?? own.flag("disable") !== true,
    constant: own.flag("constant") ?? false,
    ...given("order", own.integer(own.has("order") ? "order" : "insertion_order", -1_000_000, 1_000_000)),
    ...placeOf(own, more, notes),
    role: roles[number("role", "role") ?? 0] ?? "system",
    probability: chance ? Math.min(100, Math.max(0, number("probability", "probability") ?? 100)) : 100,
    ...given("scan_depth", own.integer("scanDepth", 0, 1_000) ?? more.integer("scan_depth", 0, 1_000)),
    ...given("case_sensitive", own.flag("caseSensitive") ?? flag("case_sensitive", "case_sensitive")),
    ...given("whole_words", flag("matchWholeWords", "match_whole_words")),
    exclude_recursion: flag("excludeRecursion", "exclude_recursion") ?? false,
    prevent_recursion: flag("preventRecursion", "prevent_recursion") ?? false,
    delay_until_recursion: flag("delayUntilRecursion", "delay_until_recursion") ?? false,
  });
}

/** Places by number. Those around the author's note and the examples are the nearest that there is here. */
function placeOf(
  own: ForeignFields,
  more: ForeignFields,
  notes: Notes,
): Pick<WorldBookEntry, "position"> & Partial<Pick<WorldBookEntry, "depth">> {
  const depth = own.integer("depth", 0, 10_000) ?? more.integer("depth", 0, 10_000);
  const named = own.value("position");
  const position = more.number("position") ?? own.number("position") ?? (named === "after_char" ? 1 : 0);
  switch (position) {
    case 0:
      return { position: "before_character" };
    case 1:
      return { position: "after_character" };
    case 4:
      return { position: "at_depth", ...given("depth", depth) };
    case 2:
    case 3:
      notes.add("a place at the author's note became 'at_depth' 4");
      return { position: "at_depth", depth: 4 };
    default:
      notes.add(`the place ${position} became 'after_character'`);
      return { position: "after_character" };
  }
}

/** Patterns that the engine does not take are left out: their entry would never come up through them. */
function usable(keys: readonly string[], { notes, patterns }: Reading): readonly string[] {
  return keys.flatMap((key) => {
    const cut = key.slice(0, 500);
    const reason = key.length > 500 ? "is longer than 500 characters" : unusableKey(cut, patterns);
    if (reason === undefined) return [cut];
    notes.add(`the key '${cut.slice(0, 60)}' was left out: it ${reason}`);
    return [];
  });
}
