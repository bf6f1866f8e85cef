/**
 * Contents of variables as templates, kept by their hash: what has one hash never changes, so nothing here is ever
 * out of date. Small contents come with the snapshot, large ones are read in one trip where they are used.
 */
import type { CallContext } from "../../context.ts";
import type { VariableRepo } from "../../ports/variables.ts";
import type { Named } from "./names.ts";
import type { VariableEntry } from "./variable.ts";
import { parseTemplate, type Template } from "./template.ts";
import { tooManyCharacters } from "./too-much.ts";

/** Characters kept, of all tenants; what was used longest ago goes first. */
const mostKept = 32_000_000;

class Templates {
  readonly #known = new Map<string, Template>();
  #characters = 0;

  get(hash: string): Template | undefined {
    const template = this.#known.get(hash);
    if (template === undefined) return undefined;
    this.#known.delete(hash);
    this.#known.set(hash, template);
    return template;
  }

  keep(hash: string, text: string): Template {
    const template = parseTemplate(text);
    if (!this.#known.has(hash)) this.#characters += text.length;
    this.#known.set(hash, template);
    for (const [oldest, { text: gone }] of this.#known) {
      if (this.#characters <= mostKept) break;
      this.#known.delete(oldest);
      this.#characters -= gone.length;
    }
    return template;
  }
}

const templates = new Templates();

const inline = new WeakMap<VariableEntry, Template>();

/** Kept as long as the snapshot that it came with. */
function inlineTemplate(entry: VariableEntry, content: string): Template {
  let template = inline.get(entry);
  if (template === undefined) {
    template = parseTemplate(content);
    inline.set(entry, template);
  }
  return template;
}

/** The contents that one request works with. */
export class Contents {
  readonly #repo: Pick<VariableRepo, "contents">;
  readonly #tenant: string;
  /** Characters. */
  readonly #limit: number;
  #bytes = 0;
  /** Null: it has gone since the snapshot was made. */
  readonly #read = new Map<string, Template | null>();

  /** @param context with the limit of what one request works with */
  constructor(repo: Pick<VariableRepo, "contents">, { tenant, config }: Pick<CallContext, "tenant" | "config">) {
    this.#repo = repo;
    this.#tenant = tenant;
    this.#limit = config.settings.placeholder_chars_max;
  }

  /**
   * Undefined: not read yet, or gone.
   * @throws GatewayError `placeholder_limit` naming the variable with which it is too much
   */
  of({ entry }: Pick<Named, "entry">): Template | undefined {
    if (entry.content !== null) return inlineTemplate(entry, entry.content);
    const read = this.#read.get(entry.id);
    if (read !== undefined) return read ?? undefined;
    const template = templates.get(entry.hash);
    if (template !== undefined) this.#take(entry, template);
    return template;
  }

  /** Counted before it is read: the sizes are known, and what is too much is not to be in memory first. */
  #take(entry: VariableEntry, template: Template | null): void {
    this.#bytes += entry.bytes;
    // A character has three bytes at most, or is two of four bytes.
    if (this.#bytes > 3 * this.#limit) throw tooManyCharacters(entry.name, this.#limit);
    this.#read.set(entry.id, template);
  }

  /** @throws GatewayError `placeholder_limit` naming the variable with which it is too much */
  async read(wanted: readonly Pick<Named, "entry">[]): Promise<void> {
    const ids: string[] = [];
    for (const { entry } of wanted) {
      if (this.#read.has(entry.id)) continue;
      this.#take(entry, null);
      ids.push(entry.id);
    }
    if (ids.length === 0) return;
    for (const { id, hash, content } of await this.#repo.contents(this.#tenant, ids)) {
      this.#read.set(id, templates.get(hash) ?? templates.keep(hash, content));
    }
  }
}
