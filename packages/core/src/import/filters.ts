/**
 * Which operations of a document are wanted: `tag:billing`, `GET /users/*`, `/users/*`, or a pattern of
 * operation ids. `*` stands for any text.
 */

export interface Filtered {
  readonly method: string;
  readonly path: string;
  readonly operationId: string | undefined;
  readonly tags: readonly string[];
}

export interface Filters {
  readonly include?: readonly string[] | undefined;
  readonly exclude?: readonly string[] | undefined;
}

export function isWanted(operation: Filtered, { include, exclude }: Filters): boolean {
  const isIncluded = include === undefined || include.some((pattern) => fits(pattern, operation));
  return isIncluded && exclude?.some((pattern) => fits(pattern, operation)) !== true;
}

function fits(pattern: string, { method, path, operationId, tags }: Filtered): boolean {
  if (pattern.startsWith("tag:")) return tags.some((tag) => matches(pattern.slice("tag:".length), tag));
  if (pattern.startsWith("/")) return matches(pattern, path);
  const space = pattern.indexOf(" ");
  if (space > 0) {
    return matches(pattern.slice(0, space).toUpperCase(), method) && matches(pattern.slice(space + 1).trim(), path);
  }
  return operationId !== undefined && matches(pattern, operationId);
}

/** Piece by piece from the left: each pattern takes one pass, whatever it looks like. */
function matches(pattern: string, text: string): boolean {
  const pieces = pattern.split("*");
  const [first = "", ...rest] = pieces;
  const last = rest.pop();
  if (last === undefined) return text === pattern;
  if (!text.startsWith(first) || text.length < first.length + last.length || !text.endsWith(last)) return false;
  let at = first.length;
  for (const piece of rest) {
    const found = text.indexOf(piece, at);
    if (found < 0) return false;
    at = found + piece.length;
  }
  return at <= text.length - last.length;
}
