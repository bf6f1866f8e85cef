/** Which route is meant where there is none under the address: most such requests are off by one letter. */
import type { RouteModule } from "./define-route.ts";

type Address = Pick<RouteModule, "method" | "path">;

/** @returns the route's path with what the request has in place of its parameters */
export function meantRoute(method: string, path: string, routes: readonly Address[]): string | undefined {
  const wanted = method === "HEAD" ? "get" : method.toLowerCase();
  const bases = basesOf(partsOf(path));
  const candidates = routes
    .filter((route) => route.method === wanted && route.path !== "/")
    .map((route) => partsOf(route.path))
    // Where one route has a word at the place of another's parameter, the word is meant.
    .toSorted((a, b) => a.filter(isParameter).length - b.filter(isParameter).length);
  for (const fold of [asIs, folded]) {
    for (const parts of candidates) {
      const meant = bases.find((base) => matches(parts, base, fold));
      if (meant !== undefined) return fill(parts, meant);
    }
  }
  return undefined;
}

/** Whether both say the same words, after another base address. */
export function isOfBase(meant: string, path: string): boolean {
  const words = partsOf(meant);
  return basesOf(partsOf(path)).some(
    (base) => base.length === words.length && base.every((word, at) => word === words[at]),
  );
}

function partsOf(path: string): readonly string[] {
  return path.split("/").filter((part) => part !== "");
}

/** A client's base address may end in a slash, or have a `/v1` too many or too few. */
function basesOf(sent: readonly string[]): readonly (readonly string[])[] {
  return [sent, ...(folded(sent[0] ?? "") === "v1" ? [sent.slice(1)] : []), ["v1", ...sent]];
}

function matches(route: readonly string[], sent: readonly string[], fold: (word: string) => string): boolean {
  const isOpen = route.at(-1)?.endsWith("+}") === true;
  if (isOpen ? sent.length < route.length : sent.length !== route.length) return false;
  return route.every((part, at) => isParameter(part) || fold(part) === fold(sent[at] ?? ""));
}

function fill(route: readonly string[], sent: readonly string[]): string {
  return `/${sent.map((part, at) => (isParameter(route[at] ?? "{") ? part : route[at])).join("/")}`;
}

const isParameter = (part: string): boolean => part.startsWith("{");

const asIs = (word: string): string => word;
/** `Tool_Service` and `tool-services` are one word to who writes an address from memory. */
const folded = (word: string): string => word.toLowerCase().replaceAll(/s?[-_]|s$/g, "");
