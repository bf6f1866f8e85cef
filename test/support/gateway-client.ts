/** Speaks to a running gateway as its callers do: over HTTP, with a key. */
import { newId } from "@toolyard/core/ids";
import { requireDeclared } from "./declared-answer.ts";

export interface Reply {
  readonly status: number;
  readonly headers: Headers;
  readonly bytes: Buffer;
  readonly text: string;
  /** Parsed body; `undefined` where there is none. */
  readonly json: Json;
}

/** What tests read out of answers; each test says what it expects to be there. */
// oxlint-disable-next-line typescript/no-explicit-any
export type Json = any;

export interface SendOptions {
  readonly headers?: Readonly<Record<string, string>>;
  /** Sent as it is, instead of a JSON body. */
  readonly raw?: string | Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array>;
  readonly signal?: AbortSignal;
}

export class Client {
  readonly #url: string;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #asDeclared: boolean;

  /** @param asDeclared answers must have the form that this release's routes declare */
  constructor(url: string, headers: Readonly<Record<string, string>>, asDeclared = true) {
    this.#url = url;
    this.#headers = headers;
    this.#asDeclared = asDeclared;
  }

  /** The same caller with further headers. */
  with(headers: Readonly<Record<string, string>>): Client {
    return new Client(this.#url, { ...this.#headers, ...headers }, this.#asDeclared);
  }

  async send(method: string, path: string, body?: unknown, options: SendOptions = {}): Promise<Reply> {
    const hasJson = body !== undefined && options.raw === undefined;
    const response = await fetch(this.#url + path, {
      method: method.toUpperCase(),
      headers: { ...this.#headers, ...(hasJson ? { "content-type": "application/json" } : {}), ...options.headers },
      redirect: "manual",
      ...(hasJson ? { body: JSON.stringify(body) } : {}),
      ...(options.raw === undefined ? {} : { body: options.raw, duplex: "half" }),
      ...(options.signal === undefined ? {} : { signal: options.signal }),
    });
    const bytes = Buffer.from(await response.arrayBuffer());
    const text = bytes.toString("utf8");
    const isJson = response.headers.get("content-type")?.startsWith("application/json") === true;
    const json: Json = isJson && text !== "" ? (JSON.parse(text) as unknown) : undefined;
    if (this.#asDeclared) requireDeclared(method, path, { status: response.status, json });
    return { status: response.status, headers: response.headers, bytes, text, json };
  }

  /** @throws Error with the whole answer where it is not 2xx */
  async expect(method: string, path: string, body?: unknown, options: SendOptions = {}): Promise<Json> {
    const reply = await this.send(method, path, body, options);
    if (reply.status >= 200 && reply.status < 300) return reply.json;
    throw new Error(`${method} ${path} answered ${reply.status}: ${reply.text}`);
  }

  get(path: string): Promise<Json> {
    return this.expect("get", path);
  }

  post(path: string, body?: unknown, headers: Readonly<Record<string, string>> = {}): Promise<Json> {
    return this.expect("post", path, body ?? {}, { headers });
  }
}

export const allScopes = [
  "chat",
  "tools",
  "runtime_config",
  "calls",
  "approve",
  "manage",
  "node",
  "consume",
  "modules",
] as const;

export interface TestTenant {
  readonly id: string;
  /** An admin with every scope. */
  readonly key: string;
  readonly keyId: string;
  readonly client: Client;
  /** Another key; a member who may chat and use tools unless told otherwise. */
  newKey(
    change?: Readonly<Record<string, unknown>>,
  ): Promise<{ readonly id: string; readonly key: string; readonly client: Client }>;
  /** A provider at a model stub, serving the model `stub-1`. */
  addProvider(url: string, change?: Readonly<Record<string, unknown>>): Promise<string>;
  /** A plugin; fields that are left out describe a GET without arguments. Returns its id. */
  addPlugin(definition: Readonly<Record<string, unknown>>): Promise<string>;
  putCredential(name: string, value: string, userId?: string): Promise<void>;
}

export interface GatewayDriver {
  readonly url: string;
  readonly adminKey: string;
  /** The operator, who names no tenant. */
  readonly operator: Client;
  /** Somebody with this key. */
  client(key: string): Client;
  /** Somebody without one. */
  readonly nobody: Client;
  newTenant(settings?: Readonly<Record<string, unknown>>): Promise<TestTenant>;
}

/**
 * @param asDeclared false where another release may answer
 * @param scopes of each tenant's first key
 */
export function createDriver(
  url: string,
  adminKey: string,
  {
    asDeclared = true,
    scopes = allScopes,
  }: { readonly asDeclared?: boolean; readonly scopes?: readonly string[] } = {},
): GatewayDriver {
  const client = (key: string): Client => new Client(url, { authorization: `Bearer ${key}` }, asDeclared);
  const operator = client(adminKey);
  return {
    url,
    adminKey,
    operator,
    client,
    nobody: new Client(url, {}, asDeclared),
    async newTenant(settings = {}) {
      const tenant = await operator.post("/v1/tenants", { name: `test ${newId("request")}`, settings });
      const first = await operator.post(
        "/v1/api-keys",
        { name: "all", role: "admin", scopes },
        { "x-toolyard-tenant": tenant.id },
      );
      return toTenant(tenant.id, first, client);
    },
  };
}

function toTenant(id: string, first: Json, client: (key: string) => Client): TestTenant {
  const own = client(first.key);
  return {
    id,
    key: first.key,
    keyId: first.id,
    client: own,
    async newKey(change = {}) {
      const made = await own.post("/v1/api-keys", { name: "another", ...change });
      return { id: made.id, key: made.key, client: client(made.key) };
    },
    async addProvider(url, change = {}) {
      const provider = { name: newId("request"), kind: "openai", base_url: url, models: { "stub-1": "stub-1" } };
      return (await own.post("/v1/providers", { ...provider, ...change })).id as string;
    },
    async addPlugin(definition) {
      return (await own.post("/v1/plugins", { ...plainDefinition, ...definition })).id as string;
    },
    async putCredential(name, value, userId) {
      const body = { value, ...(userId === undefined ? {} : { user_id: userId }) };
      await own.expect("put", `/v1/credentials/${encodeURIComponent(name)}`, body);
    },
  };
}

const plainDefinition = {
  schema_version: "v1",
  description: "A tool of a test.",
  parameters: { type: "object", properties: {} },
};
