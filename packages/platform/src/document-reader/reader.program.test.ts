import type { Worker } from "node:worker_threads";
import { describe, expect, onTestFinished, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { createDocumentReader } from "./reader.ts";

const options = { timeoutMs: 60_000, signal: new AbortController().signal, maxCharacters: 1_000, maxPages: 10 };
const page = Buffer.from("<p>some text</p>");

/** A PDF whose only page is blanks, 128 of them for every two bytes. */
function pdfOfBlanks(megabytes: number): Uint8Array {
  const runs = Buffer.alloc(megabytes * 16_384, Buffer.from([129, 0x20]));
  return Buffer.concat([
    Buffer.from(`%PDF-1.4
1 0 obj << /Type /Catalog /Pages 2 0 R >> endobj
2 0 obj << /Type /Pages /Count 1 /Kids [3 0 R] >> endobj
3 0 obj << /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents 4 0 R >> endobj
4 0 obj << /Length ${runs.length + 1} /Filter /RunLengthDecode >>
stream
`),
    runs,
    Buffer.from([128]),
    Buffer.from("\nendstream endobj\ntrailer << /Size 5 /Root 1 0 R >>\n%%EOF\n"),
  ]);
}

/** How many threads there are, and have been at most, from now on. */
function countThreads(): { started: number; most: number } {
  const count = { started: 0, most: 0 };
  let running = 0;
  const onWorker = (worker: Worker): void => {
    running += 1;
    count.started += 1;
    count.most = Math.max(count.most, running);
    worker.once("exit", () => {
      running -= 1;
    });
  };
  process.on("worker", onWorker);
  onTestFinished(() => void process.off("worker", onWorker));
  return count;
}

describe(`reading documents ${verifies("KB-1")}`, () => {
  test("ends where a document unpacks to more than a reader may hold", { timeout: 60_000 }, async () => {
    await expect(createDocumentReader().read("pdf", pdfOfBlanks(300), options)).rejects.toMatchObject({
      code: "document_unreadable",
      message: "The document cannot be read as PDF: it takes more than 512 MB of memory to read.",
    });
  });

  test("ends where it is not what it says", { timeout: 60_000 }, async () => {
    await expect(createDocumentReader().read("pdf", Buffer.from("%PDF-1.7 no more"), options)).rejects.toMatchObject({
      message: "The document cannot be read as PDF: Invalid PDF structure.",
    });
  });

  test("is done for two at a time, whoever asks", { timeout: 60_000 }, async () => {
    const threads = countThreads();
    const texts = await Promise.all(
      Array.from({ length: 5 }, () => createDocumentReader().read("html", page, options)),
    );
    expect(texts).toEqual(Array.from({ length: 5 }, () => "some text"));
    expect(threads).toEqual({ started: 5, most: 2 });
  });

  test("is not begun for who is called off while waiting", { timeout: 60_000 }, async () => {
    const threads = countThreads();
    const reader = createDocumentReader();
    const others = [reader.read("html", page, options), reader.read("html", page, options)];
    const calledOff = new AbortController();
    const third = reader.read("html", page, { ...options, signal: calledOff.signal });
    calledOff.abort();
    await expect(third).rejects.toMatchObject({ code: "call_cancelled" });
    await Promise.all(others);
    await reader.read("html", page, options);
    expect(threads).toEqual({ started: 3, most: 2 });
  });
});
