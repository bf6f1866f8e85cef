/**
 * What the names in a tenant's prompts mean, compiled once for each snapshot, and which placeholders a content may
 * hold. Contents are put together of others in one direction only: a template of anything, a Tar of what is
 * defined after it and of all that is no Tar, a Var of what is defined after it. So no order of replacing matters.
 */
import type { TenantConfig } from "../../tenant-config.ts";
import { parseTemplate } from "./template.ts";
import type { VariableEntry } from "./variable.ts";

/**
 * Kinds of placeholders in the order in which they count: Tar before all (VCP specification 11). `value`: dates,
 * values of static plugins, descriptions of tools.
 */
export type Stage = "tar" | "agent" | "toolbox" | "emoji" | "sar" | "var" | "value" | "async";

/** A variable with its place in the order of definition. */
export interface Named {
  readonly kind: "variable";
  readonly entry: VariableEntry;
  readonly stage: Stage;
  readonly rank: number;
  /** What it stands for in every request; undefined: that has to be put together or read. */
  readonly plain: string | undefined;
}

export interface Names {
  /** By what stands in the braces. */
  readonly byName: ReadonlyMap<string, Named>;
  /** Text files by name. */
  readonly files: ReadonlyMap<string, Named>;
  readonly sars: readonly Named[];
  readonly emojis: readonly Named[];
}

const ofConfigs = new WeakMap<TenantConfig, Names>();

export function namesOf(config: TenantConfig): Names {
  let names = ofConfigs.get(config);
  if (names === undefined) {
    names = compile(config.variables);
    ofConfigs.set(config, names);
  }
  return names;
}

/** Forms under which the names of a kind stand in braces, those of earlier lines first where two are the same. */
const forms: readonly (readonly [VariableEntry["kind"], Stage, (name: string) => string])[] = [
  ["tar", "tar", (name) => name],
  ["agent", "agent", (name) => name],
  ["agent", "agent", (name) => `agent:${name}`],
  ["toolbox", "toolbox", (name) => name],
  ["toolbox", "toolbox", (name) => `toolbox:${name}`],
  ["emoji", "emoji", (name) => name],
  ["sar", "sar", (name) => name],
  ["var", "var", (name) => name],
  ["agent", "agent", (name) => `Agent${name}`],
];

function compile(variables: readonly VariableEntry[]): Names {
  const byName = new Map<string, Named>();
  const files = new Map<string, Named>();
  const all = variables.map((entry, rank): Named => {
    const stage: Stage = forms.find(([kind]) => kind === entry.kind)?.[1] ?? "value";
    return { kind: "variable", entry, stage, rank, plain: plainText(entry) };
  });
  const ofKind = (kind: VariableEntry["kind"]): readonly Named[] => all.filter(({ entry }) => entry.kind === kind);
  for (const named of ofKind("text")) files.set(named.entry.name, named);
  for (const [kind, , form] of forms) {
    for (const named of ofKind(kind)) {
      const name = form(named.entry.name);
      if (!byName.has(name)) byName.set(name, named);
    }
  }
  return { byName, files, sars: ofKind("sar"), emojis: ofKind("emoji") };
}

function plainText(entry: VariableEntry): string | undefined {
  const { kind, name, content } = entry;
  if (content === null || (kind !== "tar" && kind !== "var")) return undefined;
  if (content === "") return unconfigured(name);
  const isPlain = fileOf(entry, content) === undefined && parseTemplate(content).marks.length === 0;
  return isPlain ? content : undefined;
}

export function unconfigured(name: string): string {
  return `[未配置 ${name}]`;
}

/** Does a text for some models concern this one? */
export function isForModel({ options }: VariableEntry, model: string): boolean {
  const wanted = model.toLowerCase();
  const models = (options.models ?? []).map((each) => each.toLowerCase());
  return options.match_mode === "includes" ? models.some((each) => wanted.includes(each)) : models.includes(wanted);
}

/** A value that is longer is no name of a file. */
const longestFile = 300;

/** The file that a value names in place of being the text itself. */
export function fileOf({ kind }: VariableEntry, value: string): string | undefined {
  if (kind === "agent" || kind === "text" || kind === "emoji" || value.length > longestFile) return undefined;
  const name = value.trim();
  if (!name.endsWith("t") && !name.endsWith("T") && !name.endsWith("d") && !name.endsWith("D")) return undefined;
  const isFile = kind === "toolbox" ? /^[^\n]{1,200}\.(?:txt|md)$/i.test(name) : /^[^\n]{1,200}\.txt$/i.test(name);
  return isFile ? name.replaceAll("\\", "/").replace(/^(?:\.\/)?(?:TVStxt\/)?/i, "") : undefined;
}

/** Whose texts may hold which placeholders; the roles of messages and what they begin with. */
export type Audience = "system" | "prompted" | "noticed" | "other";

const stagesOf: { readonly [Who in Audience]: readonly Stage[] } = {
  system: ["tar", "agent", "toolbox", "emoji", "sar", "var", "value", "async"],
  prompted: ["agent", "toolbox", "sar", "async"],
  noticed: ["sar", "async"],
  other: ["async"],
};

const prompted = ["[系统提示:]", "[系统邀请指令:]"];
const noticed = ["[系统通知:]", "[系统通知]"];

export function audienceOf(role: unknown, text: string): Audience {
  if (role === "system" || role === "developer") return "system";
  if (role !== "user") return "other";
  if (prompted.some((begin) => text.startsWith(begin))) return "prompted";
  return noticed.some((begin) => text.startsWith(begin)) ? "noticed" : "other";
}

/** In what a placeholder stands. */
export interface Holder {
  readonly audience: Audience;
  /** Undefined: a message, an agent's prompt or a file, which may hold anything. */
  readonly value: Named | undefined;
}

/** May a text have this placeholder replaced? */
export function mayHold({ audience, value }: Holder, stage: Stage, rank: number): boolean {
  if (!stagesOf[audience].includes(stage)) return false;
  if (value === undefined || stage === "value" || stage === "async") return true;
  const isLater = rank > value.rank;
  if (value.stage === "tar") return stage !== "tar" || isLater;
  const isVariable = stage === "tar" || stage === "var";
  return isVariable && (value.stage === "sar" || isLater);
}
