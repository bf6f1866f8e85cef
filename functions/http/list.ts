/** The one shape of lists and the one way to page through them (design "Public contract"). */
import { placesOf } from "@toolyard/core/every-page";
import type { Page, PageRequest, UnreadableItem } from "@toolyard/core/ports/page";
import * as z from "zod";

/** A query's number is a text; of one that is too large it is not said that it is none. */
export function pageSize(most: number): z.ZodCoercedNumber {
  return z.coerce
    .number({
      error: (issue) => (issue.code === "invalid_type" && issue.expected === "number" ? "must be a number" : undefined),
    })
    .int()
    .min(1)
    .max(most);
}

/** Query of a list route; routes with filters `extend` it. */
export const pageQuery = z.strictObject({
  limit: pageSize(100).default(20).meta({ description: "Items per page, 1 to 100." }),
  after: z
    .string()
    .min(1)
    .max(200)
    .optional()
    .meta({ description: "Id after which the page starts: `last_id` of the page before." }),
  order: z.enum(["asc", "desc"]).default("desc").meta({ description: "By creation; newest first is `desc`." }),
});

export function toPageRequest(query: z.output<typeof pageQuery>): PageRequest {
  return { limit: query.limit, order: query.order, ...(query.after === undefined ? {} : { after: query.after }) };
}

export interface ListBody<Item> {
  readonly object: "list";
  readonly data: readonly Item[];
  readonly has_more: boolean;
  readonly first_id: string | null;
  readonly last_id: string | null;
  /** Stored in a form that this release does not know. */
  readonly unreadable?: readonly Pick<UnreadableItem, "id" | "message">[];
}

/** @param idOf the value that `after` takes for this item */
export function toList<Stored, Item>(
  page: Page<Stored>,
  toItem: (stored: Stored) => Item,
  idOf: (item: Item) => string,
): ListBody<Item> {
  const data = page.data.map(toItem);
  const { first, last } = placesOf({ ...page, data }, idOf);
  const unreadable = page.unreadable?.map(({ id, message }) => ({ id, message }));
  return {
    object: "list",
    data,
    has_more: page.hasMore,
    first_id: first ?? null,
    last_id: last ?? null,
    ...(unreadable === undefined ? {} : { unreadable }),
  };
}

/** Schema of a list of these items, for OpenAPI. */
export function listSchema<Item extends z.ZodType>(item: Item): z.ZodObject {
  return z.object({
    object: z.literal("list"),
    data: z.array(item),
    has_more: z.boolean(),
    first_id: z.string().nullable(),
    last_id: z.string().nullable(),
    unreadable: z
      .array(z.object({ id: z.string(), message: z.string() }))
      .optional()
      .meta({
        description:
          "What belongs to this page and cannot be read: a newer release, or other software, has written it. `first_id` and `last_id` count it. Absent where there is none.",
      }),
  });
}
