/**
 * Makes a value when it is first asked for. For zod's schemas that most starts of a function have no use for: each
 * costs some 20 µs, and there are thousands.
 */
export function once<T extends object>(make: () => T): () => T {
  let made: T | undefined;
  return () => (made ??= make());
}

/** The same for what takes time, such as reading a module. What has failed is tried again by whoever asks next. */
export function lazily<T>(make: () => Promise<T>): () => Promise<T> {
  let making: Promise<T> | undefined;
  return () =>
    (making ??= make().catch((thrown: unknown) => {
      making = undefined;
      throw thrown;
    }));
}
