import { describe, expect, test } from "vitest";
import { verifies } from "../../../../../test/support/verifies.ts";
import { createFakeCore } from "../../../../../test/support/fake-core.ts";
import type { TavernEntry, TavernRepo } from "../../ports/tavern.ts";
import { putTavernItem, readTavernItems } from "./store.ts";
import { worldBookSchema, type WorldBook } from "./world-book.ts";

const entryOf = (id: string): TavernEntry & { readonly kind: "world_book" } => ({
  id,
  kind: "world_book",
  name: id,
  hash: id,
  bytes: 1,
  createdAt: 0,
  updatedAt: 0,
});

function coreWith(tavern: Partial<TavernRepo>) {
  const core = createFakeCore();
  return { ...core, repos: { ...core.repos, tavern: { ...core.repos.tavern, ...tavern } } };
}

const bookOf = (keys: readonly string[][], content = "x"): WorldBook =>
  worldBookSchema.parse({ entries: keys.map((each) => ({ keys: each, content })) });

describe(`a world book that is put ${verifies("VCP-9")}`, () => {
  const put = (content: WorldBook): Promise<TavernEntry> =>
    putTavernItem(coreWith({ put: () => Promise.resolve(entryOf("stored")) }), "ten_a", {
      kind: "world_book",
      name: "Book",
      content,
    });

  test("may have many patterns, and not more than can be compiled", async () => {
    const small = Array.from({ length: 10 }, (_, one) => Array.from({ length: 50 }, (_, at) => `/cat ${one}-${at}+/`));
    await expect(put(bookOf(small))).resolves.toMatchObject({ id: "stored" });
    const large = Array.from({ length: 100 }, (_, at) => `/[a-z]{${900 + at}}/`);
    await expect(put(bookOf([["cat"], large, large.map((key) => `${key}i`)]))).rejects.toMatchObject({
      code: "invalid_definition",
      details: { param: "entries[1].keys" },
      message: expect.stringContaining("too large together"),
    });
  });

  test("is measured before anything in it is compiled", async () => {
    const keys = Array.from({ length: 40 }, () => ["/(?=a)/"]);
    await expect(put(bookOf(keys, "x".repeat(65_536)))).rejects.toMatchObject({ code: "payload_too_large" });
  });
});

test(`books are kept by their size, not by their number ${verifies("VCP-9")}`, async () => {
  const content = JSON.stringify({ entries: Array.from({ length: 30 }, () => ({ content: "x".repeat(65_536) })) });
  const asked: string[] = [];
  const contents: TavernRepo["contents"] = (_tenant, ids) => {
    asked.push(...ids);
    return Promise.resolve(ids.map((id) => ({ ...entryOf(id), content })));
  };
  const read = (at: number): Promise<unknown> =>
    readTavernItems(coreWith({ contents }), "ten_kept", [entryOf(`book ${at}`)]);
  for (let at = 0; at < 20; at += 1) await read(at);
  await read(19);
  expect(asked).toHaveLength(20);
  await read(0);
  expect(asked).toHaveLength(21);
});
