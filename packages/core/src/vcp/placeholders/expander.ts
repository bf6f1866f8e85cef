/**
 * Expands the placeholders of one request (VCP protocol, placeholder engine; VCP-19). Everything that a text stands
 * for has been read before, so this is pure and one pass: each text is walked once, what stands for a placeholder
 * is put together from its own text, and what was put together is never looked at again. Values of plugins,
 * results of tasks and dates are put in as they are. Names that mean nothing stay, byte by byte.
 */
import { randomHex } from "../../random-hex.ts";
import { allToolsText } from "../plugins/tool-text.ts";
import { dateNames, type DateName } from "./dates.ts";
import { dynamicTools, namedTools } from "./dynamic-tools.ts";
import { parseFold, toFoldMode, unfold, type FoldBlock, type FoldMode } from "./fold.ts";
import {
  fileOf,
  isForModel,
  mayHold,
  unconfigured,
  type Audience,
  type Holder,
  type Named,
  type Names,
  type Stage,
} from "./names.ts";
import { toMediaMark, type MediaMark } from "./media-marks.ts";
import type { ToolText } from "./sources.ts";
import { parseAsyncName, parseTemplate, type Directive, type Mark, type Template } from "./template.ts";
import { tooManyCharacters, tooMuch } from "./too-much.ts";

/** Everything that the texts of a request may need. */
export interface Known {
  readonly names: Names;
  /** Of a variable's content; undefined: it has gone since the request began. */
  readonly templateOf: (named: Named) => Template | undefined;
  readonly staticValues: ReadonlyMap<string, string>;
  /** By the name in the braces. */
  readonly asyncTexts: ReadonlyMap<string, string>;
  readonly dates: ReadonlyMap<DateName, string>;
  readonly tools: readonly ToolText[];
  /** Names of the tenant's nodes that are there. */
  readonly nodes: readonly string[];
  readonly port: string;
  readonly model: string;
  /** What the user has said last. */
  readonly said: string;
  /** Characters. */
  readonly limit: number;
  /** Hears of marks in prompts, which are cut out. */
  readonly onMediaMark: (mark: MediaMark) => void;
}

/** Contents in contents: no prompt is put together from more. */
const deepest = 32;

/** What a name in braces means here. */
type Meaning =
  | Named
  | { readonly kind: "models"; readonly stage: "sar" }
  | { readonly kind: "dynamic"; readonly stage: "value" }
  | { readonly kind: "folded"; readonly stage: "value"; readonly blocks: readonly FoldBlock[] }
  | { readonly kind: "media"; readonly stage: "value"; readonly mark: MediaMark }
  | { readonly kind: "text"; readonly stage: Stage; readonly text: string };

/** One text, with what is nested in it by values. */
interface Scope extends Holder {
  /** Tells texts apart in which an agent was expanded. */
  readonly text: symbol;
}

interface Expanded {
  readonly id: string;
  readonly text: symbol;
  readonly value: string;
}

export class Expander {
  readonly #known: Known;
  readonly #meanings = new Map<string, Meaning>();
  readonly #toolTexts: ReadonlyMap<string, string>;
  /** Values that are the same wherever they stand, by whom they are for. */
  readonly #values: { readonly [Who in Audience]: Map<Named, string> } = {
    system: new Map(),
    prompted: new Map(),
    noticed: new Map(),
    other: new Map(),
  };
  /** Being expanded, outermost first. */
  readonly #active: Named[] = [];
  readonly #toolboxes = new Map<string, Expanded>();
  #agent: Expanded | undefined;
  /** Tools that the user has named. */
  #named: readonly ToolText[] | undefined;
  /** Counts what makes a value depend on where it stands. */
  #dependent = 0;
  #spent = 0;
  /** What is decided when the whole message is known, and what stands for it until then. */
  readonly #seal = `\u0000${randomHex(12)}:`;
  #late: (() => string)[] = [];
  #fold: FoldMode = "auto";
  #wishes: string[] = [];

  constructor(known: Known) {
    this.#known = known;
    this.#toolTexts = new Map(known.tools.map(({ name, text }) => [name, text]));
  }

  /** @throws GatewayError `placeholder_limit` naming the variable with which it is too much */
  expand(template: Template, audience: Audience): string {
    if (template.marks.length === 0) return trimmed(template.text, audience);
    this.#late = [];
    this.#fold = "auto";
    this.#wishes = [];
    const text = this.#render(template, { audience, value: undefined, text: Symbol("message") });
    return trimmed(this.#late.length === 0 ? text : this.#finish(text), audience);
  }

  #finish(text: string): string {
    const [head = "", ...rest] = text.split(this.#seal);
    const parts = rest.map((part) => {
      const end = part.indexOf("\u0000");
      return (this.#late[Number(part.slice(0, end))]?.() ?? "") + part.slice(end + 1);
    });
    return head + parts.join("");
  }

  #later(make: () => string): string {
    this.#dependent += 1;
    this.#late.push(make);
    return `${this.#seal}${this.#late.length - 1}\u0000`;
  }

  #render({ text, marks }: Template, scope: Scope): string {
    const meanings = marks.map((mark) => (mark.kind === "placeholder" ? this.#meaningOf(mark.name) : undefined));
    // Agents take turns by their place among themselves and in Tars, whatever stands before them.
    const early = new Map<Mark, string | undefined>();
    marks.forEach((mark, at) => {
      const meaning = meanings[at];
      if (meaning?.stage !== "tar" && meaning?.stage !== "agent") return;
      early.set(mark, this.#placeholder(meaning, mark.name, scope));
    });
    let result = "";
    let done = 0;
    marks.forEach((mark, at) => {
      const value = early.has(mark) ? early.get(mark) : this.#valueAt(mark, meanings[at], scope);
      if (value === undefined) return;
      result += text.slice(done, mark.start) + value;
      done = mark.end;
    });
    return result + text.slice(done);
  }

  /** Undefined: it stays. */
  #valueAt(mark: Mark, meaning: Meaning | undefined, scope: Scope): string | undefined {
    if (mark.kind === "directive") return this.#directive(mark, scope);
    return meaning === undefined ? undefined : this.#placeholder(meaning, mark.name, scope);
  }

  #directive({ name, value }: Directive, { audience }: Scope): string | undefined {
    if (audience !== "system") return undefined;
    this.#dependent += 1;
    if (name === "VCPDynamicTools") {
      this.#wishes.push(value);
      return "";
    }
    const mode = toFoldMode(value);
    if (mode === undefined) return undefined;
    this.#fold = mode;
    return "";
  }

  #placeholder(meaning: Meaning, name: string, scope: Scope): string | undefined {
    const rank = meaning.kind === "variable" ? meaning.rank : 0;
    if (!mayHold(scope, meaning.stage, rank)) return undefined;
    switch (meaning.kind) {
      case "variable":
        return this.#variable(meaning, scope);
      case "models":
        return this.#forModel(scope);
      case "dynamic":
        return this.#later(() => this.#charged(this.#dynamicTools(), name));
      case "folded":
        return this.#later(() => this.#charged(unfold(meaning.blocks, this.#fold), name));
      case "media":
        this.#known.onMediaMark(meaning.mark);
        return "";
      case "text":
        return this.#charged(meaning.text, name);
    }
  }

  #variable(named: Named, scope: Scope): string | undefined {
    if (named.plain !== undefined) return this.#charged(named.plain, named.entry.name);
    const values = this.#values[scope.audience];
    const known = values.get(named);
    if (known !== undefined) return this.#charged(known, named.entry.name);
    if (named.stage === "agent") return this.#agentText(named, scope);
    if (named.stage === "toolbox") return this.#toolboxText(named, scope);
    if (this.#active.includes(named)) {
      this.#dependent += 1;
      return undefined;
    }
    const before = this.#dependent;
    const value = this.#charged(this.#valueOf(named, scope), named.entry.name);
    if (this.#dependent === before) values.set(named, value);
    return value;
  }

  #valueOf(named: Named, scope: Scope): string {
    if (named.stage === "sar" && !isForModel(named.entry, this.#known.model)) return "";
    const template = this.#known.templateOf(named);
    if (named.stage === "emoji") return template?.text ?? "";
    if (template === undefined || template.text === "") {
      return named.stage === "sar" ? "" : unconfigured(named.entry.name);
    }
    const file = fileOf(named.entry, template.text);
    if (file !== undefined) return this.#fileText(file, scope);
    if (template.marks.length === 0) return template.text;
    return this.#within(named, () => this.#render(template, { ...scope, value: named }));
  }

  #fileText(name: string, { audience }: Scope): string {
    const named = this.#known.names.files.get(name);
    const template = named === undefined ? undefined : this.#known.templateOf(named);
    if (named === undefined || template === undefined) return `[变量文件 (${name}) 未找到]`;
    if (this.#active.includes(named)) {
      this.#dependent += 1;
      return `[Error: Circular reference detected for '${name}']`;
    }
    return this.#whole(named, template, audience);
  }

  /** A text that may hold anything, as a message may. */
  #whole(named: Named, template: Template, audience: Audience): string {
    const text = Symbol(named.entry.name);
    const value = this.#within(named, () => this.#render(template, { audience, value: undefined, text }));
    return trimmed(value, audience);
  }

  #within(named: Named, render: () => string): string {
    if (this.#active.length >= deepest) {
      throw tooMuch(
        this.#active[0]?.entry.name ?? named.entry.name,
        `is put together from more than ${deepest} contents in one another`,
      );
    }
    this.#active.push(named);
    try {
      return render();
    } finally {
      this.#active.pop();
    }
  }

  /** One agent speaks in a request: whoever was expanded first, wherever it stands in that text. */
  #agentText(named: Named, { audience, text }: Scope): string {
    this.#dependent += 1;
    const { id, name } = named.entry;
    const held = this.#agent;
    if (held !== undefined) return held.id === id && held.text === text ? this.#charged(held.value, name) : "";
    if (this.#active.includes(named)) return `[Error: Circular agent reference detected for '${name}']`;
    const template = this.#known.templateOf(named);
    const value =
      template === undefined
        ? `[AgentManager: Error loading prompt for '${name}'. File not found or unreadable.]`
        : this.#charged(this.#whole(named, template, audience), name);
    // One that is nested in it was expanded first; from now on the outer one is the agent.
    this.#agent = { id, text, value };
    return value;
  }

  /** Once in a request, wherever it stands in that text. */
  #toolboxText(named: Named, { audience, text }: Scope): string {
    this.#dependent += 1;
    const { id, name } = named.entry;
    const known = this.#toolboxes.get(id);
    if (known !== undefined) return known.text === text ? this.#charged(known.value, name) : "";
    const content = this.#known.templateOf(named);
    const file = content === undefined ? undefined : fileOf(named.entry, content.text);
    const source = file === undefined ? named : this.#known.names.files.get(file);
    if (source !== undefined && this.#active.includes(source)) return "";
    const template = source === undefined ? undefined : this.#known.templateOf(source);
    const value =
      source === undefined || template === undefined
        ? `[变量文件 (${file ?? name}) 未找到]`
        : this.#charged(this.#whole(source, unfolded(template), audience), name);
    this.#toolboxes.set(id, { id, text, value });
    return value;
  }

  #forModel(scope: Scope): string {
    const fitting = this.#known.names.sars.filter(({ entry }) => isForModel(entry, this.#known.model));
    return fitting.map((named) => this.#variable(named, scope) ?? "").join("\n");
  }

  #meaningOf(name: string): Meaning | undefined {
    const known = this.#known.names.byName.get(name) ?? this.#meanings.get(name);
    if (known !== undefined) return known;
    const meaning = this.#lookUp(name);
    if (meaning !== undefined) this.#meanings.set(name, meaning);
    return meaning;
  }

  #lookUp(name: string): Meaning | undefined {
    const { asyncTexts, staticValues, dates, nodes, port } = this.#known;
    if (parseAsyncName(name) !== undefined) return toText("async", asyncTexts.get(name));
    if (name === "EmojiList") return toText("emoji", this.#emojiList());
    if (name.endsWith(emojiEnd) && name !== emojiEnd) return toText("emoji", `[${name}列表不可用]`);
    if (name === "SarPromptAll") return { kind: "models", stage: "sar" };
    if (/^SarPrompt\d+$/.test(name)) return { kind: "text", stage: "sar", text: "" };
    if (name === "VCPDistributedServerList") return toText("value", nodes.length === 0 ? noNodes : nodes.join("\n"));
    const date = dateNames.find((each) => each === name);
    if (date !== undefined) return toText("value", dates.get(date));
    const mark = toMediaMark(name);
    if (mark !== undefined) return { kind: "media", stage: "value", mark };
    const value = staticValues.get(name) ?? staticValues.get(`{{${name}}}`);
    if (value !== undefined) return toValue(value);
    return this.#tool(name) ?? (name === "Port" ? toText("value", port) : undefined);
  }

  #tool(name: string): Meaning | undefined {
    const { tools } = this.#known;
    if (name === "VCPDynamicTools") return { kind: "dynamic", stage: "value" };
    if (name === "VCPAllTools") return toText("value", allToolsText(tools.map(({ text }) => text)));
    if (!name.startsWith("VCP")) return undefined;
    const text = this.#toolTexts.get(name.slice(3));
    return toText("value", text ?? (name.startsWith("VCP_") ? this.#toolTexts.get(name.slice(4)) : undefined));
  }

  #dynamicTools(): string {
    const { tools, said } = this.#known;
    this.#named ??= namedTools(tools, said);
    return dynamicTools(tools, this.#wishes, this.#named);
  }

  #emojiList(): string {
    const lists = this.#known.names.emojis.map(
      (named) => `${named.entry.name}: ${this.#known.templateOf(named)?.text ?? ""}`,
    );
    return lists.length === 0 ? "[表情包列表不可用]" : lists.join("\n");
  }

  #charged(value: string, name: string): string {
    // Something for what is empty, too: a thousand of nothing are work as well.
    this.#spent += value.length + 16;
    if (this.#spent > this.#known.limit) throw tooManyCharacters(name, this.#known.limit);
    return value;
  }
}

const emojiEnd = "表情包";
const noNodes = "[当前没有已连接的分布式节点]";

function toText(stage: Stage, text: string | undefined): Meaning | undefined {
  return text === undefined ? undefined : { kind: "text", stage, text };
}

function toValue(value: string): Meaning {
  const blocks = parseFold(value);
  return blocks === undefined
    ? { kind: "text", stage: "value", text: value }
    : { kind: "folded", stage: "value", blocks };
}

function unfolded(template: Template): Template {
  const blocks = parseFold(template.text);
  return blocks === undefined ? template : parseTemplate(unfold(blocks, "auto"));
}

function trimmed(text: string, audience: Audience): string {
  return audience === "system" ? text.trim() : text;
}
