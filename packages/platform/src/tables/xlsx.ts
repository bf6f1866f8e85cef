/**
 * Workbooks (XLSX): the sheets of a zip of XML. Read with a scanner for the few elements that hold cells: documents with
 * a document type are refused, so that there are no entities but XML's own five.
 */
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { readZip } from "@toolyard/core/zip";
import { TableFault } from "./fault.ts";

export interface Sheet {
  readonly name: string;
  readonly rows: () => Generator<SheetRow, void>;
}

export interface SheetRow {
  readonly line: number;
  readonly cells: readonly (string | number | null)[];
}

const mostEntries = 2_000;
/** Unpacked, of a whole workbook. */
const mostBytes = 268_435_456;
const mostColumns = 16_384;

/** @throws TableFault naming the file and what is wrong with it */
export function readWorkbook(file: string, archive: Uint8Array): readonly Sheet[] {
  const parts = unzip(file, archive);
  const text = (path: string): string | undefined => {
    const body = parts.get(path);
    if (body === undefined) return undefined;
    const xml = Buffer.from(body.buffer, body.byteOffset, body.byteLength).toString("utf8");
    if (/<!(?:DOCTYPE|ENTITY)/i.test(xml)) {
      throw new TableFault(`'${file}': '${path}' has a document type or entities, which no workbook needs.`);
    }
    return xml;
  };
  const workbook = text("xl/workbook.xml");
  if (workbook === undefined) throw new TableFault(`'${file}' is a zip archive, but no workbook (XLSX).`);
  const targets = new Map(
    tags(text("xl/_rels/workbook.xml.rels") ?? "", "Relationship").map((tag) => [
      attribute(tag, "Id") ?? "",
      (attribute(tag, "Target") ?? "").replace(/^\/?(?:xl\/)?/, "xl/"),
    ]),
  );
  const shared = sharedStrings(text("xl/sharedStrings.xml") ?? "");
  const dates = dateStyles(text("xl/styles.xml") ?? "");
  const from1904 = /<(?:\w+:)?workbookPr[^>]*\bdate1904="(?:1|true)"/.test(workbook);
  return tags(workbook, "sheet").map((tag) => {
    const name = unescape(attribute(tag, "name") ?? "");
    const path = targets.get(attribute(tag, "r:id") ?? "") ?? "";
    return { name, rows: () => rowsOf(text(path) ?? "", { shared, dates, from1904 }) };
  });
}

function unzip(file: string, archive: Uint8Array): ReadonlyMap<string, Uint8Array> {
  try {
    const files = readZip(archive, { files: mostEntries, bytes: mostBytes, param: file });
    return new Map(files.map(({ path, body }) => [path, body]));
  } catch (thrown) {
    if (thrown instanceof GatewayError) throw new TableFault(thrown.message);
    throw thrown;
  }
}

interface Reading {
  readonly shared: readonly string[];
  /** By style: is a number with it a moment? */
  readonly dates: readonly boolean[];
  readonly from1904: boolean;
}

function* rowsOf(xml: string, reading: Reading): Generator<SheetRow, void> {
  let line = 0;
  for (const row of xml.matchAll(/<(?:\w+:)?row\b([^>]*?)(?:\/>|>([^]*?)<\/(?:\w+:)?row>)/g)) {
    line = Number(attribute(row[1] ?? "", "r") ?? line + 1);
    const cells: (string | number | null)[] = [];
    for (const [, head = "", body = ""] of (row[2] ?? "").matchAll(
      /<(?:\w+:)?c\b([^>]*?)(?:\/>|>([^]*?)<\/(?:\w+:)?c>)/g,
    )) {
      const at = columnOf(attribute(head, "r")) ?? cells.length;
      if (at >= mostColumns) continue;
      while (cells.length < at) cells.push(null);
      cells[at] = valueOf(head, body, reading);
    }
    yield { line, cells };
  }
}

function valueOf(head: string, body: string, { shared, dates, from1904 }: Reading): string | number | null {
  const type = attribute(head, "t") ?? "n";
  if (type === "inlineStr") return richText(body);
  const [, raw] = /<(?:\w+:)?v\b[^>]*>([^<]*)<\/(?:\w+:)?v>/.exec(body) ?? [];
  if (raw === undefined || raw === "") return null;
  if (type === "s") return shared[Number(raw)] ?? null;
  if (type === "b") return raw === "1" ? "TRUE" : "FALSE";
  if (type !== "n") return unescape(raw);
  const number = Number(raw);
  if (!Number.isFinite(number)) return unescape(raw);
  return dates[Number(attribute(head, "s") ?? -1)] === true ? toMoment(number, from1904) : number;
}

/** Letters of a reference such as `AB12`, from 0. */
function columnOf(reference: string | undefined): number | undefined {
  const letters = /^[A-Z]{1,3}/.exec(reference ?? "")?.[0];
  if (letters === undefined) return undefined;
  return letters.split("").reduce((sum, letter) => sum * 26 + letter.charCodeAt(0) - 64, 0) - 1;
}

const dayMs = 86_400_000;

/** Days since the end of 1899, which has a 29 February 1900 that never was; or since 1904. */
function toMoment(days: number, from1904: boolean): string | number {
  const epoch = from1904 ? Date.UTC(1904, 0, 1) : Date.UTC(1899, 11, days < 60 ? 31 : 30);
  const moment = new Date(epoch + Math.round(days * 86_400) * 1_000);
  if (days < 0 || Number.isNaN(moment.getTime()) || days > 2_958_466) return days;
  const text = moment.toISOString();
  if (days < 1) return text.slice(11, 19);
  return (moment.getTime() - epoch) % dayMs === 0 ? text.slice(0, 10) : text.slice(0, 19);
}

const builtinDates = new Set([14, 15, 16, 17, 18, 19, 20, 21, 22, 45, 46, 47]);

function dateStyles(xml: string): readonly boolean[] {
  const custom = new Map(
    tags(xml, "numFmt").map((tag) => [
      Number(attribute(tag, "numFmtId")),
      /[ymdhs]/i.test(unescape(attribute(tag, "formatCode") ?? "").replaceAll(/"[^"]*"|\[[^\]]*\]|\\./g, "")),
    ]),
  );
  const [, formats = ""] = /<(?:\w+:)?cellXfs\b[^>]*>([^]*?)<\/(?:\w+:)?cellXfs>/.exec(xml) ?? [];
  return tags(formats, "xf").map((tag) => {
    const id = Number(attribute(tag, "numFmtId"));
    // Those of East Asia, too.
    return custom.get(id) ?? (builtinDates.has(id) || (id >= 27 && id <= 36) || (id >= 50 && id <= 58));
  });
}

function sharedStrings(xml: string): readonly string[] {
  return [...xml.matchAll(/<(?:\w+:)?si\b[^>]*?(?:\/>|>([^]*?)<\/(?:\w+:)?si>)/g)].map(([, body = ""]) =>
    richText(body),
  );
}

/** The runs of a text, without its pronunciation. */
function richText(xml: string): string {
  const plain = xml.replaceAll(/<(?:\w+:)?rPh\b[^]*?<\/(?:\w+:)?rPh>/g, "");
  return [...plain.matchAll(/<(?:\w+:)?t\b[^>]*?(?:\/>|>([^<]*)<\/(?:\w+:)?t>)/g)]
    .map(([, text = ""]) => unescape(text))
    .join("");
}

function tags(xml: string, name: string): readonly string[] {
  return [...xml.matchAll(new RegExp(`<(?:\\w+:)?${name}\\b([^>]*)>`, "g"))].map(([, head = ""]) => head);
}

function attribute(head: string, name: string): string | undefined {
  return new RegExp(`(?:^|\\s)${name}\\s*=\\s*(?:"([^"]*)"|'([^']*)')`)
    .exec(head)
    ?.slice(1)
    .find((value) => value !== undefined);
}

const entities: Readonly<Record<string, string>> = { lt: "<", gt: ">", amp: "&", quot: '"', apos: "'" };

function unescape(text: string): string {
  if (!text.includes("&") && !text.includes("_x")) return text;
  return text
    .replaceAll(/&(?:#x([0-9a-fA-F]{1,6})|#(\d{1,7})|(lt|gt|amp|quot|apos));/g, (whole, hex, decimal, name) => {
      if (typeof name === "string") return entities[name] ?? whole;
      const code = typeof hex === "string" ? Number.parseInt(hex, 16) : Number(decimal);
      return code <= 0x10ffff ? String.fromCodePoint(code) : whole;
    })
    .replaceAll(/_x([0-9a-fA-F]{4})_/g, (_whole, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
}
