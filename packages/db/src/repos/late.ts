import { lazily } from "@toolyard/core/once";

type RepoFunction = (...given: never[]) => Promise<unknown>;

/**
 * A repository that is read with the first call of one of its functions: most requests have nothing to do with most
 * of them, and every function on AWS would pay for all with its start.
 */
export function late<R extends { readonly [K in keyof R]: RepoFunction }>(read: () => Promise<R>): R {
  const ready = lazily(read);
  const known = new Map<PropertyKey, RepoFunction>();
  const make = (name: keyof R): RepoFunction => {
    const made: RepoFunction = async (...given) => (await ready())[name](...given);
    known.set(name, made);
    return made;
  };
  return new Proxy({} as R, {
    ownKeys() {
      throw new TypeError("A repository that is read late has no list of its functions: name those that you need.");
    },
    // Whoever awaits one is not to take it for a promise.
    get: (_, name) => (name === "then" ? undefined : (known.get(name) ?? make(name as keyof R))),
  });
}
