/** Lists of names in rows that another release may have written: while one is deployed, two read the same rows. */
import * as z from "zod";

/**
 * Reads a list of an enum's names and leaves out those that this release does not know. Only for lists
 * where a name less means less: a permission is not given, an event not sent.
 */
export function knownValues<Name extends string>(names: readonly Name[]): z.ZodType<Name[], string[]> {
  const known: ReadonlySet<string> = new Set(names);
  const isKnown = (name: string): name is Name => known.has(name);
  return z.array(z.string()).transform((list) => list.filter(isKnown));
}
