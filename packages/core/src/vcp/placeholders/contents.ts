/**
 * Contents of variables as templates, kept by their hash: what has one hash never changes, so nothing here is ever
 * out of date. Small contents come with the snapshot, large ones are read in one trip where they are used.
 */
import type { VariableRepo } from "../../ports/variables.ts";
import type { Named } from "./names.ts";
import type { VariableEntry } from "./variable.ts";
import { parseTemplate, type Template } from "./template.ts";

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
  /** Null: it has gone since the snapshot was made. */
  readonly #read = new Map<string, Template | null>();

  constructor(repo: Pick<VariableRepo, "contents">, tenant: string) {
    this.#repo = repo;
    this.#tenant = tenant;
  }

  /** Undefined: not read yet, or gone. */
  of({ entry }: Pick<Named, "entry">): Template | undefined {
    if (entry.content !== null) return inlineTemplate(entry, entry.content);
    const read = this.#read.get(entry.id);
    if (read !== undefined) return read ?? undefined;
    const template = templates.get(entry.hash);
    if (template !== undefined) this.#read.set(entry.id, template);
    return template;
  }

  async read(wanted: readonly Pick<Named, "entry">[]): Promise<void> {
    const ids = [...new Set(wanted.map(({ entry }) => entry.id))].filter((id) => !this.#read.has(id));
    if (ids.length === 0) return;
    for (const id of ids) this.#read.set(id, null);
    for (const { id, hash, content } of await this.#repo.contents(this.#tenant, ids)) {
      this.#read.set(id, templates.get(hash) ?? templates.keep(hash, content));
    }
  }
}
