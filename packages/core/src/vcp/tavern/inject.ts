/**
 * The Tavern: the first step of the pipeline (VCP specification 4.5; VCP-8, VCP-9). `{{VCPTavern::Preset}}` in
 * the first system message names what is put into the conversation: the rules of a preset, the character that
 * is played and what its world books know of what is talked about.
 */
import type { JsonObject } from "../../json.ts";
import { mapDraft, type Draft, type DraftMessage } from "../pipeline/draft.ts";
import { isOfSystem, joinText, mapText, textOf } from "../message-text.ts";
import { characterText, withNames, withNamesOfCard, type Character, type Names } from "./character.ts";
import type { InjectedRole, TavernPreset, TavernRule } from "./preset.ts";
import { activeEntries, type Scan, type WorldBook, type WorldBookEntry } from "./world-book.ts";

const trigger = /\{\{VCPTavern::([^{}]+)\}\}/;
const triggers = /\{\{VCPTavern::[^{}]+\}\}/g;

export interface TavernRequest {
  readonly preset: string;
  /** Names of rules that are left out. */
  readonly without: ReadonlySet<string>;
  /** Whose last chat is meant, where it is not the request's own session. */
  readonly session: string | undefined;
}

/** What the first system message asks for; undefined: nothing. */
export function tavernRequestOf(draft: Draft): TavernRequest | undefined {
  const system = draft.find(({ message }) => isOfSystem(message));
  const [, asked] = (system === undefined ? null : trigger.exec(textOf(system.message))) ?? [];
  if (asked === undefined) return undefined;
  const [preset = "", ...more] = asked.split("::");
  const left = more
    .filter((part) => part.startsWith(blacklist))
    .flatMap((part) => part.slice(blacklist.length).split(","));
  const session = more.find((part) => !part.startsWith(blacklist))?.trim();
  return {
    preset: preset.trim(),
    without: new Set(left.map((name) => name.trim())),
    session: session === "" ? undefined : session,
  };
}

const blacklist = "blacklist:";

/** Without the trigger, which means nothing to the model; texts are trimmed, as upstream does. */
export function withoutTriggers(draft: Draft): Draft {
  return mapDraft(draft, (message) => mapText(message, (text) => text.replaceAll(triggers, "").trim()));
}

export interface Tavern {
  readonly preset: TavernPreset;
  readonly character: Character | undefined;
  readonly worldBooks: readonly WorldBook[];
}

export interface TavernOptions extends Omit<Scan, "texts"> {
  /** Names of rules that are left out. */
  readonly without: ReadonlySet<string>;
  /** Puts times into a rule's text: those for users and assistants get no variables later. */
  readonly withTimes: (text: string) => string;
}

/** The conversation with everything that the preset brings. */
export async function injectTavern(
  draft: Draft,
  { preset, character, worldBooks }: Tavern,
  options: TavernOptions,
): Promise<Draft> {
  const names: Names = { user: preset.user_name ?? "User", character: character?.name };
  const isNamed = preset.user_name !== undefined || character !== undefined;
  const rules = preset.rules.filter(({ enabled, name }) => enabled && !options.without.has(name));
  const texts = draft.flatMap(({ message }) => (isTalk(message) ? [textOf(message)] : [])).reverse();
  const entries: WorldBookEntry[] = [];
  for (const book of worldBooks) entries.push(...(await activeEntries(book, { ...options, texts })));
  const lore = entries
    .sort((a, b) => a.order - b.order)
    .map((entry) => ({ entry, text: withNamesOfCard(entry.content, names) }));
  const named = (text: string): string => options.withTimes(isNamed ? withNames(text, names) : text);
  const contents = rules.map((rule) => toContent(rule, named));
  const embedded = embed(draft, contents);
  const placed = placeRelative(embedded, contents);
  const played = placeCharacter(placed, lore, character === undefined ? undefined : { character, names });
  return placeByDepth(played, [
    ...contents.filter(({ rule }) => rule.type === "depth").map(({ rule, entry }) => ({ depth: rule.depth, entry })),
    ...lore
      .filter(({ entry }) => entry.position === "at_depth")
      .map(({ entry, text }) => ({ depth: entry.depth, entry: toEntry(entry.role, text) })),
    ...lastWords(character, names),
  ]);
}

interface RuleContent {
  readonly rule: TavernRule;
  readonly text: string;
  readonly entry: DraftMessage;
}

function toContent(rule: TavernRule, named: (text: string) => string): RuleContent {
  const { content } = rule;
  const text = named(typeof content === "string" ? content : content.content);
  return { rule, text, entry: toEntry(typeof content === "string" ? "system" : content.role, text) };
}

function toEntry(role: InjectedRole, content: string): DraftMessage {
  const isHidden = role === "hidden";
  return { message: { role: isHidden ? "system" : role, content }, isHidden };
}

/** What is hidden cannot be part of a message that others see: it gets one of its own. */
function embed(draft: Draft, contents: readonly RuleContent[]): Draft {
  const result = [...draft];
  for (const { rule, text, entry } of contents) {
    if (rule.type !== "embed" || entry.isHidden || text === "") continue;
    for (const at of targetsOf(result, rule.target)) {
      const found = result[at];
      if (found !== undefined) result[at] = { ...found, message: joinText(found.message, text, rule.position) };
    }
  }
  return result;
}

function placeRelative(draft: Draft, contents: readonly RuleContent[]): Draft {
  const result = [...draft];
  for (const { rule, text, entry } of contents) {
    if (text === "" || rule.type === "depth" || (rule.type === "embed" && !entry.isHidden)) continue;
    // From the end, so that the places before stay what they are.
    for (const at of targetsOf(result, rule.target).reverse()) {
      result.splice(rule.position === "before" ? at : at + 1, 0, entry);
    }
  }
  return result;
}

/** The character with its surroundings, after the first system message. */
function placeCharacter(
  draft: Draft,
  lore: readonly { readonly entry: WorldBookEntry; readonly text: string }[],
  played: { readonly character: Character; readonly names: Names } | undefined,
): Draft {
  const at = (position: WorldBookEntry["position"]): DraftMessage[] =>
    lore.filter(({ entry }) => entry.position === position).map(({ entry, text }) => toEntry(entry.role, text));
  const self = played === undefined ? "" : withNamesOfCard(characterText(played.character), played.names);
  const own = self === "" ? [] : [toEntry(played?.character.role ?? "system", self)];
  const block = [...at("before_character"), ...own, ...at("after_character")];
  if (block.length === 0) return draft;
  const system = draft.findIndex(({ message, isHidden }) => isOfSystem(message) && !isHidden);
  return [...draft.slice(0, system + 1), ...block, ...draft.slice(system + 1)];
}

function lastWords(
  character: Character | undefined,
  names: Names,
): readonly { readonly depth: number; readonly entry: DraftMessage }[] {
  const text = character?.post_history_instructions.trim() ?? "";
  if (character === undefined || text === "") return [];
  return [{ depth: 0, entry: toEntry(character.role, withNamesOfCard(text, names)) }];
}

/** The deepest first; what is deeper than the conversation stands behind its first system message. */
function placeByDepth(
  draft: Draft,
  insertions: readonly { readonly depth: number; readonly entry: DraftMessage }[],
): Draft {
  const length = draft.length;
  const first = draft[0] !== undefined && isOfSystem(draft[0].message) ? 1 : 0;
  const byPlace = new Map<number, DraftMessage[]>();
  for (const { depth, entry } of insertions.toSorted((a, b) => b.depth - a.depth)) {
    if (entry.message["content"] === "") continue;
    const place = beforeAnswers(draft, Math.max(Math.min(first, length), length - depth));
    byPlace.set(place, [...(byPlace.get(place) ?? []), entry]);
  }
  return Array.from({ length: length + 1 }, (_, at) => [...(byPlace.get(at) ?? []), ...draft.slice(at, at + 1)]).flat();
}

/** Nothing may stand between a call and its results. */
function beforeAnswers(draft: Draft, place: number): number {
  let at = place;
  while (at > 0 && draft[at]?.message["role"] === "tool") at -= 1;
  return at;
}

function targetsOf(draft: Draft, target: TavernRule["target"]): number[] {
  const indexes = (isWanted: (message: JsonObject) => boolean): number[] =>
    draft.flatMap(({ message, isHidden }, at) => (!isHidden && isWanted(message) ? [at] : []));
  switch (target) {
    case "system":
      return indexes(isOfSystem).slice(0, 1);
    case "first_user":
      return indexes(isUser).slice(0, 1);
    case "last_user":
      return indexes(isUser).slice(-1);
    case "all_user":
      return indexes(isUser);
    default:
      return target satisfies never;
  }
}

function isUser({ role }: JsonObject): boolean {
  return role === "user";
}

function isTalk({ role }: JsonObject): boolean {
  return role === "user" || role === "assistant";
}
