/** What every repository of knowledge bases promises, with two instances at one database (KB-1, KB-2). */
import { randomUUID } from "node:crypto";
import { newId } from "@toolyard/core/ids";
import { changeConfig, usualConfig, type KnowledgeConfigChange } from "@toolyard/core/knowledge/config";
import type {
  IngestFence,
  KnowledgeBase,
  KnowledgeGarbage,
  NewChunk,
  PutDocument,
} from "@toolyard/core/ports/knowledge";
import type { NewCall } from "@toolyard/core/ports/calls";
import type { Repos } from "@toolyard/core/ports/repos";
import { createRepos } from "@toolyard/db/repos/index";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { TwoInstances } from "../support/two-instances.ts";
import { verifies } from "../support/verifies.ts";
import { newTool } from "./calls-fixture.ts";

const manager = { all: true, role: "admin", user: null, business_unit: null } as const;
const most = { documents: 100, bytes: 10_000 };
const page = { limit: 10, order: "asc" } as const;

export function describeKnowledgeRepo(name: string, make: () => Promise<TwoInstances>): void {
  describe(`knowledge: ${name} ${verifies("KB-1", "KB-2")}`, () => {
    let instances: TwoInstances;
    let both: readonly [Repos, Repos];
    beforeAll(async () => {
      instances = await make();
      both = [createRepos(instances.first), createRepos(instances.second)];
    });
    afterAll(() => instances.close());

    const newTenant = async (): Promise<string> => {
      const id = newId("tenant");
      await both[1].tenants.create({ id, name: "t", wrappedKey: randomUUID(), settings: {} });
      return id;
    };
    const newBase = async (change: KnowledgeConfigChange = {}): Promise<readonly [string, KnowledgeBase]> => {
      const tenant = await newTenant();
      const base = { id: newId("knowledgeBase"), name: "kb", config: changeConfig(usualConfig, change) };
      return [tenant, await both[0].knowledge.createBase(tenant, base, 10)];
    };
    const documentOf = (id: string, change: Partial<PutDocument> = {}): PutDocument => ({
      id,
      name: id,
      mediaType: "text/plain",
      bytes: 10,
      hash: randomUUID(),
      blobKey: `blob-${randomUUID()}`,
      sourceUrl: null,
      fetchUrl: null,
      metadata: {},
      acl: null,
      ...change,
    });
    const callOf = (): { readonly call: NewCall; readonly callerId: string } => ({
      call: newTool({ state: "queued", async: true, uri: "knowledge://kb/d", tool: "knowledge_ingest" }),
      callerId: "key_1",
    });
    const put = async (tenant: string, base: string, document: PutDocument): Promise<IngestFence> => {
      const ingest = callOf();
      await both[0].knowledge.putDocument(tenant, base, document, { ...ingest, most });
      const fence = { knowledgeBase: base, document: document.id, callId: ingest.call.id, attempt: 1 };
      await both[1].knowledge.openIngest(tenant, fence);
      return fence;
    };
    const chunks = (count: number): readonly NewChunk[] =>
      Array.from({ length: count }, (_item, ordinal) => ({
        ordinal,
        spanStart: ordinal * 10,
        spanEnd: ordinal * 10 + 9,
        heading: "",
        text: `chunk ${ordinal}`,
        ftsText: `chunk ${ordinal}`,
        embedding: new Float32Array([ordinal, 0.5]),
      }));
    const serve = async (
      tenant: string,
      fence: IngestFence,
      place: { readonly documentVersion: number; readonly indexVersion: number },
      count = 2,
    ): Promise<boolean> => {
      await both[0].knowledge.writeChunks(tenant, fence, place, chunks(count));
      return both[1].knowledge.serveVersion(tenant, fence, place, count);
    };
    const countOf = async (tenant: string): Promise<unknown> => {
      const [rows] = await instances.run(
        `SELECT (SELECT COUNT(*) FROM knowledge_chunks WHERE tenant = ?1) AS chunks,
          (SELECT COUNT(*) FROM knowledge_fts WHERE rowid IN (SELECT id FROM knowledge_chunks WHERE tenant = ?1)) AS words`,
        tenant,
      );
      return { ...rows };
    };
    const sweep = async (tenant: string, knowledgeBase: string): Promise<readonly KnowledgeGarbage[]> => {
      const taken = await both[1].knowledge.takeGarbage({ of: { tenant, knowledgeBase }, limit: 100, claimMs: 60_000 });
      for (const garbage of taken) {
        if (garbage.hasChunks) await both[0].knowledge.deleteGarbageChunks(garbage, 100);
        await both[0].knowledge.deleteGarbage(garbage);
      }
      return taken;
    };

    test("a name is one base's, and there are as many as there may be", async () => {
      const [tenant, base] = await newBase();
      const again = { id: newId("knowledgeBase"), name: "kb", config: usualConfig };
      await expect(both[1].knowledge.createBase(tenant, again, 10)).rejects.toMatchObject({ code: "conflict" });
      const another = { ...again, name: "other" };
      await expect(both[1].knowledge.createBase(tenant, another, 1)).rejects.toMatchObject({ code: "knowledge_full" });
      expect(await both[1].knowledge.getBase(tenant, "kb")).toEqual(base);
      expect(await both[1].knowledge.getBase(tenant, base.id)).toEqual(base);
      expect(await both[1].knowledge.getBase(await newTenant(), base.id)).toBeUndefined();
      expect((await both[1].knowledge.listBases(tenant, page)).data).toEqual([base]);
    });

    test("a document is put with its call, and is the same while its content is", async () => {
      const [tenant, { id: base }] = await newBase();
      const [first, second] = [callOf(), callOf()];
      const document = documentOf("d");
      const stored = await both[0].knowledge.putDocument(tenant, base, document, { ...first, most });
      expect(stored).toMatchObject({ isQueued: true, document: { version: 1, state: "queued", currentVersion: null } });
      expect(await both[1].calls.get(tenant, first.call.id)).toMatchObject({ state: "queued" });
      const same = { ...document, blobKey: "another", metadata: { a: 1 } };
      expect(await both[1].knowledge.putDocument(tenant, base, same, { ...second, most })).toMatchObject({
        isQueued: false,
        document: { version: 1, blobKey: document.blobKey, metadata: { a: 1 }, callId: first.call.id },
      });
      expect(await both[1].calls.get(tenant, second.call.id)).toBeUndefined();
      const full = both[0].knowledge.putDocument(tenant, base, documentOf("e"), {
        ...callOf(),
        most: { ...most, documents: 1 },
      });
      await expect(full).rejects.toMatchObject({ code: "knowledge_full" });
      const large = both[0].knowledge.putDocument(tenant, base, documentOf("e", { bytes: 9_991 }), {
        ...callOf(),
        most,
      });
      await expect(large).rejects.toMatchObject({ code: "knowledge_full" });
      const nowhere = both[0].knowledge.putDocument(tenant, "kb_none", documentOf("e"), { ...callOf(), most });
      await expect(nowhere).rejects.toMatchObject({ code: "not_found" });
    });

    test("chunks are written once, and seen with the statement that serves them", async () => {
      const [tenant, { id: base }] = await newBase();
      const fence = await put(tenant, base, documentOf("d"));
      const place = { documentVersion: 1, indexVersion: 1 };
      expect(await both[0].knowledge.writeChunks(tenant, fence, place, chunks(2))).toBe(true);
      expect(await both[1].knowledge.writeChunks(tenant, fence, place, chunks(3))).toBe(true);
      expect(await both[1].knowledge.countChunks(tenant, fence, place)).toBe(3);
      expect(await both[0].knowledge.serveVersion(tenant, fence, place, 4)).toBe(false);
      expect(await both[0].knowledge.finishIngest(tenant, fence, { error: null })).toBe(false);
      expect(await both[0].knowledge.serveVersion(tenant, fence, place, 3)).toBe(true);
      expect(await both[0].knowledge.finishIngest(tenant, fence, { error: null })).toBe(true);
      expect(await countOf(tenant)).toEqual({ chunks: 3, words: 3 });
      expect(await both[1].knowledge.getDocument(tenant, base, "d", manager)).toMatchObject({
        state: "ready",
        currentVersion: 1,
        chunkCount: 3,
        errorCode: null,
      });
    });

    test("nobody writes for a document that is another call's, another attempt's, or gone", async () => {
      const [tenant, { id: base }] = await newBase();
      const first = await put(tenant, base, documentOf("d"));
      const place = { documentVersion: 1, indexVersion: 1 };
      await both[1].knowledge.openIngest(tenant, { ...first, attempt: 2 });
      expect(await both[0].knowledge.openIngest(tenant, first)).toBeUndefined();
      expect(await both[0].knowledge.writeChunks(tenant, first, place, chunks(1))).toBe(false);
      const taken = { ...first, attempt: 2 };
      const next = await put(tenant, base, documentOf("d"));
      expect(await serve(tenant, taken, place)).toBe(false);
      expect(await serve(tenant, next, { documentVersion: 2, indexVersion: 1 })).toBe(true);
      expect(await both[0].knowledge.deleteDocument(tenant, base, "d")).toBe(true);
      expect(await both[0].knowledge.deleteDocument(tenant, base, "d")).toBe(false);
      expect(
        await both[1].knowledge.writeChunks(tenant, next, { documentVersion: 2, indexVersion: 1 }, chunks(3)),
      ).toBe(false);
      await sweep(tenant, base);
      expect(await countOf(tenant)).toEqual({ chunks: 0, words: 0 });
      const anew = await put(tenant, base, documentOf("d"));
      expect((await both[0].knowledge.openIngest(tenant, anew))?.document.version).toBe(3);
    });

    test("what is replaced is garbage, once, with its blob", async () => {
      const [tenant, { id: base }] = await newBase();
      const old = documentOf("d");
      await serve(tenant, await put(tenant, base, old), { documentVersion: 1, indexVersion: 1 });
      await both[0].knowledge.announceBlob(tenant, base, "left-behind", 0);
      await serve(tenant, await put(tenant, base, documentOf("d")), { documentVersion: 2, indexVersion: 1 }, 3);
      expect(await countOf(tenant)).toEqual({ chunks: 5, words: 5 });
      const blobs = (await sweep(tenant, base)).flatMap(({ blobKey }) => blobKey ?? []);
      expect(blobs.toSorted()).toEqual([old.blobKey, "left-behind"].toSorted());
      expect(await countOf(tenant)).toEqual({ chunks: 3, words: 3 });
      expect(await sweep(tenant, base)).toEqual([]);
    });

    test("an index takes the other's place when all that serves is in it", async () => {
      const [tenant, base] = await newBase();
      const [a, b] = [await put(tenant, base.id, documentOf("a")), await put(tenant, base.id, documentOf("b"))];
      await serve(tenant, a, { documentVersion: 1, indexVersion: 1 });
      await serve(tenant, b, { documentVersion: 2, indexVersion: 1 });
      const nextConfig = changeConfig(base.config, { chunk: { size: 50 } });
      const change = { expectedConfigVersion: 1, config: base.config, nextConfig, rebuild: callOf() };
      const changed = await both[0].knowledge.updateBase(tenant, base.id, change);
      expect(changed).toMatchObject({ indexVersion: 1, next: { indexVersion: 2 }, counts: { toBuild: 2 } });
      expect(await both[1].knowledge.updateBase(tenant, base.id, change)).toBeUndefined();
      const next = { documentVersion: 1, indexVersion: 2 };
      await both[0].knowledge.writeChunks(tenant, a, next, chunks(4));
      expect(await both[0].knowledge.finishIngest(tenant, a, { error: null })).toBe(false);
      expect(await both[0].knowledge.buildVersion(tenant, a, next, 4)).toBe(true);
      expect(await both[0].knowledge.finishIngest(tenant, a, { error: null })).toBe(true);
      expect(await both[1].knowledge.getBase(tenant, "kb")).toMatchObject({ indexVersion: 1, counts: { built: 1 } });
      // The other one is still at work, so that it is nobody else's.
      expect(await both[1].knowledge.listToBuild(tenant, base.id, 10)).toEqual([]);
      const failed = { error: { code: "tool_failed", message: "m" }, failedIndex: 2 };
      expect(await both[0].knowledge.finishIngest(tenant, b, failed)).toBe(true);
      expect(await both[1].knowledge.listToBuild(tenant, base.id, 10)).toEqual(["b"]);
      const { call } = callOf();
      await both[0].knowledge.queueToBuild(tenant, base.id, [{ document: "b", call }], "key_1");
      const again = { ...b, callId: call.id };
      expect(await both[1].knowledge.openIngest(tenant, again)).toMatchObject({ document: { state: "queued" } });
      await both[0].knowledge.writeChunks(tenant, again, { documentVersion: 2, indexVersion: 2 }, chunks(1));
      expect(await both[0].knowledge.buildVersion(tenant, again, { documentVersion: 2, indexVersion: 2 }, 1)).toBe(
        true,
      );
      expect(await both[1].knowledge.getBase(tenant, "kb")).toMatchObject({
        indexVersion: 2,
        next: null,
        config: { chunk: { size: 50 } },
        counts: { chunks: 5 },
      });
      await sweep(tenant, base.id);
      expect(await countOf(tenant)).toEqual({ chunks: 5, words: 5 });
    });

    test("a call that ended without a word has failed its document", async () => {
      const [tenant, { id: base }] = await newBase();
      const fence = await put(tenant, base, documentOf("d"));
      await both[0].calls.requestCancel(tenant, fence.callId);
      expect(await both[1].knowledge.getDocument(tenant, base, "d", manager)).toMatchObject({
        state: "failed",
        errorCode: "call_cancelled",
      });
      const listed = await both[1].knowledge.listDocuments(tenant, base, { ...page, reader: manager, state: "failed" });
      expect(listed.data.map(({ id }) => id)).toEqual(["d"]);
      const retried = await both[0].knowledge.retryDocument(tenant, base, "d", callOf());
      expect(retried).toMatchObject({ state: "queued", attempt: 0 });
      const other = callOf();
      expect(await both[0].knowledge.retryDocument(tenant, base, "d", other)).toMatchObject({
        callId: retried?.callId,
      });
      expect(await both[0].knowledge.retryDocument(tenant, base, "none", callOf())).toBeUndefined();
    });

    test("readers see what names them, or what the base says", async () => {
      const [tenant, { id: base }] = await newBase({ acl: { roles: ["admin"], users: [], business_units: [] } });
      await put(tenant, base, documentOf("usual"));
      await put(tenant, base, documentOf("unit", { acl: { roles: [], users: [], business_units: ["north"] } }));
      const seenBy = async (change: object): Promise<readonly string[]> => {
        const reader = { ...manager, all: false, role: "member", ...change };
        return (await both[0].knowledge.listDocuments(tenant, base, { ...page, reader })).data.map(({ id }) => id);
      };
      expect(await seenBy({})).toEqual([]);
      expect(await seenBy({ role: "admin" })).toEqual(["usual"]);
      expect(await seenBy({ business_unit: "north" })).toEqual(["unit"]);
      expect(await seenBy({ all: true })).toEqual(["unit", "usual"]);
    });

    test("a document whose readers cannot be made out hides no other, and is shown to nobody who has to be among them", async () => {
      const [tenant, { id: base }] = await newBase();
      const acl = { roles: ["member" as const], users: [], business_units: [] };
      for (const id of ["broken", "fine"]) await put(tenant, base, documentOf(id, { acl }));
      await instances.run(`UPDATE knowledge_documents SET acl = '{' WHERE tenant = '${tenant}' AND id = 'broken'`);
      const reader = { ...manager, all: false, role: "member" };
      const list = (by: typeof reader) => both[0].knowledge.listDocuments(tenant, base, { ...page, reader: by });
      const seen = await list(reader);
      expect([seen.data.map(({ id }) => id), seen.unreadable]).toEqual([["fine"], undefined]);
      expect((await list({ ...reader, all: true })).unreadable).toMatchObject([{ id: "broken" }]);
    });

    test("a base goes with all that is in it, and so does a tenant", async () => {
      const [tenant, { id: base }] = await newBase();
      const document = documentOf("d");
      await serve(tenant, await put(tenant, base, document), { documentVersion: 1, indexVersion: 1 });
      expect(await both[0].knowledge.deleteBase(tenant, base)).toEqual({ documents: 1 });
      expect(await both[0].knowledge.deleteBase(tenant, base)).toBeUndefined();
      expect((await sweep(tenant, base)).map(({ blobKey }) => blobKey)).toContain(document.blobKey);
      expect(await countOf(tenant)).toEqual({ chunks: 0, words: 0 });
      const [other, { id: otherBase }] = await newBase();
      await serve(other, await put(other, otherBase, documentOf("d")), { documentVersion: 1, indexVersion: 1 });
      await both[1].tenants.erase(other);
      const [left] = await instances.run("SELECT COUNT(*) AS words FROM knowledge_fts");
      expect(left).toMatchObject({ words: expect.any(Number) });
      expect(await countOf(other)).toEqual({ chunks: 0, words: 0 });
    });
  });
}
