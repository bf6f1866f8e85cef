/** Which route is meant where there is none under the address: most such requests are off by one letter. */
import type { RouteModule } from "./define-route.ts";

type Address = Pick<RouteModule, "method" | "path">;

/** An address in words, as they were written and as they are compared where that leads nowhere. */
interface Words {
  readonly asWritten: readonly string[];
  readonly folded: readonly string[];
}

/** @returns finds the path of the route that a request means, with what the request has in place of its parameters */
export function findMeantRoute(routes: readonly Address[]): (method: string, path: string) => string | undefined {
  const byMethod: ReadonlyMap<string, readonly { readonly words: Words }[]> = Map.groupBy(
    // Where one route has a word at the place of another's parameter, the word is meant.
    routes
      .filter(({ path }) => path !== "/")
      .map(({ method, path }) => ({ method, words: toWords(partsOf(path)) }))
      .toSorted((a, b) => parametersOf(a.words) - parametersOf(b.words)),
    ({ method }) => method,
  );
  return (method, path) => {
    const candidates = byMethod.get(method === "HEAD" ? "get" : method.toLowerCase()) ?? [];
    const bases = basesOf(toWords(partsOf(path)));
    for (const reading of ["asWritten", "folded"] as const) {
      for (const { words } of candidates) {
        const meant = bases.find((base) => matches(words, base, reading));
        if (meant !== undefined) return fill(words.asWritten, meant.asWritten);
      }
    }
    return undefined;
  };
}

/** Whether both say the same words, after another base address. */
export function isOfBase(meant: string, path: string): boolean {
  const words = partsOf(meant);
  return basesOf(toWords(partsOf(path))).some(
    ({ asWritten: base }) => base.length === words.length && base.every((word, at) => word === words[at]),
  );
}

/** Whether a word is left out within: a variable that was not set. At its start it is the base address that ends in a slash. */
export function hasEmptyPart(path: string): boolean {
  return /[^/]\/\/+[^/]/.test(path.replace(/^\/+v1\/+/, "/"));
}

function partsOf(path: string): readonly string[] {
  return path.split("/").filter((part) => part !== "");
}

/** A client's base address may end in a slash, or have a `/v1` too many or too few. */
function basesOf(sent: Words): readonly Words[] {
  const { asWritten, folded: words } = sent;
  const below = { asWritten: asWritten.slice(1), folded: words.slice(1) };
  const above = { asWritten: ["v1", ...asWritten], folded: ["v1", ...words] };
  return [sent, ...(words[0] === "v1" ? [below] : []), above];
}

function toWords(parts: readonly string[]): Words {
  return { asWritten: parts, folded: parts.map(folded) };
}

function parametersOf({ asWritten }: Words): number {
  return asWritten.filter(isParameter).length;
}

function matches(route: Words, sent: Words, reading: keyof Words): boolean {
  const { asWritten } = route;
  const words = route[reading];
  const given = sent[reading];
  const isOpen = asWritten.at(-1)?.endsWith("+}") === true;
  if (isOpen ? given.length < words.length : given.length !== words.length) return false;
  return asWritten.every((part, at) => isParameter(part) || words[at] === given[at]);
}

function fill(route: readonly string[], sent: readonly string[]): string {
  return `/${sent.map((part, at) => (isParameter(route[at] ?? "{") ? part : route[at])).join("/")}`;
}

const isParameter = (part: string): boolean => part.startsWith("{");

/** `Tool_Service` and `tool-services` are one word to who writes an address from memory. */
const folded = (word: string): string => word.toLowerCase().replaceAll(/s?[-_]|s$/g, "");
