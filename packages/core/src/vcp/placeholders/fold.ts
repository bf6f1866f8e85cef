/**
 * Folded texts: blocks of which those below a threshold are always shown and the others where they fit the
 * conversation (VCP protocol, fold protocol). Nothing here compares meanings, so `auto` shows what is always shown.
 */
import { isJsonObject, parseJson } from "../../json.ts";

export type FoldMode = "auto" | "lite" | "full";

export interface FoldBlock {
  readonly threshold: number;
  readonly content: string;
  readonly description?: string;
}

const foldLine = /^[ \t]*\[===vcp_fold:[ \t]*(\d{1,3}(?:\.\d{1,6})?)[ \t]*(?:::desc:([^=\n]{0,400}))?===\][ \t]*\r?$/gm;
const separator = "\n\n---\n\n";

export function toFoldMode(value: string): FoldMode | undefined {
  return value === "Auto" ? "auto" : value === "Lite" ? "lite" : value === "Full" ? "full" : undefined;
}

/** Undefined: the text is not folded. */
export function parseFold(text: string): readonly FoldBlock[] | undefined {
  return text.includes("[===vcp_fold:")
    ? parseLines(text)
    : text.includes("vcp_dynamic_fold")
      ? parseObject(text)
      : undefined;
}

function parseLines(text: string): readonly FoldBlock[] | undefined {
  const lines = [...text.matchAll(foldLine)];
  if (lines.length === 0) return undefined;
  const [first] = lines;
  const before = text.slice(0, first?.index).trim();
  const blocks = lines.map((line, at) => ({
    threshold: Number(line[1]),
    content: text.slice(line.index + line[0].length, lines[at + 1]?.index).trim(),
    ...(line[2] === undefined ? {} : { description: line[2].trim() }),
  }));
  return before === "" ? blocks : [{ threshold: 0, content: before }, ...blocks];
}

function parseObject(text: string): readonly FoldBlock[] | undefined {
  const value = parseJson(text);
  if (!isJsonObject(value) || value["vcp_dynamic_fold"] !== true || !Array.isArray(value["fold_blocks"])) {
    return undefined;
  }
  const blocks = value["fold_blocks"].flatMap((block) => {
    if (!isJsonObject(block) || typeof block["content"] !== "string") return [];
    const { threshold, content, description } = block;
    return [
      {
        threshold: typeof threshold === "number" ? threshold : 0,
        content,
        ...(typeof description === "string" ? { description } : {}),
      },
    ];
  });
  return blocks.length === 0 ? undefined : blocks;
}

export function unfold(blocks: readonly FoldBlock[], mode: FoldMode): string {
  if (mode === "full") return blocks.map(({ content }) => content).join(separator);
  const lowest = blocks.reduce<FoldBlock | undefined>(
    (least, block) => (least === undefined || block.threshold < least.threshold ? block : least),
    undefined,
  );
  return lowest?.content ?? "";
}
