/**
 * Presets, world books and characters of a tenant. What there is belongs to the tenant's snapshot, so that
 * every instance sees a change at its next request; contents are read when they are used, once for each
 * version of them.
 */
import { createHash } from "node:crypto";
import type * as z from "zod";
import type { CoreDeps } from "../../core-deps.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import { newId } from "../../ids.ts";
import { Pace } from "../../pace.ts";
import { canonicalJson, isDeeperThan, parseJson } from "../../json.ts";
import type { TavernEntry, TavernKind } from "../../ports/tavern.ts";
import type { TenantConfig } from "../../tenant-config.ts";
import { characterSchema, type Character } from "./character.ts";
import { presetSchema, type TavernPreset } from "./preset.ts";
import { BookPatterns, unusableKey, worldBookSchema, type WorldBook } from "./world-book.ts";

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
  const content = canonicalJson(item.content);
  if (Buffer.byteLength(content) > largestItem) {
    throw new GatewayError("payload_too_large", `'${item.name}' has more than ${largestItem} bytes; divide it.`, {
      extra: { limit_bytes: largestItem },
    });
  }
  await checkKeys(item.content);
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

async function checkKeys(content: TavernContents[TavernKind]): Promise<void> {
  const book = "entries" in content ? content : "world_book" in content ? content.world_book : undefined;
  if (book === undefined || !isBook(book)) return;
  const patterns = new BookPatterns();
  const pace = new Pace();
  for (const [at, { keys, secondary_keys: secondary }] of book.entries.entries()) {
    await pace.turn();
    for (const key of [...keys, ...secondary]) {
      const reason = unusableKey(key, patterns);
      if (reason === undefined) continue;
      const param = `entries[${at}].keys`;
      throw new GatewayError("invalid_definition", `${param}: the pattern '${key.slice(0, 100)}' ${reason}.`, {
        param,
      });
    }
  }
}

function isBook(value: unknown): value is WorldBook {
  return typeof value === "object" && value !== null && "entries" in value;
}

export function findTavernEntry(config: TenantConfig, kind: TavernKind, name: string): TavernEntry | undefined {
  return config.tavern.find((entry) => entry.kind === kind && entry.name === name);
}

/** Characters kept, of all tenants; what was read longest ago goes first. */
const mostKept = 32_000_000;

interface Kept {
  readonly content: unknown;
  readonly characters: number;
}

/** What was read last, by tenant and content: what has one hash never changes. */
class Contents {
  readonly #known = new Map<string, Kept>();
  #characters = 0;

  get(tenant: string, entry: CacheKey): unknown {
    return this.#known.get(keyOf(tenant, entry))?.content;
  }

  /** @param characters of what it was read from */
  keep(tenant: string, entry: CacheKey, content: unknown, characters: number): void {
    const key = keyOf(tenant, entry);
    this.#characters += characters - (this.#known.get(key)?.characters ?? 0);
    this.#known.set(key, { content, characters });
    for (const [oldest, { characters: gone }] of this.#known) {
      if (this.#characters <= mostKept) break;
      this.#known.delete(oldest);
      this.#characters -= gone;
    }
  }
}

type CacheKey = Pick<TavernEntry, "kind" | "hash">;

function keyOf(tenant: string, { kind, hash }: CacheKey): string {
  return `${tenant} ${kind} ${hash}`;
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
    contents.keep(tenant, item, content, item.content.length);
    found.set(item.id, content as TavernContents[Kind]);
  }
  return found;
}

export function isOfKind<Kind extends TavernKind>(
  kind: Kind,
): (entry: TavernEntry) => entry is TavernEntry & { readonly kind: Kind } {
  return (entry): entry is TavernEntry & { readonly kind: Kind } => entry.kind === kind;
}
