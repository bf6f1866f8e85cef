/**
 * The values of parsed YAML. Every node is looked at once, and an alias is the value that its anchor has:
 * the parser's own way goes through all anchors for each alias, and through all keys for each key.
 */
import { isAlias, isMap, isScalar, isSeq, type YAMLMap } from "yaml";
import { importLimits } from "./limits.ts";

/** Stands behind an anchor whose value is not read to its end. */
class Unfinished {}

export class YamlValues {
  /** What stands behind each anchor, those of earlier pieces of a document included. */
  readonly #anchors = new Map<string, unknown>();
  #merged = 0;

  /** @throws Error for a key given twice, an alias of nothing or of what it stands in, and merges without an end */
  read(node: unknown): unknown {
    if (isAlias(node)) return this.#valueOf(node.source);
    const anchor = isScalar(node) || isMap(node) || isSeq(node) ? node.anchor : undefined;
    if (anchor === undefined) return this.#readContent(node);
    const unfinished = new Unfinished();
    this.#anchors.set(anchor, unfinished);
    const value = this.#readContent(node);
    // An anchor of the same name within it came later.
    if (this.#anchors.get(anchor) === unfinished) this.#anchors.set(anchor, value);
    return value;
  }

  #valueOf(name: string): unknown {
    if (!this.#anchors.has(name)) throw new Error(`the alias '${name.slice(0, 80)}' has no anchor before it`);
    const value = this.#anchors.get(name);
    if (value instanceof Unfinished) throw new Error(`the alias '${name.slice(0, 80)}' stands in what it means`);
    return value;
  }

  #readContent(node: unknown): unknown {
    if (isSeq(node)) return node.items.map((item) => this.read(item));
    if (isMap(node)) return this.#readMap(node);
    return isScalar(node) ? node.value : null;
  }

  #readMap({ items }: YAMLMap): unknown {
    const members = new Map<string, unknown>();
    /** Members that a merge brought: one that is written out here beats them. */
    const brought = new Set<string>();
    for (const { key, value } of items) {
      if (isMergeKey(key)) {
        this.#merge(members, brought, this.read(value));
        continue;
      }
      const name = toName(this.read(key));
      if (members.has(name) && !brought.delete(name)) throw new Error(`the key '${name.slice(0, 80)}' is not unique`);
      members.set(name, this.read(value));
    }
    return Object.fromEntries(members);
  }

  /** The first of several that has a member wins. */
  #merge(members: Map<string, unknown>, brought: Set<string>, sources: unknown): void {
    for (const source of Array.isArray(sources) ? (sources as readonly unknown[]) : [sources]) {
      if (!isMapping(source)) throw new Error("what '<<' merges is no mapping");
      for (const [name, value] of Object.entries(source)) {
        this.#merged += 1;
        if (this.#merged > importLimits.yamlMerged)
          throw new Error(`more than ${importLimits.yamlMerged} members come from merges ('<<')`);
        if (members.has(name)) continue;
        members.set(name, value);
        brought.add(name);
      }
    }
  }
}

function isMergeKey(key: unknown): boolean {
  return isScalar(key) && typeof key.value === "symbol";
}

function toName(key: unknown): string {
  if (key === null || key === undefined) return "";
  if (typeof key === "string" || typeof key === "number" || typeof key === "boolean") return String(key);
  throw new Error("a key is no single value");
}

function isMapping(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
