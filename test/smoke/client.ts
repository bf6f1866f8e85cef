/** Speaks to a deployment as its callers do. Needs nothing but Node, so that an operator can run it anywhere. */

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  /** The JSON body; `{}` where there is none. */
  readonly json: Values;
}

export type Values = Readonly<Record<string, unknown>>;

export interface StreamRead {
  readonly text: string;
  /** Milliseconds after the request was sent. */
  readonly at: number;
}

/** The deployment cannot be reached at all. */
export class UnreachableError extends Error {
  override readonly name = "UnreachableError";
}

const timeoutMs = 90_000;

export class DeploymentClient {
  readonly url: string;
  readonly #key: string | undefined;

  constructor(url: string, key?: string) {
    this.url = url;
    this.#key = key;
  }

  withKey(key: string | undefined): DeploymentClient {
    return new DeploymentClient(this.url, key);
  }

  async send(
    method: string,
    path: string,
    body?: Values,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<Answer> {
    const response = await this.#fetch(method, path, body, headers);
    const text = await response.text();
    const isJson = response.headers.get("content-type")?.startsWith("application/json") === true;
    const json = isJson && text !== "" ? toValues(JSON.parse(text)) : {};
    return { status: response.status, headers: response.headers, json };
  }

  /** Like `send`, but anything other than 2xx is an error that shows the whole answer. */
  async expect(
    method: string,
    path: string,
    body?: Values,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<Answer> {
    const answer = await this.send(method, path, body, headers);
    if (answer.status < 200 || answer.status > 299) {
      throw new Error(`${method} ${path} answered ${answer.status}: ${JSON.stringify(answer.json)}`);
    }
    return answer;
  }

  /** The pieces of a streamed answer as they arrive. */
  async stream(path: string, body: Values): Promise<readonly StreamRead[]> {
    const started = performance.now();
    const response = await this.#fetch("POST", path, body, {});
    if (!response.ok || response.body === null) {
      throw new Error(`POST ${path} answered ${response.status}: ${await response.text()}`);
    }
    const type = response.headers.get("content-type") ?? "none";
    if (type !== "text/event-stream") throw new Error(`the stream's content type is ${type}`);
    const reads: StreamRead[] = [];
    const decoder = new TextDecoder();
    for await (const part of response.body) {
      reads.push({ text: decoder.decode(part, { stream: true }), at: performance.now() - started });
    }
    return reads;
  }

  async #fetch(
    method: string,
    path: string,
    body: Values | undefined,
    headers: Readonly<Record<string, string>>,
  ): Promise<Response> {
    try {
      return await fetch(this.url + path, {
        method,
        headers: {
          ...(this.#key === undefined ? {} : { authorization: `Bearer ${this.#key}` }),
          ...(body === undefined ? {} : { "content-type": "application/json" }),
          ...headers,
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        signal: AbortSignal.timeout(timeoutMs),
      });
    } catch (cause) {
      const reason = cause instanceof Error && cause.cause instanceof Error ? cause.cause.message : String(cause);
      throw new UnreachableError(`${method} ${this.url}${path}: ${reason}`, { cause });
    }
  }
}

export function toValues(value: unknown): Values {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Values) : {};
}

export function textAt(values: Values, name: string): string {
  const value = values[name];
  return typeof value === "string" ? value : "";
}

export function listAt(values: Values, name: string): readonly Values[] {
  const value = values[name];
  return Array.isArray(value) ? value.map(toValues) : [];
}
