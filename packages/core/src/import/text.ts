/** Foreign text made fit for definitions: no control characters, no more than its place holds. */

/** One paragraph or several; trailing spaces and control characters other than line breaks go. */
function tidy(text: string): string {
  return (
    text
      .toWellFormed()
      .replaceAll("\r\n", "\n")
      // oxlint-disable-next-line no-control-regex
      .replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, " ")
      .trim()
  );
}

/** A tidy text of at most so many characters; the rest of a longer one is not even looked at. */
export function tidyStart(text: string, most: number): { readonly text: string; readonly isCut: boolean } {
  const start = tidy(text.slice(0, 4 * most));
  const isCut = start.length > most || text.length > 4 * most;
  return { text: isCut ? cutText(`${start}…`.padEnd(most + 1, "…"), most) : start, isCut };
}

/** At most so many characters, the last of them an ellipsis where something was cut. */
export function cutText(text: string, most: number): string {
  if (text.length <= most) return text;
  return `${text
    .slice(0, most - 1)
    .toWellFormed()
    .trimEnd()}…`;
}

/** In one pass: a pattern that may begin at any slash would be tried again from each. */
export function withoutEndSlashes(address: string): string {
  return address.replace(/(?<!\/)\/+$/, "");
}

const verbs: Readonly<Record<string, string>> = {
  GET: "Reads",
  POST: "Sends",
  PUT: "Replaces",
  PATCH: "Changes",
  DELETE: "Deletes",
};

/** What a call without a description seems to do, in words: a model is not told how a tool is reached. */
export function describeRoute(method: string, path: string): string {
  const words = path
    .split(/[/?&#]+/)
    .filter((part) => part !== "")
    .map((part) => (/^\{.*\}$/.test(part) ? `by ${part.slice(1, -1)}` : part.replace(/[{}=_-]+/g, " ").trim()));
  return `${verbs[method] ?? "Calls"} ${words.join(" ") || "the API"}.`;
}
