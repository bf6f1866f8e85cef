/**
 * What expanding a conversation will need, found by walking its texts and the contents that they name, each once:
 * so everything is read in a few batches before, and nothing that is not named is read at all.
 */
import { dateNames, type DateName } from "./dates.ts";
import { fileOf, isForModel, type Audience, type Named, type Names } from "./names.ts";
import { parseAsyncName, type Template } from "./template.ts";

/** Results of tasks that one request may name; those beyond stay as they are. */
const mostResults = 1_000;

export class Needs {
  readonly #names: Names;
  readonly #templateOf: (named: Named) => Template | undefined;
  readonly #model: string;
  readonly #visited = new Map<Audience, Set<Named>>();
  /** Whose contents are not known yet, and for whom they are wanted. */
  readonly #unread: { readonly named: Named; readonly audience: Audience }[] = [];
  readonly dates = new Set<DateName>();
  readonly results = new Map<string, { readonly plugin: string; readonly taskId: string }>();
  /** A name that is no variable's: a static plugin's, a node's or a tool's. */
  readsValues = false;

  constructor(names: Names, templateOf: (named: Named) => Template | undefined, model: string) {
    this.#names = names;
    this.#templateOf = templateOf;
    this.#model = model;
  }

  /** Contents to be read before `goOn`. */
  get unread(): readonly Named[] {
    return this.#unread.map(({ named }) => named);
  }

  /** Looks into the contents that were read in the meantime. */
  goOn(): void {
    for (const { named, audience } of this.#unread.splice(0)) {
      const template = this.#templateOf(named);
      if (template !== undefined) this.#walkContent(named, template, audience);
    }
  }

  walk({ marks }: Template, audience: Audience): void {
    for (const mark of marks) if (mark.kind === "placeholder") this.#name(mark.name, audience);
  }

  #name(name: string, audience: Audience): void {
    const named = audience === "other" ? undefined : this.#names.byName.get(name);
    if (named?.plain !== undefined) return undefined;
    if (named !== undefined) return this.#visit(named, audience);
    const result = parseAsyncName(name);
    if (result !== undefined) {
      if (this.results.size < mostResults) this.results.set(name, result);
      return undefined;
    }
    if (audience === "other") return undefined;
    if (name === "SarPromptAll") return this.#names.sars.forEach((each) => this.#visit(each, audience));
    if (audience !== "system") return undefined;
    if (name === "EmojiList") return this.#names.emojis.forEach((each) => this.#visit(each, audience));
    const date = dateNames.find((each) => each === name);
    if (date === undefined) this.readsValues = true;
    else this.dates.add(date);
    return undefined;
  }

  #visit(named: Named, audience: Audience): void {
    const visited = this.#visited.get(audience) ?? new Set();
    if (visited.has(named)) return;
    this.#visited.set(audience, visited.add(named));
    if (named.stage === "sar" && !isForModel(named.entry, this.#model)) return;
    const template = this.#templateOf(named);
    if (template === undefined) this.#unread.push({ named, audience });
    else this.#walkContent(named, template, audience);
  }

  #walkContent(named: Named, template: Template, audience: Audience): void {
    const file = fileOf(named.entry, template.text);
    if (file === undefined) return named.stage === "emoji" ? undefined : this.walk(template, audience);
    const found = this.#names.files.get(file);
    if (found !== undefined) this.#visit(found, audience);
    return undefined;
  }
}
