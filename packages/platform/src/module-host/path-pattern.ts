/** Paths of routes as `express` has them: `:name`, `:name?`, `:name(pattern)`, `*`, `*name`, `{optional}`, and patterns. */

export interface Matched {
  /** The part of the path that matched. */
  readonly path: string;
  readonly params: Readonly<Record<string, string>>;
}

export type Path = string | RegExp | readonly (string | RegExp)[];

export type Matcher = (path: string) => Matched | undefined;

/** @param whole false: a beginning of the path will do, if it ends at a slash */
export function createMatcher(path: Path, whole: boolean): Matcher {
  const compiled = (isList(path) ? path : [path]).map((each) => compile(each, whole));
  return (asked) => {
    for (const match of compiled) {
      const found = match(asked);
      if (found !== undefined) return found;
    }
    return undefined;
  };
}

function isList(path: Path): path is readonly (string | RegExp)[] {
  return Array.isArray(path);
}

function compile(path: string | RegExp, whole: boolean): Matcher {
  if (path instanceof RegExp) return matchBy(path, []);
  if (!whole && (path === "" || path === "/")) return () => ({ path: "", params: {} });
  const { source, names } = translate(path.length > 1 ? path.replace(/\/$/, "") : path);
  return matchBy(new RegExp(`^${source}${whole ? "/?$" : "(?=/|$)"}`, "i"), names);
}

/** Parts of a path: a parameter, a star, a bracket, anything else. */
const part = /(\/?):(\w+)(\([^()]*\))?(\?)?|\*(\w*)|([{}])|([^:*{}]+)|(.)/g;

function translate(path: string): { readonly source: string; readonly names: readonly string[] } {
  const names: string[] = [];
  let stars = 0;
  const source = path.replaceAll(part, (all: string, ...groups: (string | undefined)[]) => {
    const [slash = "", name, pattern, optional, star, bracket] = groups;
    if (name !== undefined) {
      names.push(name);
      const value = `(${pattern?.slice(1, -1) ?? "[^/]+?"})`;
      return optional === undefined ? `${slash}${value}` : `(?:${slash}${value})?`;
    }
    if (star !== undefined) {
      names.push(star === "" ? String(stars) : star);
      stars += 1;
      return "(.*)";
    }
    if (bracket !== undefined) return bracket === "{" ? "(?:" : ")?";
    if (all === "(.*)") {
      names.push(String(stars));
      stars += 1;
      return all;
    }
    return all.replaceAll(/[.+?^$|\\[\]()]/g, String.raw`\$&`);
  });
  return { source, names };
}

function matchBy(pattern: RegExp, names: readonly string[]): Matcher {
  return (asked) => {
    const found = pattern.exec(asked);
    if (found === null) return undefined;
    const params = Object.fromEntries(
      found.slice(1).flatMap((value: string | undefined, index) => {
        return value === undefined ? [] : [[names[index] ?? String(index), decoded(value)] as const];
      }),
    );
    return { path: found[0], params };
  };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
