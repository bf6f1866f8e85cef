/** Everything behind a paged list: a search in its first page alone misses what lies beyond. */
import type { Page, PageRequest } from "./ports/page.ts";

/** What one trip brings. */
const pageSize = 100;

export async function readEveryPage<Item extends { readonly id: string }>(
  list: (page: PageRequest) => Promise<Page<Item>>,
): Promise<readonly Item[]> {
  const items: Item[] = [];
  for await (const { data } of everyPage(list)) items.push(...data);
  return items;
}

export async function* everyPage<Item extends { readonly id: string }>(
  list: (page: PageRequest) => Promise<Page<Item>>,
): AsyncGenerator<Page<Item>> {
  let after: string | undefined;
  for (;;) {
    const page = await list({ limit: pageSize, order: "asc", ...(after === undefined ? {} : { after }) });
    yield page;
    after = placesOf(page, ({ id }) => id).last;
    if (!page.hasMore || after === undefined) return;
  }
}

/** Ids at both ends of a page, whether what they name can be read or not: a walk begins after the last one. */
export function placesOf<Item>(
  { data, unreadable = [] }: Page<Item>,
  idOf: (item: Item) => string,
): { readonly first: string | undefined; readonly last: string | undefined } {
  const idAt = (at: number): string | undefined => {
    const broken = unreadable.find((each) => each.at === at);
    if (broken !== undefined) return broken.id;
    const item = data[at - unreadable.filter((each) => each.at < at).length];
    return item === undefined ? undefined : idOf(item);
  };
  return { first: idAt(0), last: idAt(data.length + unreadable.length - 1) };
}
