/** The Tavern's step of the pipeline: what the conversation asks for is read, and put into it. */
import type { CallContext } from "../../context.ts";
import type { CoreDeps } from "../../core-deps.ts";
import { Pace } from "../../pace.ts";
import type { TavernKind } from "../../ports/tavern.ts";
import { isOfSystem } from "../message-text.ts";
import type { Draft } from "../pipeline/draft.ts";
import { dateNames, dateTexts, type DateName } from "../placeholders/dates.ts";
import type { AskedChat } from "./last-chat.ts";
import type { TavernPreset } from "./preset.ts";
import { injectTavern, tavernRequestOf, withoutTriggers, type Tavern } from "./inject.ts";
import { seededRandom } from "./random.ts";
import { findTavernEntry, isOfKind, readTavernItems, type TavernContents } from "./store.ts";
import { PatternWork, type WorldBook } from "./world-book.ts";

type Deps = Pick<CoreDeps, "repos" | "log" | "clock">;

/** @param chat its `callId` decides about chance: the same one, the same entries */
export async function applyTavern(deps: Deps, context: CallContext, draft: Draft, chat: AskedChat): Promise<Draft> {
  const request = tavernRequestOf(draft);
  if (request === undefined) return draft;
  const plain = withoutTriggers(draft);
  const tavern = await readTavern(deps, context, request.preset);
  if (tavern === undefined) return withoutEmpty(plain);
  const pace = new Pace();
  const work = new PatternWork();
  const turn = (): Promise<void> => pace.turn();
  const injected = await injectTavern(plain, tavern, {
    without: request.without,
    random: seededRandom(chat.callId),
    turn,
    work,
    withTimes: await timesFor(deps, context, {
      rules: tavern.preset.rules,
      callId: chat.callId,
      session: request.session ?? chat.session,
    }),
  });
  if (work.isExhausted) report(deps, context, "keys of world books were left out: they cost too much together");
  return withoutEmpty(injected);
}

/** A system message that only held the trigger would be refused by many back ends. */
function withoutEmpty(draft: Draft): Draft {
  return draft.filter(({ message }) => !isOfSystem(message) || message["content"] !== "");
}

const timeMarks = /\{\{(Date|Time|Today|LastChatTime|TimeSinceLastChat)\}\}/g;

async function timesFor(
  deps: Deps,
  context: CallContext,
  { rules, ...chat }: { readonly rules: TavernPreset["rules"] } & AskedChat,
): Promise<(text: string) => string> {
  const wanted = new Set<string>();
  for (const { content } of rules) {
    const text = typeof content === "string" ? content : content.content;
    for (const [, name = ""] of text.matchAll(timeMarks)) wanted.add(name);
  }
  if (wanted.size === 0) return (text) => text;
  const now = deps.clock.now();
  const zone = context.config.settings.time_zone;
  const dates = new Set<DateName>(dateNames.filter((name) => wanted.has(name)));
  const texts = new Map<string, string>(await dateTexts(now, zone, dates));
  if (wanted.has("LastChatTime") || wanted.has("TimeSinceLastChat")) {
    const { lastChatAt, lastChatTexts } = await import("./last-chat.ts");
    const told = await lastChatTexts({ at: await lastChatAt(deps, context, chat), now, zone });
    for (const [name, text] of Object.entries(told)) texts.set(name, text);
  }
  return (text) => text.replaceAll(timeMarks, (whole, name: string) => texts.get(name) ?? whole);
}

/** Undefined, and logged, where there is no such preset. */
async function readTavern(deps: Deps, context: CallContext, name: string): Promise<Tavern | undefined> {
  const [preset] = await readNamed(deps, context, "preset", [name]);
  if (preset === undefined) return undefined;
  const [books, characters] = await Promise.all([
    readNamed(deps, context, "world_book", preset.world_books),
    readNamed(deps, context, "character", preset.character === undefined ? [] : [preset.character]),
  ]);
  const [character] = characters;
  const own: readonly WorldBook[] = character?.world_book === undefined ? [] : [character.world_book];
  return { preset, character, worldBooks: [...own, ...books] };
}

async function readNamed<Kind extends TavernKind>(
  deps: Deps,
  context: CallContext,
  kind: Kind,
  names: readonly string[],
): Promise<readonly TavernContents[Kind][]> {
  const entries = [...new Set(names)].flatMap((name) => {
    const entry = findTavernEntry(context.config, kind, name);
    if (entry === undefined || !isOfKind(kind)(entry)) {
      report(deps, context, `there is no ${kind} '${name}'`);
      return [];
    }
    return [entry];
  });
  if (entries.length === 0) return [];
  const found = await readTavernItems(deps, context.tenant, entries);
  return entries.flatMap(({ id }) => found.get(id) ?? []);
}

function report({ log }: Deps, { tenant, requestId }: CallContext, reason: string): void {
  log.log("warn", "tavern left something out", { tenant, request_id: requestId, reason });
}
