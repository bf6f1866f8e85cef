/**
 * A request for hono without Node's own `Request`, whose first use costs a function 25 ms CPU of its cold
 * start. What routes commonly read is at hand; whoever asks for anything else gets the real one.
 */

export interface RequestParts {
  readonly method: string;
  readonly url: string;
  readonly headers: PlainHeaders;
  readonly body: Uint8Array<ArrayBuffer> | null;
}

/** The part of `Headers` that is read of a request. Names are lower-case, several values of one are joined. */
export class PlainHeaders {
  readonly #values = new Map<string, string>();

  append(name: string, value: string): void {
    const key = name.toLowerCase();
    const earlier = this.#values.get(key);
    this.#values.set(key, earlier === undefined ? value : `${earlier}, ${value}`);
  }

  get(name: string): string | null {
    return this.#values.get(name.toLowerCase()) ?? null;
  }

  has(name: string): boolean {
    return this.#values.has(name.toLowerCase());
  }

  forEach(read: (value: string, name: string) => void): void {
    for (const [name, value] of this.#values) read(value, name);
  }

  [Symbol.iterator](): IterableIterator<[string, string]> {
    return this.#values[Symbol.iterator]();
  }
}

export function toLightRequest({ method, url, headers, body }: RequestParts): Request {
  const light: Readonly<Record<string, unknown>> = { method, url, headers };
  let real: Request | undefined;
  const request = new Proxy(light, {
    get(known, name) {
      if (typeof name === "string" && Object.hasOwn(known, name)) return known[name];
      real ??= new Request(url, { method, headers: [...headers], body });
      const value: unknown = Reflect.get(real, name);
      return typeof value === "function" ? (value.bind(real) as unknown) : value;
    },
  });
  // Whatever is asked of it is either at hand or the real one's.
  return request as unknown as Request;
}
