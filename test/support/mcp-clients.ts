/** Clients of `/mcp`: the official ones of both eras, and one that posts what it is told. */
import {
  Client as StatelessClient,
  StreamableHTTPClientTransport as StatelessTransport,
} from "@modelcontextprotocol/client";
import { Client as SessionClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as SessionTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import type { Json } from "./gateway-client.ts";

const info = { name: "test-client", version: "1.2.3" };

export interface ClientOptions {
  readonly url: string;
  readonly key: string;
  readonly capabilities?: Json;
}

/** The SDK's first generation: sessions, until 2025-11-25. */
export async function connectSession({ url, key, capabilities = {} }: ClientOptions): Promise<SessionClient> {
  const client = new SessionClient(info, { capabilities });
  const transport = new SessionTransport(new URL(url), {
    requestInit: { headers: { authorization: `Bearer ${key}` } },
  });
  await client.connect(transport);
  return client;
}

/** The second: 2026-07-28, found out by asking. */
export async function connectStateless({ url, key, capabilities = {} }: ClientOptions): Promise<StatelessClient> {
  const client = new StatelessClient(info, { capabilities, versionNegotiation: { mode: "auto" } });
  await client.connect(
    new StatelessTransport(new URL(url), { requestInit: { headers: { authorization: `Bearer ${key}` } } }),
  );
  return client;
}

export interface Posted {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  /** Messages in the order of their coming; one where the answer is JSON. */
  readonly messages: readonly Json[];
  /** The last one. */
  readonly answer: Json;
}

export interface PostOptions {
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
  /** Told of each message as it comes. */
  readonly onMessage?: (message: Json) => void;
}

export interface RawClient {
  /** Whatever it is. */
  post(body: unknown, options?: PostOptions): Promise<Posted>;
  /** A request of 2026-07-28 with all that belongs to it. */
  ask(method: string, params?: Json, options?: PostOptions & { readonly capabilities?: Json }): Promise<Posted>;
  at(url: string): RawClient;
}

let lastId = 0;

export function rawClient(url: string, key: string | undefined): RawClient {
  const client: RawClient = {
    async post(body, { headers = {}, signal, onMessage } = {}) {
      const response = await fetch(url, {
        method: "POST",
        headers: {
          "content-type": "application/json",
          accept: "application/json, text/event-stream",
          ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
          ...headers,
        },
        body: typeof body === "string" ? body : JSON.stringify(body),
        ...(signal === undefined ? {} : { signal }),
      });
      const isStream = response.headers.get("content-type") === "text/event-stream";
      const { text, messages } = isStream ? await readStream(response, onMessage) : await readJson(response);
      return { status: response.status, headers: response.headers, text, messages, answer: messages.at(-1) };
    },
    ask(method, params = {}, { capabilities = {}, headers = {}, ...options } = {}) {
      const version = "2026-07-28";
      const named = params.name ?? params.taskId;
      const meta = {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": capabilities,
        "io.modelcontextprotocol/clientInfo": info,
        ...params._meta,
      };
      return client.post(
        { jsonrpc: "2.0", id: (lastId += 1), method, params: { ...params, _meta: meta } },
        {
          ...options,
          headers: {
            "mcp-protocol-version": version,
            "mcp-method": method,
            ...(named === undefined ? {} : { "mcp-name": named }),
            ...headers,
          },
        },
      );
    },
    at: (other) => rawClient(other, key),
  };
  return client;
}

async function readJson(response: Response): Promise<Pick<Posted, "text" | "messages">> {
  const text = await response.text();
  return { text, messages: text === "" ? [] : [JSON.parse(text)] };
}

async function readStream(
  response: Response,
  onMessage: PostOptions["onMessage"],
): Promise<Pick<Posted, "text" | "messages">> {
  const messages: Json[] = [];
  let text = "";
  let rest = "";
  const decoder = new TextDecoder();
  for await (const part of response.body ?? []) {
    const piece = decoder.decode(part, { stream: true });
    text += piece;
    const events = (rest + piece).split("\n\n");
    rest = events.pop() ?? "";
    for (const event of events) {
      const data = event.split("\n").find((line) => line.startsWith("data: "));
      if (data === undefined) continue;
      const message: Json = JSON.parse(data.slice(6));
      messages.push(message);
      onMessage?.(message);
    }
  }
  return { text, messages };
}
