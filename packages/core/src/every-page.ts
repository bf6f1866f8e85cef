/** Everything behind a paged list: a search in its first page alone misses what lies beyond. */
import type { Page, PageRequest } from "./ports/repos.ts";

/** What one trip brings. */
const pageSize = 100;

export async function readEveryPage<Item extends { readonly id: string }>(
  list: (page: PageRequest) => Promise<Page<Item>>,
): Promise<readonly Item[]> {
  const items: Item[] = [];
  for (;;) {
    const last = items.at(-1)?.id;
    const page = await list({ limit: pageSize, order: "asc", ...(last === undefined ? {} : { after: last }) });
    items.push(...page.data);
    if (!page.hasMore || page.data.length === 0) return items;
  }
}
