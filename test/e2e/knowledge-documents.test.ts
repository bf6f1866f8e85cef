/** Knowledge bases and their documents, as those see them who put them there (KB-1, KB-2). */
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { docxOf, pdfOf } from "../support/documents.ts";
import { startEmbeddingStub, type EmbeddingStub } from "../support/embedding-stub.ts";
import type { Client, Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let tenant: TestTenant;
let embeddings: EmbeddingStub;
let pages: HttpStub;

beforeAll(async () => {
  gateway = await startGateway();
  tenant = await gateway.newTenant();
  embeddings = await startEmbeddingStub();
  pages = await startHttpStub();
  await tenant.addProvider(embeddings.url, { name: "vectors", models: { "embed-1": "embed-1" } });
});
afterAll(async () => {
  await gateway.close();
  await embeddings.close();
  await pages.close();
});

const call = (client: Client, what: string, body: unknown): Promise<Json> => client.post(`/v1/knowledge/${what}`, body);

async function newBase(client: Client, config: unknown = {}): Promise<string> {
  const name = `base-${Math.random().toString(36).slice(2)}`;
  const { id } = (await call(client, "create", { name, config })) as { id: string };
  return id;
}

/** The document once nothing is done to it any more. */
async function settled(client: Client, base: string, document: string): Promise<Json> {
  for (;;) {
    const found = await call(client, "get_doc", { knowledge_base: base, document_id: document });
    if (found.state === "ready" || found.state === "failed") return found;
    await sleep(20);
  }
}

/** A call of the tenant once it has ended, which is just after its document is done. */
async function ended(id: string): Promise<Json> {
  for (;;) {
    const found = await tenant.client.get(`/v1/calls/${id}`);
    if (found.state !== "running" && found.state !== "queued") return found;
    await sleep(20);
  }
}

async function put(client: Client, base: string, document: Readonly<Record<string, unknown>>): Promise<Json> {
  const { id } = await call(client, "upsert", { knowledge_base: base, ...document });
  return settled(client, base, id);
}

async function textsOf(client: Client, base: string, query: string, more = {}): Promise<string[]> {
  const { hits } = await call(client, "query", { knowledge_base: base, query, ...more });
  return (hits as { text: string }[]).map(({ text }) => text);
}

/** Rows and blobs that are there of a base. */
async function remainsOf(base: string): Promise<unknown> {
  const blobs = await gateway.core.blobs.list(`${tenant.id}/knowledge/${base}/`);
  return { blobs: blobs.length, found: await gateway.core.repos.knowledge.listToBuild(tenant.id, base, 10) };
}

describe(`documents of a knowledge base ${verifies("KB-1")}`, () => {
  test("are put as text, and found when they are ready", async () => {
    const base = await newBase(tenant.client);
    const queued = await call(tenant.client, "upsert", {
      knowledgeBase: base,
      documentId: "d1",
      text: "The price is 10.",
      sourceUrl: "https://shop.example.com/d1",
    });
    expect(queued).toMatchObject({ id: "d1", object: "knowledge_document", state: "queued", version: 1 });
    const ready = await settled(tenant.client, base, "d1");
    expect(ready).toMatchObject({
      state: "ready",
      current_version: 1,
      chunk_count: 1,
      characters: 16,
      media_type: "text/plain",
      error: null,
      attempts: 1,
    });
    expect(await ended(ready.call_id)).toMatchObject({
      state: "completed",
      uri: `knowledge://${base}/d1`,
      tool: "knowledge_ingest",
    });
    expect(await textsOf(tenant.client, base, "price")).toEqual(["The price is 10."]);
  });

  test("take both spellings of a field, and refuse two values", async () => {
    const reply = await tenant.client.send("post", "/v1/knowledge/upsert", {
      knowledge_base: "a",
      knowledgeBase: "b",
      text: "x",
    });
    expect(reply.status).toBe(400);
    expect(reply.json.error.message).toMatch(/'knowledge_base' and 'knowledgeBase'/);
  });

  test("show what is in them now, and nothing of what was (kb-deleted-document-still-found)", async () => {
    const config = { embedding: { model: "embed-1" } };
    const { id: base, name } = await call(tenant.client, "create", { name: "prices", config });
    const found = (): Promise<string[]> => textsOf(tenant.client, base, "price");
    await put(tenant.client, base, { document_id: "d1", text: "price 10" });
    expect(await found()).toEqual(["price 10"]);
    expect(await put(tenant.client, base, { document_id: "d1", text: "price 12" })).toMatchObject({ version: 2 });
    expect(await found()).toEqual(["price 12"]);
    await call(tenant.client, "delete_doc", { knowledge_base: base, document_id: "d1" });
    expect(await found()).toEqual([]);
    expect((await call(tenant.client, "list_docs", { knowledge_base: base })).data).toEqual([]);
    await put(tenant.client, base, { document_id: "d1", text: "price 12" });
    await put(tenant.client, base, { document_id: "d1", text: "price 12" });
    expect(await found()).toEqual(["price 12"]);
    expect(await call(tenant.client, "delete", { knowledge_base: name })).toMatchObject({
      deleted: true,
      documents: 1,
    });
    expect(await remainsOf(base)).toEqual({ blobs: 0, found: [] });
    const again = await call(tenant.client, "create", { name });
    expect(await textsOf(tenant.client, again.id, "price")).toEqual([]);
  });

  test("that are deleted while they are ingested leave nothing", async () => {
    const base = await newBase(tenant.client, { embedding: { model: "embed-1" } });
    const release = embeddings.hold();
    const asked = embeddings.asked.length;
    const { call_id: id } = await call(tenant.client, "upsert", {
      knowledge_base: base,
      document_id: "gone",
      text: "soon gone",
    });
    while (embeddings.asked.length === asked) await sleep(10);
    await call(tenant.client, "delete_doc", { knowledge_base: base, document_id: "gone" });
    release();
    await ended(id);
    expect(await textsOf(tenant.client, base, "gone")).toEqual([]);
    await call(tenant.client, "delete", { knowledge_base: base });
    expect(await remainsOf(base)).toEqual({ blobs: 0, found: [] });
  });

  test("keep their content where only what is said of them changes", async () => {
    const base = await newBase(tenant.client);
    const first = await put(tenant.client, base, { name: "a.txt", text: "same", metadata: { a: 1 } });
    const reply = await tenant.client.send("post", "/v1/knowledge/upsert", {
      knowledge_base: base,
      name: "a.txt",
      text: "same",
      metadata: { a: 2 },
    });
    expect(reply.status).toBe(200);
    expect(reply.json).toMatchObject({ id: first.id, version: 1, state: "ready", metadata: { a: 2 } });
  });
});

const docx = await docxOf(["# 标题", "Docx body text"]);
const bomb = await docxOf(["small"], [{ path: "word/media/a.bin", body: new Uint8Array(140_000_000) }]);

describe(`formats of documents ${verifies("KB-1")}`, () => {
  const formats: readonly (readonly [name: string, content: Uint8Array | string, found: string, type: string])[] = [
    ["notes.md", "# Alpha\n\n## Beta\n\nGamma ray", "Gamma", "text/markdown"],
    ["page.html", "<h1>Kopf</h1><script>var hidden</script><p>Visible text</p>", "Visible", "text/html"],
    ["table.csv", "name,price\nbolt,3\n", "bolt", "text/csv"],
    ["data.json", '{"animal":"okapi"}', "okapi", "application/json"],
    ["a.pdf", pdfOf("知识库支持中文⽆线", "Second page"), "支持中文无线", "application/pdf"],
    ["b.docx", docx, "Docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"],
    ["gbk.txt", Buffer.from([0xd6, 0xd0, 0xce, 0xc4, 0xd7, 0xd6, 0xb7, 0xfb]), "中文字符", "text/plain"],
  ];

  const headings: Readonly<Record<string, string>> = {
    "notes.md": "Alpha › Beta",
    "page.html": "Kopf",
    "b.docx": "标题",
  };

  test.each(formats)("%s is read", async (name, content, query, mediaType) => {
    const heading = headings[name] ?? "";
    const base = await newBase(tenant.client);
    const document = await put(tenant.client, base, {
      name,
      content_base64: Buffer.from(content).toString("base64"),
    });
    expect(document).toMatchObject({ state: "ready", error: null, media_type: mediaType });
    const { hits } = await call(tenant.client, "query", { knowledge_base: base, query });
    expect(hits[0]).toMatchObject({ document_id: document.id, document_name: name });
    expect(hits[0].heading).toBe(heading);
    expect(JSON.stringify(hits)).not.toContain("hidden");
  });

  const pdf = pdfOf("whole");
  const bad: readonly (readonly [why: string, name: string, content: Uint8Array | string, message: RegExp])[] = [
    ["a damaged PDF", "a.pdf", Buffer.from("%PDF-1.4\nnothing that makes sense"), /cannot be read as PDF/],
    ["a PDF without text", "a.pdf", pdfOf(""), /pictures have to go through OCR/],
    ["a text that is called PDF", "a.pdf", "just text", /said to be PDF and is none/],
    ["a picture", "a.png", Buffer.from([0x89, 0x50, 0x4e, 0x47, 13, 10, 26, 10]), /it is a PNG picture/],
    ["a DOCX that is cut off", "a.docx", docx.subarray(0, 400), /cannot be read as DOCX/],
    ["a DOCX that is a bomb", "a.docx", bomb, /unpacks to more than/],
    [
      "a zip of something else",
      "a.zip",
      Buffer.from("PK\u0003\u0004 no archive at all, really none"),
      /cannot be read as DOCX/,
    ],
    ["bytes that are no text", "a.bin", Buffer.from([1, 2, 0, 3]), /bytes that no text has/],
    ["blanks alone", "a.txt", " \n ", /it has no text/],
  ];

  test.each(bad)("%s fails, and says why", async (_why, name, content, message) => {
    const base = await newBase(tenant.client);
    const document = await put(tenant.client, base, {
      name,
      content_base64: Buffer.from(content).toString("base64"),
    });
    expect(document).toMatchObject({ state: "failed", current_version: null });
    expect(document.error).toMatchObject({ code: "document_unreadable", message: expect.stringMatching(message) });
    expect(await ended(document.call_id)).toMatchObject({
      state: "failed",
      error: { code: "document_unreadable" },
    });
    expect(pdf.length).toBeGreaterThan(0);
  });

  test("what was ready before serves on where the new version fails", async () => {
    const base = await newBase(tenant.client);
    await put(tenant.client, base, { document_id: "d", text: "still here" });
    expect(await put(tenant.client, base, { document_id: "d", name: "d.pdf", content_base64: "eHl6" })).toMatchObject({
      state: "failed",
      version: 2,
      current_version: 1,
    });
    expect(await textsOf(tenant.client, base, "still")).toEqual(["still here"]);
    await put(tenant.client, base, { document_id: "d", text: "something new" });
    expect(await textsOf(tenant.client, base, "still")).toEqual([]);
  });

  test("come from a file of a session, and from an address", async () => {
    const base = await newBase(tenant.client);
    await tenant.client.expect("put", "/v1/sessions/kb-files/files/report.txt", undefined, { raw: "quarterly report" });
    const file = await put(tenant.client, base, { file: { session_id: "kb-files", path: "report.txt" } });
    expect(file).toMatchObject({ state: "ready", name: "report.txt" });
    pages.answer = () => ({ headers: { "content-type": "text/html" }, body: "<p>from the web</p>" });
    const page = await put(tenant.client, base, { url: `${pages.url}/page` });
    expect(page).toMatchObject({ state: "ready", source_url: `${pages.url}/page`, media_type: "text/html" });
    expect(await textsOf(tenant.client, base, "web")).toEqual(["from the web"]);
    pages.answer = () => ({ status: 404, body: "no" });
    const missing = await put(tenant.client, base, { url: `${pages.url}/missing` });
    expect(missing.error).toMatchObject({ code: "tool_failed", message: expect.stringContaining("404") });
    expect((await tenant.client.send("post", "/v1/knowledge/upsert", { knowledge_base: base })).status).toBe(400);
  });
});

describe(`a document from an address ${verifies("KB-1")}`, () => {
  test("is fetched from there, and cited from where it is said to be", async () => {
    const base = await newBase(tenant.client);
    pages.requests.length = 0;
    pages.answer = ({ target }) => ({
      status: pages.requests.length === 1 ? 404 : 200,
      headers: { "content-type": "text/plain" },
      body: `The text of ${target}.`,
    });
    const [url, sourceUrl] = [`${pages.url}/internal/export`, `${pages.url}/public/page`];
    const failed = await put(tenant.client, base, { document_id: "d", name: "Export", url, source_url: sourceUrl });
    expect(failed).toMatchObject({ state: "failed", source_url: sourceUrl });
    await call(tenant.client, "retry_doc", { knowledge_base: base, document_id: "d" });
    const ready = await settled(tenant.client, base, "d");
    expect(ready).toMatchObject({ state: "ready", source_url: sourceUrl });
    expect(JSON.stringify(ready)).not.toContain(url);
    expect(pages.requests.map(({ target }) => target)).toEqual(["/internal/export", "/internal/export"]);
    expect(await textsOf(tenant.client, base, "text")).toEqual(["The text of /internal/export."]);
  });
});

describe(`the work on documents ${verifies("KB-1")}`, () => {
  test("is tried again when it is asked for, and shows why it failed", async () => {
    const base = await newBase(tenant.client, { embedding: { model: "embed-1" } });
    embeddings.fail(400);
    const failed = await put(tenant.client, base, { document_id: "d", text: "vectors please" });
    expect(failed.state).toBe("failed");
    expect(failed.error.message).not.toContain("vectors please");
    embeddings.fail(undefined);
    const asked = { knowledge_base: base, document_id: "d" };
    expect(await call(tenant.client, "retry_doc", asked)).toMatchObject({ state: "queued", error: null });
    expect(await settled(tenant.client, base, "d")).toMatchObject({ state: "ready", version: 1 });
  });

  test("leaves a document that no provider has a model for to words, and embeds it once the model is another", async () => {
    const base = await newBase(tenant.client, { embedding: { model: "mistyped-1" } });
    const asWords = await put(tenant.client, base, { document_id: "d", text: "Rivers run to the sea." });
    expect(asWords).toMatchObject({ state: "ready", error: { code: "model_not_found" } });
    const asked = { knowledge_base: base, query: "rivers" };
    expect((await call(tenant.client, "query", asked)).hits).toHaveLength(1);
    const config = { embedding: { model: "embed-1" } };
    const changed = await call(tenant.client, "update_config", { knowledge_base: base, config });
    expect(changed.reindex).toMatchObject({ documents_to_do: 1 });
    await expect.poll(async () => (await call(tenant.client, "query", asked)).mode).toBe("hybrid");
    expect(await settled(tenant.client, base, "d")).toMatchObject({ state: "ready", error: null });
  });

  test("leaves a document to words where there is no provider at all, and embeds it once there is one", async () => {
    const fresh = await gateway.newTenant();
    const base = await newBase(fresh.client, { embedding: { model: "embed-1" } });
    const asWords = await put(fresh.client, base, { document_id: "d", text: "Rivers run to the sea." });
    expect(asWords).toMatchObject({ state: "ready", error: { code: "model_not_found" } });
    const asked = { knowledge_base: base, query: "rivers" };
    expect(await call(fresh.client, "query", asked)).toMatchObject({
      mode: "full_text",
      hits: [{ document_id: "d" }],
      reason: { code: "model_not_found", message: expect.stringContaining("POST /v1/providers") },
    });
    await fresh.addProvider(embeddings.url, { name: "vectors", models: { "embed-1": "embed-1" } });
    await call(fresh.client, "retry_doc", { knowledge_base: base, document_id: "d" });
    expect(await settled(fresh.client, base, "d")).toMatchObject({ state: "ready", error: null });
    expect((await call(fresh.client, "query", asked)).mode).toBe("hybrid");
  });

  test("ends where the model answers more than the vectors that were asked of it have", async () => {
    const base = await newBase(tenant.client, { embedding: { model: "embed-1" } });
    embeddings.say(JSON.stringify({ data: [{ embedding: [1, 2, 3], of: "x".repeat(250_000) }] }));
    const failed = await put(tenant.client, base, { text: "A short text." });
    embeddings.say(undefined);
    expect(failed).toMatchObject({ state: "failed", error: { code: "embedding_invalid" } });
    expect(failed.error.message).toMatch(/more than 196608 bytes/);
  });

  test("waits for a back end that is away, and goes on by itself", async () => {
    const base = await newBase(tenant.client, { embedding: { model: "embed-1" } });
    embeddings.fail(503);
    const asked = embeddings.asked.length;
    await call(tenant.client, "upsert", { knowledge_base: base, document_id: "d", text: "later" });
    while (embeddings.asked.length === asked) await sleep(10);
    embeddings.fail(undefined);
    expect(await settled(tenant.client, base, "d")).toMatchObject({ state: "ready", error: null });
  });

  test.each([
    ["by name", "retry_doc", {}],
    ["by putting the same content", "upsert", { text: "stop" }],
  ])("can be cancelled, and then be taken up again %s", async (_how, what, more) => {
    const base = await newBase(tenant.client, { embedding: { model: "embed-1" } });
    const release = embeddings.hold();
    const asked = embeddings.asked.length;
    const document = { knowledge_base: base, document_id: "d" };
    const { call_id: id } = await call(tenant.client, "upsert", { ...document, text: "stop" });
    while (embeddings.asked.length === asked) await sleep(10);
    await tenant.client.post(`/v1/calls/${id}/cancel`);
    const stopped = await settled(tenant.client, base, "d");
    release();
    expect(stopped).toMatchObject({ state: "failed", error: { code: "call_cancelled" } });
    await call(tenant.client, what, { ...document, ...more });
    expect(await settled(tenant.client, base, "d")).toMatchObject({ state: "ready" });
  });

  test("is changed field by field, the inner ones too, and refused as a whole", async () => {
    const base = await newBase(tenant.client, { weights: { fullText: 2 }, chunk: { size: 200 } });
    const update = (config: Json): Promise<Reply> =>
      tenant.client.send("post", "/v1/knowledge/update_config", { knowledge_base: base, config });
    const changed = await update({ weights: { vector: 0 }, chunk: { overlap: 20 } });
    expect(changed.json.config).toMatchObject({
      weights: { vector: 0, full_text: 2 },
      chunk: { size: 200, overlap: 20, by: "sentence" },
    });
    for (const [config, param] of [
      [{ weights: { full_text: 0 } }, "config.weights"],
      [{ chunk: { overlap: 101 } }, "config.chunk.overlap"],
    ] as const) {
      expect(await update(config)).toMatchObject({ status: 400, json: { error: { code: "invalid_request", param } } });
    }
  });

  test("builds a new index beside the old one, which serves until all is there", async () => {
    const base = await newBase(tenant.client);
    const text = "First sentence is here. ".repeat(40).trim();
    for (const id of ["a", "b", "c"]) await put(tenant.client, base, { document_id: id, text });
    embeddings.fail(400);
    const config = { embedding: { model: "embed-1" }, chunk: { size: 32, overlap: 0 }, top_k: 5 };
    const changed = await call(tenant.client, "update_config", { knowledge_base: base, config, config_version: 1 });
    expect(changed).toMatchObject({ config: { embedding: { model: null }, top_k: 5 }, config_version: 2 });
    expect(changed.reindex).toMatchObject({ documents_to_do: 3, documents_done: 0 });
    const stale = await tenant.client.send("post", "/v1/knowledge/update_config", {
      knowledge_base: base,
      config,
      config_version: 1,
    });
    expect(stale.status).toBe(412);
    await sleep(50);
    for (const id of ["a", "b", "c"]) expect(await settled(tenant.client, base, id)).toMatchObject({ state: "failed" });
    const { hits, mode } = await call(tenant.client, "query", { knowledge_base: base, query: "sentence", top_k: 10 });
    expect({ hits: hits.length, mode }).toEqual({ hits: 3, mode: "full_text" });
    embeddings.fail(undefined);
    for (const id of ["a", "b", "c"]) {
      await call(tenant.client, "retry_doc", { knowledge_base: base, document_id: id });
      expect(await settled(tenant.client, base, id)).toMatchObject({ state: "ready" });
    }
    const { data } = await call(tenant.client, "list", { limit: 100 });
    const served = data.find((item: { id: string }) => item.id === base);
    expect(served).toMatchObject({ reindex: null, config: { embedding: { model: "embed-1" }, chunk: { size: 32 } } });
    expect(served.chunks).toBeGreaterThan(3);
    const after = await call(tenant.client, "query", { knowledge_base: base, query: "sentence", top_k: 50 });
    expect(after.mode).toBe("hybrid");
    expect(after.hits).toHaveLength(served.chunks);
  });

  test("serves a new index once the document that it lacked is deleted", async () => {
    const base = await newBase(tenant.client);
    for (const id of ["a", "b"]) await put(tenant.client, base, { document_id: id, text: `About ${id}.` });
    embeddings.fail(400);
    await call(tenant.client, "update_config", { knowledge_base: base, config: { embedding: { model: "embed-1" } } });
    await sleep(50);
    for (const id of ["a", "b"]) expect(await settled(tenant.client, base, id)).toMatchObject({ state: "failed" });
    embeddings.fail(undefined);
    await call(tenant.client, "retry_doc", { knowledge_base: base, document_id: "a" });
    expect(await settled(tenant.client, base, "a")).toMatchObject({ state: "ready" });
    await call(tenant.client, "delete_doc", { knowledge_base: base, document_id: "b" });
    const { data } = await call(tenant.client, "list", { limit: 100 });
    const served = data.find((item: { id: string }) => item.id === base);
    expect(served).toMatchObject({ reindex: null, config: { embedding: { model: "embed-1" } } });
    expect((await call(tenant.client, "query", { knowledge_base: base, query: "about" })).mode).toBe("hybrid");
  });

  test("has documents as they were once the index that they failed for is given up", async () => {
    const base = await newBase(tenant.client);
    for (const id of ["a", "b"]) await put(tenant.client, base, { document_id: id, text: `About ${id}.` });
    await put(tenant.client, base, { document_id: "c", content_base64: "JVBERi0xLjQ=" });
    embeddings.fail(400);
    const change = (model: string | null): Promise<Json> =>
      call(tenant.client, "update_config", { knowledge_base: base, config: { embedding: { model } } });
    await change("embed-1");
    await sleep(50);
    for (const id of ["a", "b"]) expect(await settled(tenant.client, base, id)).toMatchObject({ state: "failed" });
    expect(await change(null)).toMatchObject({ documents_ready: 2, documents_failed: 1, reindex: null });
    embeddings.fail(undefined);
    expect(await settled(tenant.client, base, "a")).toMatchObject({ state: "ready", error: null });
    const left = await settled(tenant.client, base, "c");
    expect(left).toMatchObject({ state: "failed", error: { code: "document_unreadable" } });
  });

  test("says nothing of an index that failed for it once another one is built instead", async () => {
    const base = await newBase(tenant.client);
    await put(tenant.client, base, { document_id: "short", text: "About it." });
    await put(tenant.client, base, { document_id: "long", text: "About many things. ".repeat(100) });
    const change = (config: Json): Promise<Json> =>
      call(tenant.client, "update_config", { knowledge_base: base, config });
    const first = embeddings.asked.length;
    const failing = embeddings.hold();
    await change({ embedding: { model: "embed-1", batch: 1 } });
    await expect.poll(() => embeddings.asked.length).toBe(first + 2);
    await change({ chunk: { size: 200 } });
    embeddings.fail(400);
    failing();
    const building = embeddings.hold();
    await expect.poll(() => embeddings.asked.length).toBe(first + 4);
    embeddings.fail(undefined);
    building();
    const rest = embeddings.hold();
    const short = await settled(tenant.client, base, "short");
    rest();
    expect(short).toMatchObject({ state: "ready", error: null });
    expect(await settled(tenant.client, base, "long")).toMatchObject({ state: "ready", error: null });
  });

  test("is bounded by the tenant's settings", async () => {
    const small = await gateway.newTenant({
      knowledge_bases: 1,
      knowledge_documents: 1,
      knowledge_chunks: 3,
      knowledge_document_bytes: 2_048,
    });
    const base = await newBase(small.client);
    const send = (what: string, body: unknown) => small.client.send("post", `/v1/knowledge/${what}`, body);
    expect((await send("create", { name: "another" })).json.error).toMatchObject({ code: "knowledge_full" });
    expect((await send("upsert", { knowledge_base: base, text: "x".repeat(3_000) })).status).toBe(413);
    const long = await put(small.client, base, { document_id: "d", text: "A whole sentence. ".repeat(100) });
    expect(long).toMatchObject({ state: "ready" });
    expect(
      (await send("upsert", { knowledge_base: base, document_id: "e", text: "one more" })).json.error,
    ).toMatchObject({
      code: "knowledge_full",
      message: expect.stringContaining("knowledge_documents"),
    });
    await call(small.client, "update_config", { knowledge_base: base, config: { chunk: { size: 32, overlap: 0 } } });
    await sleep(50);
    expect((await settled(small.client, base, "d")).error).toMatchObject({ code: "knowledge_full" });
  });
});

describe(`who sees documents ${verifies("KB-2")}`, () => {
  test("is decided before anything else, by role, user and business unit", async () => {
    const base = await newBase(tenant.client);
    await put(tenant.client, base, { document_id: "open", text: "for everybody" });
    await put(tenant.client, base, { document_id: "ann", text: "for ann", acl: { users: ["ann"] } });
    await put(tenant.client, base, { document_id: "admins", text: "for admins", acl: { roles: ["admin"] } });
    const member = await tenant.newKey();
    const ann = await tenant.newKey({ user_id: "ann" });
    const seen = async (client: Client): Promise<string[]> =>
      (await call(client, "list_docs", { knowledge_base: base, order: "asc" })).data.map(({ id }: Json) => id);
    expect(await seen(tenant.client)).toEqual(["admins", "ann", "open"]);
    expect(await seen(member.client)).toEqual(["open"]);
    expect(await seen(ann.client)).toEqual(["ann", "open"]);
    const asked = { knowledge_base: base, document_id: "ann" };
    expect((await member.client.send("post", "/v1/knowledge/get_doc", asked)).status).toBe(404);
    expect((await member.client.send("post", "/v1/knowledge/delete_doc", asked)).status).toBe(403);
    const { data } = await call(member.client, "list", {});
    expect(data[0]).not.toHaveProperty("config");
    await call(tenant.client, "update_config", { knowledge_base: base, config: { acl: { roles: ["admin"] } } });
    expect(await seen(member.client)).toEqual([]);
  });

  test("is each tenant's own, under equal ids too (kb-other-tenants-fill-top-k)", async () => {
    const other = await gateway.newTenant();
    const [mine, theirs] = [await newBase(tenant.client), await newBase(other.client)];
    await put(tenant.client, mine, { document_id: "same", text: "order 4711 secret-a" });
    await put(other.client, theirs, { document_id: "same", text: "order 4711 note-b" });
    const reply = await other.client.send("post", "/v1/knowledge/query", { knowledge_base: mine, query: "4711" });
    const missing = await other.client.send("post", "/v1/knowledge/query", {
      knowledge_base: "kb_none",
      query: "4711",
    });
    expect([reply.status, missing.status]).toEqual([404, 404]);
    await call(other.client, "delete_doc", { knowledge_base: theirs, document_id: "same" });
    expect(await textsOf(tenant.client, mine, "4711")).toEqual(["order 4711 secret-a"]);
  });

  test("texts are in no line of the log", () => {
    const logged = JSON.stringify(gateway.logged);
    for (const text of ["price 1", "secret-a", "vectors please", "for ann"]) expect(logged).not.toContain(text);
  });
});
