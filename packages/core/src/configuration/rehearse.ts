/**
 * What a change would meet with, without being made: it is carried out up to its first effect. So whatever refuses it
 * is what will refuse it, and nothing is checked in two ways (decision 0052).
 */
import type { CoreDeps } from "../core-deps.ts";

/** Functions of repositories and of the blob store that change nothing. */
const reads: ReadonlySet<string> = new Set([
  "all",
  "callsUnderWay",
  "contents",
  "definition",
  "get",
  "getBase",
  "head",
  "list",
  "listBases",
  "listHooks",
  "load",
  "namingAgent",
  "nextVersion",
  "references",
  "targets",
  "version",
  "versions",
]);

/** Thrown in place of the first effect. */
class Reached extends Error {
  override readonly name = "Reached";
  readonly effect: FirstEffect;

  constructor(effect: FirstEffect) {
    super(`'${effect.name}' would be called`);
    this.effect = effect;
  }
}

export interface FirstEffect {
  /** `services.create` */
  readonly name: string;
  readonly given: readonly unknown[];
}

type Part = Readonly<Record<string, unknown>>;

/**
 * The same, but whatever would change something ends what is under way. As nothing is changed, what was read from the
 * database once is not read again: three hundred flows that go are looked for in one list of who uses what.
 */
export function rehearsing(core: CoreDeps): CoreDeps {
  const known = new Map<string, unknown>();
  const repos = new Proxy(core.repos, {
    get: (all, name) => {
      const part: unknown = Reflect.get(all, name);
      return typeof part === "object" && part !== null
        ? readOnly(part as Part, String(name), known)
        : reach(String(name));
    },
  });
  return {
    ...core,
    repos,
    blobs: readOnly(core.blobs as unknown as Part, "blobs") as unknown as CoreDeps["blobs"],
    queue: readOnly(core.queue as unknown as Part, "queue") as unknown as CoreDeps["queue"],
    tellNow: () => Promise.resolve(),
  };
}

/** @param known answers by what was asked, where the same is answered again */
function readOnly(part: Part, called: string, known?: Map<string, unknown>): Part {
  return new Proxy(part, {
    get: (all, name) => {
      const property: unknown = Reflect.get(all, name);
      if (typeof property !== "function") return property;
      const full = `${called}.${String(name)}`;
      if (!reads.has(String(name))) return reach(full);
      const read = property.bind(all) as (...given: readonly unknown[]) => unknown;
      return known === undefined ? read : remembering(full, read, known);
    },
  });
}

const remembering =
  (called: string, read: (...given: readonly unknown[]) => unknown, known: Map<string, unknown>) =>
  (...given: readonly unknown[]): unknown => {
    const asked = `${called} ${JSON.stringify(given)}`;
    const answer = known.get(asked) ?? read(...given);
    known.set(asked, answer);
    return answer;
  };

const reach =
  (name: string) =>
  async (...given: readonly unknown[]): Promise<never> => {
    throw new Reached({ name, given });
  };

/** @returns the effect that it came to; undefined: it has none. @throws what refuses it */
export async function firstEffect(change: () => Promise<unknown>): Promise<FirstEffect | undefined> {
  try {
    await change();
    return undefined;
  } catch (thrown) {
    if (thrown instanceof Reached) return thrown.effect;
    throw thrown;
  }
}
