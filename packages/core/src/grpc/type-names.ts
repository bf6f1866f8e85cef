/**
 * How descriptors name types. Compilers write names whole, with a dot before them. Libraries that make descriptors of
 * .proto files while they run, such as protobufjs, and so reflection of servers on Node, leave them as they may stand
 * in the source: looked for from the inside out.
 */

/** Characters of names that are looked for in one set; far more than any set has that a person wrote. */
const mostCharacters = 64_000_000;

export class TypeNames {
  readonly #isKnown: (wholeName: string) => boolean;
  #left = mostCharacters;

  constructor(isKnown: (wholeName: string) => boolean) {
    this.#isKnown = isKnown;
  }

  /**
   * The whole name of a type, without the dot; one that is not known is given as it stands.
   * @param scope whole name of the message, or package, in which the type is named
   * @throws RangeError where a set makes the search too long
   */
  whole(name: string, scope: string): string {
    if (name.startsWith(".")) return name.slice(1);
    for (let place = scope; place !== ""; place = outerOf(place)) {
      const inner = `${place}.${name}`;
      this.#left -= inner.length;
      if (this.#left < 0) throw new RangeError("the names of its types take too long to find");
      if (this.#isKnown(inner)) return inner;
    }
    return name;
  }
}

/** Where the declaration of this name stands; nothing around a package's first part. */
export function outerOf(name: string): string {
  return name.slice(0, Math.max(0, name.lastIndexOf(".")));
}
