/** Persistence of what the Tavern knows. Rules as in repos.ts. Contract: test/contract/tavern-repo.ts. */

export const tavernKinds = ["preset", "world_book", "character"] as const;
export type TavernKind = (typeof tavernKinds)[number];

/** An item without its content: part of the tenant's snapshot. */
export interface TavernEntry {
  readonly id: string;
  readonly kind: TavernKind;
  /** Unique among those of its kind. */
  readonly name: string;
  /** Of its content. */
  readonly hash: string;
  /** Of its content. */
  readonly bytes: number;
  readonly createdAt: number;
  readonly updatedAt: number;
}

export interface TavernItem extends TavernEntry {
  /** JSON. */
  readonly content: string;
}

export interface NewTavernItem {
  readonly id: string;
  readonly kind: TavernKind;
  readonly name: string;
  readonly hash: string;
  readonly content: string;
}

export interface TavernRepo {
  /**
   * Puts or replaces the item of this kind and name, which raises the config version where it changes something.
   * `undefined`: the tenant has as many as it may.
   */
  put(tenant: string, item: NewTavernItem): Promise<TavernEntry | undefined>;
  /** Those that are there, of the ones asked for. */
  contents(tenant: string, ids: readonly string[]): Promise<readonly TavernItem[]>;
  delete(tenant: string, kind: TavernKind, name: string): Promise<boolean>;
}
