/** What every search of knowledge bases promises, with chunks written as they are (KB-2, KB-3). */
import { randomUUID } from "node:crypto";
import { usualConfig, type KnowledgeAcl, type KnowledgeReader } from "@toolyard/core/knowledge/config";
import { ftsScope } from "@toolyard/core/knowledge/fts-scope";
import { toFtsQuery, toFtsText } from "@toolyard/core/knowledge/fts-text";
import { newId } from "@toolyard/core/ids";
import type {
  FoundChunk,
  KnowledgeFound,
  KnowledgeSearch,
  KnowledgeSearchRepo,
  MetadataCondition,
} from "@toolyard/core/ports/knowledge-search";
import type { Repos } from "@toolyard/core/ports/repos";
import type { Database, Statement } from "@toolyard/db/database";
import { createRepos } from "@toolyard/db/repos/index";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { TestShards } from "../support/databases.ts";
import { verifies } from "../support/verifies.ts";

interface Written {
  readonly document?: string;
  readonly text: string;
  readonly vector?: readonly number[];
  readonly metadata?: object;
  readonly acl?: Partial<KnowledgeAcl>;
  /** Of the document, where this chunk belongs to an older one. */
  readonly current?: number;
  readonly index?: number;
}

const everyone: KnowledgeReader = { all: false, role: "member", user: null, business_unit: null };

export function describeKnowledgeSearchRepo(name: string, make: () => Promise<TestShards>): void {
  describe(`searches of knowledge bases: ${name} ${verifies("KB-2", "KB-3")}`, () => {
    let server: TestShards;
    let repos: Repos;
    let searches: KnowledgeSearchRepo;
    let database: Database;
    let chunkId = 0;
    beforeAll(async () => {
      server = await make();
      repos = createRepos(server.shards);
      searches = repos.knowledgeSearch;
      database = server.shards.directory;
    });
    afterAll(() => server.close());

    const newTenant = async (): Promise<string> => {
      const id = newId("tenant");
      await repos.tenants.create({ id, name: "t", wrappedKey: randomUUID(), settings: {} });
      return id;
    };

    const newBase = async (
      tenant: string,
      chunks: readonly Written[],
      acl: KnowledgeAcl | null = null,
    ): Promise<string> => {
      const base = newId("knowledgeBase");
      const config = JSON.stringify({ ...usualConfig, acl });
      await database.batch([
        {
          sql: "INSERT INTO knowledge_bases (id, tenant, name, config) VALUES (?1, ?2, ?3, ?4)",
          args: [base, tenant, `b ${base}`, config],
        },
        ...chunks.flatMap((chunk, at) => toStatements(tenant, base, { document: `d${at}`, ...chunk })),
      ]);
      return base;
    };

    const toStatements = (
      tenant: string,
      base: string,
      chunk: Written & { readonly document: string },
    ): Statement[] => {
      const { document, text, vector, metadata = {}, acl, current = 1, index = 1 } = chunk;
      const bytes = vector === undefined ? null : new Uint8Array(Float32Array.from(vector).buffer);
      const documentAcl =
        acl === undefined ? null : JSON.stringify({ roles: [], users: [], business_units: [], ...acl });
      chunkId += 1;
      return [
        {
          sql: `INSERT INTO knowledge_documents (tenant, knowledge_base, id, name, version, current_version, state, call_id,
              media_type, bytes, hash, blob_key, metadata, acl, chunk_count)
            VALUES (?1, ?2, ?3, ?3 || '.md', ?4, ?4, 'ready', 'call', 'text/plain', 1, 'h', 'k', ?5, ?6, 1) ON CONFLICT DO NOTHING`,
          args: [tenant, base, document, current, JSON.stringify(metadata), documentAcl],
        },
        {
          sql: `INSERT INTO knowledge_chunks (id, tenant, knowledge_base, document, document_version, index_version, ordinal,
              span_start, span_end, embedding, heading, text) VALUES (?1, ?2, ?3, ?4, 1, ?5, 0, 0, ?6, ?7, '', ?8)`,
          args: [chunkId, tenant, base, document, index, text.length, bytes, text],
        },
        {
          sql: "INSERT INTO knowledge_fts (rowid, scope, text) VALUES (?1, ?2, ?3)",
          args: [chunkId, ftsScope(base, index), toFtsText(text)],
        },
      ];
    };

    const words = (bases: readonly string[], query: string): KnowledgeSearch["lists"] => [
      { kind: "full_text", bases, match: toFtsQuery(query) ?? '""', weight: 1 },
    ];
    const vectors = (
      bases: readonly string[],
      vector: readonly number[],
      minSimilarity = -1,
    ): KnowledgeSearch["lists"] => [
      { kind: "vector", bases, vector: Float32Array.from(vector), minSimilarity, weight: 1 },
    ];
    const searchAll = (
      tenant: string,
      bases: readonly string[],
      more: Partial<KnowledgeSearch>,
    ): Promise<KnowledgeFound> =>
      searches.search(tenant, {
        bases,
        reader: everyone,
        conditions: [],
        lists: [],
        candidates: 20,
        limit: 10,
        ...more,
      });
    const search = async (...asked: Parameters<typeof searchAll>): Promise<readonly FoundChunk[]> =>
      (await searchAll(...asked)).hits;
    const textsOf = (found: readonly FoundChunk[]): string[] => found.map(({ text }) => text);

    test("find words of Chinese and English, the best first", async () => {
      const tenant = await newTenant();
      const base = await newBase(tenant, [
        { text: "价格是 10 元" },
        { text: "The price is 12" },
        { text: "知识库的全文检索" },
      ]);
      expect(textsOf(await search(tenant, [base], { lists: words([base], "检索") }))).toEqual(["知识库的全文检索"]);
      expect(textsOf(await search(tenant, [base], { lists: words([base], "PRICE") }))).toEqual(["The price is 12"]);
      expect(await search(tenant, [base], { lists: words([base], "nothing of that") })).toEqual([]);
    });

    test("find what is nearest by the cosine, whatever its length", async () => {
      const tenant = await newTenant();
      const base = await newBase(tenant, [
        { text: "east", vector: [9, 0, 0] },
        { text: "north", vector: [0, 1, 0] },
        { text: "north-east", vector: [1, 1, 0] },
        { text: "none" },
        { text: "of no direction", vector: [0, 0, 0] },
        { text: "of another model", vector: [1, 0] },
      ]);
      const found = await search(tenant, [base], { lists: vectors([base], [1, 0.1, 0]) });
      expect(textsOf(found)).toEqual(["east", "north-east", "north"]);
      expect(found[0]).toMatchObject({
        document: "d0",
        documentName: "d0.md",
        knowledgeBase: base,
        spanEnd: 4,
        score: 1,
      });
      expect(found[0]?.similarity).toBeCloseTo(0.995, 3);
      expect(textsOf(await search(tenant, [base], { lists: vectors([base], [1, 0.1, 0], 0.7) }))).toEqual([
        "east",
        "north-east",
      ]);
    });

    test("fuse both lists by places, with their weights", async () => {
      const tenant = await newTenant();
      const base = await newBase(tenant, [
        { text: "alpha one", vector: [0, 1] },
        { text: "alpha alpha both", vector: [1, 0.2] },
        { text: "near", vector: [1, 0] },
      ]);
      const lists = [...vectors([base], [1, 0], 0.5), ...words([base], "alpha")];
      expect(textsOf(await search(tenant, [base], { lists }))[0]).toBe("alpha alpha both");
      const [byVector, byWords] = lists;
      const weighted = [byVector, byWords].flatMap((list) =>
        list === undefined ? [] : [{ ...list, weight: list.kind === "vector" ? 5 : 0.01 }],
      );
      expect(textsOf(await search(tenant, [base], { lists: weighted }))[0]).toBe("near");
      const found = await search(tenant, [base], { lists });
      expect(found.every(({ score }) => score > 0 && score <= 1)).toBe(true);
      expect(found.find(({ text }) => text === "alpha one")).toMatchObject({ similarity: null });
    });

    test("show nothing of other tenants, and are not crowded out by them", async () => {
      const [large, small] = [await newTenant(), await newTenant()];
      const many = Array.from({ length: 50 }, () => ({ text: "order 4711 secret-a", vector: [1, 0] }));
      const other = await newBase(large, many);
      const own = await newBase(small, [{ text: "order 4711 note-b", vector: [1, 0] }]);
      const lists = (bases: readonly string[]): KnowledgeSearch["lists"] => [
        ...vectors(bases, [1, 0]),
        ...words(bases, "order 4711"),
      ];
      expect(textsOf(await search(small, [own], { lists: lists([own]), limit: 3, candidates: 3 }))).toEqual([
        "order 4711 note-b",
      ]);
      expect(await search(small, [other], { lists: lists([other]) })).toEqual([]);
      expect(textsOf(await search(small, [own, other], { lists: lists([own, other]), candidates: 1 }))).toEqual([
        "order 4711 note-b",
      ]);
      expect(await searches.find(small, [other])).toMatchObject({ bases: [] });
      expect((await searches.find(small, "all")).bases.map(({ id }) => id)).toEqual([own]);
    });

    test("show what is current alone, of documents and of indexes", async () => {
      const tenant = await newTenant();
      const base = await newBase(tenant, [
        { document: "old", text: "price 10", vector: [1, 0], current: 2 },
        { document: "building", text: "price 11", vector: [1, 0], index: 2 },
        { document: "served", text: "price 12", vector: [1, 0] },
      ]);
      const both = [...vectors([base], [1, 0]), ...words([base], "price")];
      expect(textsOf(await search(tenant, [base], { lists: both, candidates: 1 }))).toEqual(["price 12"]);
      await database.batch([{ sql: "UPDATE knowledge_bases SET index_version = 2 WHERE id = ?1", args: [base] }]);
      expect(textsOf(await search(tenant, [base], { lists: both, candidates: 1 }))).toEqual(["price 11"]);
    });

    test("give places to what the reader may read, before they count", async () => {
      const tenant = await newTenant();
      const hidden = Array.from({ length: 30 }, () => ({
        text: "plan plan plan",
        vector: [1, 0],
        acl: { users: ["boss"] },
      }));
      const base = await newBase(tenant, [
        ...hidden,
        { text: "plan of the unit", vector: [0.9, 0.1], acl: { business_units: ["sales"] } },
        { text: "plan for all", vector: [0.8, 0.2] },
        { text: "plan of nobody", vector: [1, 0], acl: {} },
      ]);
      const lists = [...vectors([base], [1, 0]), ...words([base], "plan")];
      const as = async (reader: Partial<KnowledgeReader>): Promise<string[]> =>
        textsOf(
          await search(tenant, [base], {
            lists,
            candidates: reader.all === true ? 50 : 3,
            limit: 50,
            reader: { ...everyone, ...reader },
          }),
        ).sort();
      expect(await as({})).toEqual(["plan for all"]);
      expect(await as({ business_unit: "sales" })).toEqual(["plan for all", "plan of the unit"]);
      expect(await as({ user: "boss" })).toContain("plan plan plan");
      expect(await as({ all: true })).toContain("plan of nobody");
      const closed = await newBase(
        tenant,
        [{ text: "plan of admins" }, { text: "open plan", acl: { roles: ["member"] } }],
        {
          roles: ["admin"],
          users: [],
          business_units: [],
        },
      );
      expect(textsOf(await search(tenant, [closed], { lists: words([closed], "plan") }))).toEqual(["open plan"]);
    });

    test.each<[string, readonly MetadataCondition[], readonly string[]]>([
      ["a value", [{ key: "lang", is: "eq", value: "zh" }], ["a", "b"]],
      ["another value", [{ key: "lang", is: "ne", value: "zh" }], ["c"]],
      [
        "a range",
        [
          { key: "year", is: "gte", value: 2020 },
          { key: "year", is: "lt", value: 2025.5 },
        ],
        ["a", "c"],
      ],
      ["one of several", [{ key: "lang", is: "in", values: ["en", "fr"] }], ["c"]],
      ["one of none", [{ key: "lang", is: "in", values: [] }], []],
      ["a truth", [{ key: "draft", is: "eq", value: true }], ["b"]],
      ["numbers as numbers", [{ key: "year", is: "eq", value: "2020" }], []],
      ["texts as texts", [{ key: "lang", is: "gt", value: 0 }], []],
      ["truths as truths", [{ key: "draft", is: "eq", value: 1 }], []],
      [
        "a name with anything in it",
        [{ key: `o'"]$.x`, is: "eq", value: "'; DROP TABLE knowledge_chunks; --" }],
        ["d"],
      ],
      ["a name that no document has", [{ key: "none", is: "ne", value: 1 }], []],
    ])("leave out what does not have %s", async (_what, conditions, expected) => {
      const tenant = await newTenant();
      const base = await newBase(tenant, [
        { document: "a", text: "x", metadata: { lang: "zh", year: 2020 } },
        { document: "b", text: "x", metadata: { lang: "zh", year: 2026, draft: true } },
        { document: "c", text: "x", metadata: { lang: "en", year: 2025 } },
        { document: "d", text: "x", metadata: { [`o'"]$.x`]: "'; DROP TABLE knowledge_chunks; --" } },
      ]);
      const found = await search(tenant, [base], { lists: words([base], "x"), conditions });
      expect(found.map(({ document }) => document).sort()).toEqual(expected);
    });

    test("keep to the documents that are named", async () => {
      const tenant = await newTenant();
      const base = await newBase(tenant, [{ text: "x" }, { text: "x" }, { text: "x" }]);
      const found = await search(tenant, [base], { lists: words([base], "x"), documents: ["d1", "none"] });
      expect(found.map(({ document }) => document)).toEqual(["d1"]);
    });

    test("search several bases, each by its own vectors", async () => {
      const tenant = await newTenant();
      const flat = await newBase(tenant, [{ text: "flat", vector: [1, 0] }]);
      const deep = await newBase(tenant, [{ text: "deep", vector: [1, 0, 0] }]);
      const lists = [...vectors([flat], [1, 0]), ...vectors([deep], [1, 0, 0])];
      expect(textsOf(await search(tenant, [flat, deep], { lists })).sort()).toEqual(["deep", "flat"]);
    });

    test("say which documents have no vector that can be compared, of those that may be seen", async () => {
      const tenant = await newTenant();
      const mixed = await newBase(tenant, [
        { text: "as now", vector: [1, 0] },
        { text: "as before", vector: [1, 0, 0] },
        { text: "as before, too", vector: [0, 1, 0] },
        { text: "of somebody else", vector: [1, 0, 0], acl: { users: ["boss"] } },
        { text: "of before, replaced", vector: [1, 0, 0], current: 2 },
      ]);
      const plain = await newBase(tenant, [{ text: "never embedded" }]);
      const alike = await newBase(tenant, [{ text: "as now", vector: [0, 1] }]);
      const all = [mixed, plain, alike];
      const found = await searchAll(tenant, all, { lists: [...vectors(all, [1, 0]), ...words(all, "before now")] });
      expect(textsOf(found.hits).sort()).toEqual(["as before", "as before, too", "as now", "as now"]);
      expect(found.unlike.toSorted((one, other) => other.documents - one.documents)).toEqual([
        { knowledgeBase: `b ${mixed}`, documents: 2, dimensions: 3, asked: 2 },
        { knowledgeBase: `b ${plain}`, documents: 1, dimensions: null, asked: 2 },
      ]);
      const others = await searchAll(await newTenant(), all, { lists: vectors(all, [1, 0]) });
      expect(others).toEqual({ hits: [], unlike: [] });
    });

    test("know of a base how much is searched in it", async () => {
      const tenant = await newTenant();
      const base = await newBase(tenant, [{ text: "x" }, { text: "y" }]);
      const { bases, isObserved } = await searches.find(tenant, [base, "kb_none"]);
      expect(bases).toMatchObject([{ id: base, name: `b ${base}`, chunks: 2, config: usualConfig }]);
      expect(isObserved).toBe(false);
      expect((await searches.find(tenant, [`b ${base}`])).bases).toHaveLength(1);
    });
  });
}
