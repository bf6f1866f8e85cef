/**
 * What modules print is kept from where answers go, and bounded; the end of it is told where a module fails.
 */
const longestTail = 500;

export interface Printed {
  /** What was printed last, in whole words: of a secret, half is known to nobody, and would be told. */
  tail(): string;
}

/** To be called before a module is loaded. @param forward all of it to where errors go, for whoever holds the module */
export function keepOutputQuiet({ forward }: { readonly forward: boolean }): Printed {
  let tail = "";
  let isCut = false;
  const toErrors = process.stderr.write.bind(process.stderr);
  const keep = (part: unknown, encoding?: unknown, done?: unknown): boolean => {
    const text = typeof part === "string" ? part : part instanceof Uint8Array ? Buffer.from(part).toString("utf8") : "";
    isCut ||= tail.length + text.length > longestTail;
    tail = (tail + text.slice(-longestTail)).slice(-longestTail);
    if (forward) toErrors(text);
    const callback = typeof encoding === "function" ? encoding : done;
    if (typeof callback === "function") queueMicrotask(() => void Reflect.apply(callback, undefined, []));
    return true;
  };
  for (const stream of [process.stdout, process.stderr]) {
    Object.defineProperty(stream, "write", { value: keep, configurable: true, writable: true });
  }
  return { tail: () => (isCut ? tail.replace(/^\S+/, "") : tail).trim() };
}
