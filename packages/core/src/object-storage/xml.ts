/**
 * The little XML that object stores speak: named elements out of an answer, text into a request. Not a
 * parser of documents: what a store answers is flat, and entities beyond the five and numbers are not used.
 */

/** Inner text of every element of this name, in order; not to be used for names that nest in themselves. */
export function elementsOf(xml: string, name: string): readonly string[] {
  const found: string[] = [];
  const close = `</${name}>`;
  for (let from = 0; ;) {
    const start = xml.indexOf(`<${name}`, from);
    if (start < 0) return found;
    const afterName = start + name.length + 1;
    const end = xml.indexOf(">", afterName);
    if (end < 0) return found;
    from = end + 1;
    // `<Key` is also how `<KeyCount>` begins.
    if (!/[\s/>]/.test(xml.charAt(afterName))) continue;
    if (xml.charAt(end - 1) === "/") {
      found.push("");
      continue;
    }
    const closing = xml.indexOf(close, from);
    if (closing < 0) return found;
    found.push(xml.slice(from, closing));
    from = closing + close.length;
  }
}

/** Is this a document of that name, and not what somebody else answers, or the answer to another question? */
export function isDocument(xml: string, name: string): boolean {
  const root = rootAt(xml);
  // `<Key` is also how `<KeyCount>` begins.
  return xml.startsWith(`<${name}`, root) && /[\s/>]/.test(xml.charAt(root + name.length + 1));
}

/** Behind a byte order mark, blanks, declarations and comments. */
function rootAt(xml: string): number {
  const blanks = /[\s\ufeff]*/y;
  for (let at = 0; ;) {
    blanks.lastIndex = at;
    at += blanks.exec(xml)?.[0].length ?? 0;
    const close = xml.startsWith("<?", at) ? "?>" : xml.startsWith("<!--", at) ? "-->" : undefined;
    if (close === undefined) return at;
    const end = xml.indexOf(close, at + 2);
    if (end < 0) return xml.length;
    at = end + close.length;
  }
}

/** Text of the first element of this name. */
export function textOf(xml: string, name: string): string | undefined {
  const [first] = elementsOf(xml, name);
  return first === undefined ? undefined : decodeEntities(first);
}

const named: Readonly<Record<string, string>> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'" };

function decodeEntities(text: string): string {
  return text.replaceAll(/&(?:#(\d{1,7})|#x([0-9a-f]{1,6})|(\w{2,4}));/gi, (whole, ...parts: readonly unknown[]) => {
    const [decimal, hex, name] = parts;
    if (typeof name === "string") return named[name] ?? whole;
    const code = typeof decimal === "string" ? Number(decimal) : Number.parseInt(String(hex), 16);
    return code > 0x10ffff ? whole : String.fromCodePoint(code);
  });
}

export function escapeXml(text: string): string {
  return text
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll('"', "&quot;")
    .replaceAll("'", "&#39;");
}
