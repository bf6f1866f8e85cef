/**
 * Names that models can use, made from names that they cannot: tools are `[a-zA-Z0-9_-]{1,64}`, and the
 * same operation gets the same name every time, whatever stands before it in the document.
 */
import { createHash } from "node:crypto";

const longestName = 64;
const hashLength = 8;

/** Text as a name; empty where none of it can stand in one. */
export function toToolName(text: string): string {
  return text
    .normalize("NFKD")
    .replace(/\p{M}+/gu, "")
    .replace(/[^a-zA-Z0-9_-]+/g, "_")
    .replace(outerUnderscores, "");
}

/** Each run is looked at once: one that may begin anywhere would be tried again from each of its characters. */
const outerUnderscores = /^_+|(?<!_)_+$/g;

export interface Nameable {
  /** Identity in its document. */
  readonly key: string;
  /** What it would like to be called. */
  readonly wish: string;
}

export interface NamingOptions {
  /** Names that operations of this document have from an earlier import; they keep them. */
  readonly known: ReadonlyMap<string, string>;
  /** Is this the name of something else? */
  readonly isTaken: (name: string) => boolean;
}

/** The name of each by its key: as wished where nobody else wants or has it, else with a hash of the key. */
export function assignNames(
  items: readonly Nameable[],
  { known, isTaken }: NamingOptions,
): ReadonlyMap<string, string> {
  const wanted = new Map<string, number>();
  for (const { key, wish } of items) if (!known.has(key)) wanted.set(wish, (wanted.get(wish) ?? 0) + 1);
  const kept = new Set(known.values());
  const names = new Map<string, string>();
  const used = new Set<string>(kept);
  for (const { key, wish } of items) {
    const before = known.get(key);
    const isFree =
      wish.length <= longestName && wish !== "" && wanted.get(wish) === 1 && !kept.has(wish) && !isTaken(wish);
    const name = before ?? (isFree ? wish : alias(wish, key, (other) => used.has(other) || isTaken(other)));
    used.add(name);
    names.set(key, name);
  }
  return names;
}

function alias(wish: string, key: string, isTaken: (name: string) => boolean): string {
  const start = wish.slice(0, longestName - hashLength - 1).replace(/_+$/, "");
  for (let attempt = 0; ; attempt += 1) {
    const hash = shortHash(attempt === 0 ? key : `${key} ${attempt}`, hashLength);
    const name = start === "" ? `tool_${hash}` : `${start}_${hash}`;
    if (!isTaken(name)) return name;
  }
}

export function shortHash(text: string, length: number): string {
  return createHash("sha256").update(text, "utf8").digest("hex").slice(0, length);
}

/** What every model takes as the name of an argument, and letters of other alphabets. */
const argumentName = /^[\p{L}\p{N}_.-]+$/u;

/** What a model may call a parameter: its own name where that can be used. */
export function toArgumentName(name: string): string {
  const isUsable = argumentName.test(name) && name !== "__proto__";
  const usable = isUsable ? name : name.replace(/[^\p{L}\p{N}_.-]+/gu, "_").replace(outerUnderscores, "");
  if (usable === "") return `argument_${shortHash(name, hashLength)}`;
  if (usable.length <= longestName) return usable;
  return `${usable.slice(0, longestName - hashLength - 1)}_${shortHash(name, hashLength)}`;
}
