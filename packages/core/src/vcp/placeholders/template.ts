/**
 * Placeholders in a text, found in one pass: each begins with the last two opening braces before a name and ends
 * with the first two closing ones after it, so none reaches over another, and a text of braces alone costs no more
 * than any other of its length. Whether a name means anything is not known here.
 */

/** A longer one is no name of anything. */
const longestName = 256;

export interface Placeholder {
  readonly kind: "placeholder";
  /** With its braces. */
  readonly start: number;
  readonly end: number;
  readonly name: string;
}

/** `[[VCPStaticFold::…]]`, `[[VCPDynamicTools:…]]`: says how something else in the same message is shown. */
export interface Directive {
  readonly kind: "directive";
  readonly start: number;
  readonly end: number;
  readonly name: "VCPStaticFold" | "VCPDynamicTools";
  readonly value: string;
}

export type Mark = Placeholder | Directive;

export interface Template {
  readonly text: string;
  /** In the order of the text. */
  readonly marks: readonly Mark[];
}

const openingBrace = 0x7b;
const closingBrace = 0x7d;
const lineFeed = 0x0a;

export function parseTemplate(text: string): Template {
  const placeholders = findPlaceholders(text);
  const directives = findDirectives(text);
  if (directives.length === 0) return { text, marks: placeholders };
  const marks = [...placeholders, ...directives].sort((a, b) => a.start - b.start);
  // Where one begins within another, the first stands.
  let end = 0;
  return {
    text,
    marks: marks.filter((mark) => {
      if (mark.start < end) return false;
      end = mark.end;
      return true;
    }),
  };
}

function findPlaceholders(text: string): Placeholder[] {
  const found: Placeholder[] = [];
  let end = 0;
  for (let at = text.indexOf("{{"); at >= 0; at = text.indexOf("{{", end)) {
    let start = at + 2;
    while (text.charCodeAt(start) === openingBrace) start += 1;
    end = endOfName(text, start);
    if (end === start || text.charCodeAt(end) !== closingBrace || text.charCodeAt(end + 1) !== closingBrace) continue;
    const name = text.slice(start, end);
    const more = name.startsWith(asyncPrefix) ? moreBraces(text, { at, start: start - 2, end: end + 2 }) : 0;
    end += 2 + more;
    found.push({ kind: "placeholder", start: start - 2 - more, end, name });
  }
  return found;
}

/** Where a name that begins at `start` can go no further. */
function endOfName(text: string, start: number): number {
  const limit = Math.min(text.length, start + longestName);
  for (let end = start; end < limit; end += 1) {
    const code = text.charCodeAt(end);
    if (code === closingBrace || code === openingBrace || code === lineFeed) return end;
  }
  return limit;
}

/** Those of asynchronous results may stand in three or four braces, too: models like to add some. */
function moreBraces(
  text: string,
  { at, start, end }: { readonly at: number; readonly start: number; readonly end: number },
): number {
  let more = 0;
  while (more < 2 && start - more > at && text.charCodeAt(end + more) === closingBrace) more += 1;
  return more;
}

const asyncPrefix = "VCP_ASYNC_RESULT::";

/** The plugin and the task that a placeholder of an asynchronous result names: whatever they may be called. */
export function parseAsyncName(name: string): { readonly plugin: string; readonly taskId: string } | undefined {
  if (!name.startsWith(asyncPrefix)) return undefined;
  const [, plugin, taskId] = /^VCP_ASYNC_RESULT::([\p{L}\p{N}_.-]+)::([A-Za-z0-9_.-]+)$/u.exec(name) ?? [];
  return plugin === undefined || taskId === undefined ? undefined : { plugin, taskId };
}

const directive = /\[\[(VCPStaticFold|VCPDynamicTools)::?([^\s[\]{}][^[\]{}\n]{0,199})\]\]/g;

function findDirectives(text: string): Directive[] {
  if (!text.includes("[[VCP")) return [];
  return [...text.matchAll(directive)].map((match) => ({
    kind: "directive",
    start: match.index,
    end: match.index + match[0].length,
    name: match[1] === "VCPStaticFold" ? "VCPStaticFold" : "VCPDynamicTools",
    value: match[2] ?? "",
  }));
}
