/**
 * Presets, world books and characters of a tenant. What there is belongs to the tenant's snapshot, so that
 * every instance sees a change at its next request; contents are read when they are used, once for each
 * version of them.
 */
import { createHash } from "node:crypto";
import type * as z from "zod";
import type { CoreDeps } from "../../deps.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import { newId } from "../../ids.ts";
import { canonicalJson, parseJson } from "../../json.ts";
import type { TavernEntry, TavernKind } from "../../ports/tavern.ts";
import type { TenantConfig } from "../../tenant-config.ts";
import { characterSchema, type Character } from "./character.ts";
import { presetSchema, type TavernPreset } from "./preset.ts";
import { unusableKey, worldBookSchema, type WorldBook } from "./world-book.ts";

export interface TavernContents {
  readonly preset: TavernPreset;
  readonly world_book: WorldBook;
  readonly character: Character;
}

export const tavernSchemas: { readonly [Kind in TavernKind]: z.ZodType<TavernContents[Kind]> } = {
  preset: presetSchema,
  world_book: worldBookSchema,
  character: characterSchema,
};

const deepest = 32;

/** Each is read whole where it is used. */
const largestItem = 2_097_152;

type Deps = Pick<CoreDeps, "repos">;

/**
 * @param content as its schema gives it
 * @throws GatewayError `invalid_definition` naming a key that is no pattern, `payload_too_large`, `conflict`
 */
export async function putTavernItem<Kind extends TavernKind>(
  { repos }: Deps,
  tenant: string,
  item: { readonly kind: Kind; readonly name: string; readonly content: TavernContents[Kind] },
): Promise<TavernEntry> {
  if (isDeeperThan(item.content, deepest)) {
    throw new GatewayError("invalid_definition", `'${item.name}' is nested deeper than ${deepest} levels.`);
  }
  checkKeys(item.content);
  const content = canonicalJson(item.content);
  if (Buffer.byteLength(content) > largestItem) {
    throw new GatewayError("payload_too_large", `'${item.name}' has more than ${largestItem} bytes; divide it.`, {
      extra: { limit_bytes: largestItem },
    });
  }
  const hash = createHash("sha256").update(content).digest("hex");
  const stored = await repos.tavern.put(tenant, {
    id: newId("tavern"),
    kind: item.kind,
    name: item.name,
    hash,
    content,
  });
  if (stored !== undefined) return stored;
  throw new GatewayError("conflict", "A tenant has at most 500 presets, world books and characters; delete one first.");
}

function isDeeperThan(value: unknown, levels: number): boolean {
  if (typeof value !== "object" || value === null) return false;
  return levels === 0 || Object.values(value).some((part) => isDeeperThan(part, levels - 1));
}

function checkKeys(content: TavernContents[TavernKind]): void {
  const book = "entries" in content ? content : "world_book" in content ? content.world_book : undefined;
  if (book === undefined || !isBook(book)) return;
  book.entries.forEach(({ keys, secondary_keys: secondary }, at) => {
    for (const key of [...keys, ...secondary]) {
      const reason = unusableKey(key);
      if (reason === undefined) continue;
      const param = `entries[${at}].keys`;
      throw new GatewayError("invalid_definition", `${param}: the pattern '${key.slice(0, 100)}' ${reason}.`, {
        param,
      });
    }
  });
}

function isBook(value: unknown): value is WorldBook {
  return typeof value === "object" && value !== null && "entries" in value;
}

export function findTavernEntry(config: TenantConfig, kind: TavernKind, name: string): TavernEntry | undefined {
  return config.tavern.find((entry) => entry.kind === kind && entry.name === name);
}

/** What was read last, by tenant and content: what has one hash never changes. */
class Contents {
  static readonly #most = 500;
  readonly #known = new Map<string, { readonly content: unknown }>();

  get(tenant: string, { kind, hash }: TavernEntry): unknown {
    return this.#known.get(`${tenant} ${kind} ${hash}`)?.content;
  }

  keep(tenant: string, { kind, hash }: TavernEntry, content: unknown): void {
    this.#known.set(`${tenant} ${kind} ${hash}`, { content });
    const oldest = this.#known.keys().next().value;
    if (this.#known.size > Contents.#most && oldest !== undefined) this.#known.delete(oldest);
  }
}

const contents = new Contents();

/** Contents by entry, in one trip for those that are not known here; one that has gone in the meantime is missing. */
export async function readTavernItems<Kind extends TavernKind>(
  { repos }: Deps,
  tenant: string,
  entries: readonly (TavernEntry & { readonly kind: Kind })[],
): Promise<ReadonlyMap<string, TavernContents[Kind]>> {
  const found = new Map<string, TavernContents[Kind]>();
  const missing: string[] = [];
  for (const entry of entries) {
    const known = contents.get(tenant, entry);
    if (known === undefined) missing.push(entry.id);
    else found.set(entry.id, known as TavernContents[Kind]);
  }
  if (missing.length === 0) return found;
  for (const item of await repos.tavern.contents(tenant, missing)) {
    // Checked when it was written, and again because another release may have written it.
    const content = tavernSchemas[item.kind].parse(parseJson(item.content));
    contents.keep(tenant, item, content);
    found.set(item.id, content as TavernContents[Kind]);
  }
  return found;
}

export function isOfKind<Kind extends TavernKind>(
  kind: Kind,
): (entry: TavernEntry) => entry is TavernEntry & { readonly kind: Kind } {
  return (entry): entry is TavernEntry & { readonly kind: Kind } => entry.kind === kind;
}
