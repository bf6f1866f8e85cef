/**
 * `{{VCPDynamicTools}}`: a list of the tools, and the whole description of those that the conversation is about.
 * Which these are is told by their names: in `[[VCPDynamicTools:tool=…]]` and `[[VCPDynamicTools:category=…:all]]`,
 * or in what the user has said last.
 */
import { noToolText } from "../plugins/tool-text.ts";
import type { ToolText } from "./sources.ts";

const mostListed = 120;
const mostDescribed = 4;
const mostCharacters = 16_000;
const longestSummary = 120;

/**
 * @param wishes the values of the directives, in the order of the message
 * @param named those that the user has named
 */
export function dynamicTools(
  tools: readonly ToolText[],
  wishes: readonly string[],
  named: readonly ToolText[],
): string {
  if (tools.length === 0) return noToolText;
  const listed = tools.slice(0, mostListed).map(({ name, displayName, summary }) => {
    const short = summary.length > longestSummary ? `${summary.slice(0, longestSummary)}…` : summary;
    return `- ${displayName} (${name})${short === "" ? "" : `: ${short}`}`;
  });
  const more = tools.length > mostListed ? [`- … (${tools.length - mostListed})`] : [];
  const list = [...listed, ...more].join("\n");
  const described = withinLimits([...new Set([...wished(tools, wishes), ...named])]);
  return [list, ...described].join(separator);
}

const separator = "\n\n---\n\n";

function wished(tools: readonly ToolText[], wishes: readonly string[]): readonly ToolText[] {
  return wishes.flatMap((wish) => {
    const [, kind, value = ""] = /^(tool|category)=([^:]{1,199})(?::all)?$/.exec(wish.trim()) ?? [];
    if (kind === "tool") return tools.filter(({ name }) => name === value);
    return kind === "category" ? tools.filter(({ categories }) => categories.includes(value)) : [];
  });
}

/** Of what was said, the latest characters that are looked at. */
const longestSaid = 65_536;

/** In the order in which they are named; the same for all texts of a request. */
export function namedTools(tools: readonly ToolText[], said: string): readonly ToolText[] {
  if (said === "") return [];
  const latest = said.slice(-longestSaid);
  const places = tools.flatMap((tool) => {
    const at = [tool.name, tool.displayName].map((name) => latest.indexOf(name)).filter((place) => place >= 0);
    return at.length === 0 ? [] : [{ tool, at: Math.min(...at) }];
  });
  return places.sort((a, b) => a.at - b.at).map(({ tool }) => tool);
}

function withinLimits(tools: readonly ToolText[]): readonly string[] {
  const texts: string[] = [];
  let left = mostCharacters;
  for (const { text } of tools.slice(0, mostDescribed)) {
    if (text.length > left) continue;
    left -= text.length;
    texts.push(text);
  }
  return texts;
}
