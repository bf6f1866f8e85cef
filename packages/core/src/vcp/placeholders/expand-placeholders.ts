/**
 * The step of the message pipeline that replaces placeholders (VCP specification 4.5, 11; VCP-19, VCP-11). What a
 * conversation names is read first, from the tenant's own snapshot and in few trips; then it is expanded at once.
 */
import { isOfPictures } from "../../chat/pictures.ts";
import type { CallContext } from "../../context.ts";
import type { CoreDeps } from "../../core-deps.ts";
import type { JsonObject } from "../../json.ts";
import { Contents } from "./contents.ts";
import { dateTexts } from "./dates.ts";
import { Expander } from "./expander.ts";
import type { MediaMark } from "./media-marks.ts";
import { mapText, textsOf } from "../message-text.ts";
import { audienceOf, namesOf, type Audience } from "./names.ts";
import { Needs } from "./needs.ts";
import type { PlaceholderSources } from "./sources.ts";
import { tenantSources, type SourceDeps } from "./tenant-sources.ts";
import { parseTemplate, type Template } from "./template.ts";
import { tooManyCharacters } from "./too-much.ts";

export interface ExpandOptions {
  /** As the back end knows it. */
  readonly model: string;
  /** Left out: those of the tenant's plugins and nodes. */
  readonly sources?: PlaceholderSources;
  /** Hears of `{{ShowBase64}}` and its like in prompts, which are cut out; other messages are left to `takeMediaMarks`. */
  readonly onMediaMark?: (mark: MediaMark) => void;
}

export type PlaceholderDeps = SourceDeps & Pick<CoreDeps, "clock" | "publicUrl">;

interface Text {
  readonly template: Template;
  readonly audience: Audience;
}

/** Results that are read at the same time. */
const atOnce = 16;

/**
 * The messages with their placeholders replaced; a message without any is the same object.
 * @throws GatewayError `placeholder_limit` naming the variable with which it is too much
 */
export async function expandPlaceholders(
  deps: PlaceholderDeps,
  context: CallContext,
  messages: readonly JsonObject[],
  { model, sources = tenantSources(deps, context), onMediaMark = () => undefined }: ExpandOptions,
): Promise<readonly JsonObject[]> {
  const texts: Text[] = [];
  for (const message of messages) {
    for (const text of textsOf(message)) {
      texts.push({ template: parseTemplate(text), audience: audienceOf(message["role"], text) });
    }
  }
  const used = texts.filter(({ template }) => template.marks.length > 0);
  const expander =
    used.length === 0 ? undefined : await prepare(deps, context, used, { model, sources, onMediaMark, messages });
  let at = 0;
  return messages.map((message) =>
    mapText(message, (text) => {
      const { template, audience } = texts[at++] ?? { template: { text, marks: [] }, audience: "other" };
      if (expander !== undefined) return expander.expand(template, audience);
      return audience === "system" ? text.trim() : text;
    }),
  );
}

async function prepare(
  deps: PlaceholderDeps,
  context: CallContext,
  texts: readonly Text[],
  { model, sources, onMediaMark, messages }: Required<ExpandOptions> & { readonly messages: readonly JsonObject[] },
): Promise<Expander> {
  const { config } = context;
  const names = namesOf(config);
  const contents = new Contents(deps.repos.variables, context);
  const needs = new Needs(names, (named) => contents.of(named), model);
  for (const { template, audience } of texts) needs.walk(template, audience);
  while (needs.unread.length > 0) {
    await contents.read(needs.unread);
    needs.goOn();
  }
  const [staticValues, tools, asyncTexts, dates] = await Promise.all([
    needs.readsValues ? sources.staticValues() : new Map<string, string>(),
    needs.readsValues ? sources.toolTexts() : [],
    readResults(needs, sources, config.settings.placeholder_chars_max),
    dateTexts(deps.clock.now(), config.settings.time_zone, needs.dates),
  ]);
  return new Expander({
    names,
    templateOf: (named) => contents.of(named),
    staticValues,
    asyncTexts,
    dates,
    tools,
    nodes: config.nodes.map(({ name }) => name),
    port: portOf(deps.publicUrl),
    model,
    said: lastSaid(messages),
    limit: config.settings.placeholder_chars_max,
    onMediaMark,
  });
}

async function readResults(
  { results }: Needs,
  sources: PlaceholderSources,
  limit: number,
): Promise<ReadonlyMap<string, string>> {
  const texts = new Map<string, string>();
  let characters = 0;
  const waiting = [...results];
  for (let from = 0; from < waiting.length; from += atOnce) {
    const batch = waiting.slice(from, from + atOnce).map(async ([name, { plugin, taskId }]) => {
      const text = await sources.asyncText(plugin, taskId);
      characters += text.length;
      // Those after it are not even read.
      if (characters > limit) throw tooManyCharacters(name, limit);
      texts.set(name, text);
    });
    await Promise.all(batch);
  }
  return texts;
}

function lastSaid(messages: readonly JsonObject[]): string {
  const last = messages.findLast((message) => message["role"] === "user" && !isOfPictures(message));
  return last === undefined ? "" : textsOf(last).join("\n");
}

function portOf(publicUrl: string): string {
  const { port, protocol } = new URL(publicUrl);
  return port === "" ? (protocol === "https:" ? "443" : "80") : port;
}
