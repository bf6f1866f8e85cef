/** A page of a list, and how it is asked for. */

export interface PageRequest {
  /** 1 to 100. */
  readonly limit: number;
  /** Id after which the page starts, in the given order. */
  readonly after?: string;
  readonly order: "asc" | "desc";
}

export interface Page<T> {
  readonly data: readonly T[];
  readonly hasMore: boolean;
  /** Belongs to it and is not in `data`; absent where everything can be read. */
  readonly unreadable?: readonly UnreadableItem[];
}

/** What is stored in a form that this release does not know. */
export interface UnreadableItem {
  readonly id: string;
  /** A sentence, without the values. */
  readonly message: string;
  /** Its place in the page, among those that can be read. */
  readonly at: number;
}
