/**
 * The thread that reads one document and ends. What it is given may be anything: whoever started it ends it at the
 * time limit, and nothing that goes wrong here reaches anybody else.
 */
import { parentPort, workerData } from "node:worker_threads";
import type { ReadOrder, ReadAnswer } from "./order.ts";

/** Fits the type of `parentPort` and `workerData`, which are what the starter gave. */
const { format, bytes, maxCharacters, maxPages } = workerData as ReadOrder;

class TooLarge extends Error {}

function refuseLarge(characters: number): void {
  if (characters > maxCharacters) throw new TooLarge(`holds more than ${maxCharacters} characters of text`);
}

async function readPdf(): Promise<string> {
  const { getDocumentProxy } = await import("unpdf");
  const pdf = await getDocumentProxy(bytes);
  if (pdf.numPages > maxPages) throw new TooLarge(`has ${pdf.numPages} pages, more than ${maxPages}`);
  const pages: string[] = [];
  let characters = 0;
  for (let number = 1; number <= pdf.numPages; number += 1) {
    const page = await pdf.getPage(number);
    const { items } = await page.getTextContent();
    const text = items.map((item) => ("str" in item ? `${item.str}${item.hasEOL ? "\n" : ""}` : "")).join("");
    characters += text.length;
    refuseLarge(characters);
    // Fonts of PDFs have radicals and ligatures where texts have characters.
    pages.push(text.normalize("NFKC").trim());
    page.cleanup();
  }
  return pages.filter((text) => text !== "").join("\n\n");
}

async function readDocx(): Promise<string> {
  const { default: mammoth } = await import("mammoth");
  const skipped = { convertImage: mammoth.images.imgElement(() => Promise.resolve({ src: "" })) };
  const { value } = await mammoth.convertToHtml({ buffer: Buffer.from(bytes) }, skipped);
  return readHtml(value);
}

async function readHtml(html: string): Promise<string> {
  const { convert } = await import("html-to-text");
  const headings = [1, 2, 3, 4, 5, 6].map((level) => ({
    selector: `h${level}`,
    format: "markedHeading",
    options: { level },
  }));
  const skip = ["script", "style", "noscript", "template", "iframe", "object", "svg", "img", "head", "form > button"];
  const text = convert(html, {
    wordwrap: false,
    limits: { maxInputLength: maxCharacters * 8, maxDepth: 500, ellipsis: "" },
    formatters: {
      markedHeading: (element, walk, builder, options) => {
        builder.openBlock({ leadingLineBreaks: 2 });
        builder.addInline(`${"#".repeat(Number(options["level"]))} `, { noWordTransform: true });
        walk(element.children, builder);
        builder.closeBlock({ trailingLineBreaks: 2 });
      },
    },
    selectors: [
      ...headings,
      ...skip.map((selector) => ({ selector, format: "skip" })),
      { selector: "a", options: { ignoreHref: true } },
      { selector: "table", format: "dataTable" },
    ],
  });
  refuseLarge(text.length);
  return text;
}

async function answer(): Promise<ReadAnswer> {
  try {
    const text =
      format === "pdf"
        ? await readPdf()
        : format === "docx"
          ? await readDocx()
          : await readHtml(new TextDecoder().decode(bytes));
    return { kind: "text", text };
  } catch (error) {
    const reason = error instanceof Error ? error.message : "it cannot be read";
    return { kind: error instanceof TooLarge ? "too-large" : "unreadable", reason };
  }
}

parentPort?.postMessage(await answer());
