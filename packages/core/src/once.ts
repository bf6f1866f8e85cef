/**
 * Makes a value when it is first asked for. For zod's schemas that most starts of a function have no use for: each
 * costs some 20 µs, and there are thousands.
 */
export function once<T extends object>(make: () => T): () => T {
  let made: T | undefined;
  return () => (made ??= make());
}
