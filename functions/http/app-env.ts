/** What a request carries through the app, whichever host (Node server, Lambda, test) it came in by. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { CoreDeps } from "@toolyard/core/core-deps";
import type { RpcId } from "@toolyard/core/mcp/json-rpc";
import type { Metrics } from "@toolyard/core/ports/metrics";
import type { Log } from "@toolyard/core/ports/log";
import type { BlobLinks } from "@toolyard/core/secrets/blob-links";
import type { Span } from "@toolyard/core/ports/traces";
import type { Context } from "hono";
import type { LambdaStream } from "./lambda-stream.ts";

/** Composed once per process in compose.ts. */
export interface AppDeps {
  readonly core: CoreDeps;
  /** Hex SHA-256 of the operator's key. */
  readonly adminKeyHash: string;
  /** Tenant on which the operator acts where the request names none. */
  readonly defaultTenant?: string;
  readonly version: string;
  /** Origins of web pages that may speak to `/mcp`; `*`: all. */
  readonly mcpOrigins?: readonly string[];
  /** Where the gateway itself serves the links of its blob store; absent: the store has an HTTP of its own. */
  readonly blobLinks?: BlobLinks;
  readonly metrics?: Metrics;
  /** What `GET /metrics` answers; absent where metrics leave another way. */
  readonly metricsText?: () => Promise<string>;
  /** `wss://…`: where clients connect; absent: at the public address. */
  readonly wsUrl?: string;
  /** `mailto:` or `https:` address for security.txt. */
  readonly securityContact?: string;
  /** True once the process has been told to stop; readiness turns red and connections are closed. */
  readonly isDraining?: () => boolean;
}

/** One request and its answer. */
export interface Exchange {
  readonly requestId: string;
  /** 32 hex digits, from `traceparent` or minted. */
  readonly traceId: string;
  /** Undefined: nothing is traced. */
  readonly span: Span | undefined;
  /** `performance.now()` at the start. */
  readonly startedAt: number;
  /** Headers of the answer, whoever writes it; lower-case names. Routes add to it. */
  readonly headers: Record<string, string>;
  readonly log: Log;
  /** For the access log. */
  status?: number;
  route?: string;
  tenant?: string;
  callerId?: string;
  /** Of the one message of JSON-RPC that the request brought, once it has been read. */
  rpcId?: RpcId | null;
}

/** What the host gives beside the request; a plain `app.request` gives nothing. */
export interface HostBindings {
  readonly incoming?: IncomingMessage;
  readonly outgoing?: ServerResponse;
  readonly lambda?: LambdaBinding;
}

/** What a host asks of an app. */
export interface ServingApp {
  fetch(request: Request, env: HostBindings): Response | Promise<Response>;
}

export interface LambdaBinding {
  /** Milliseconds until the invocation is cut. */
  readonly remainingMs: () => number;
  /** Milliseconds after which an answer is given up that has said nothing. */
  readonly silenceMs: number;
  /** Of the request, which is there as a whole. */
  readonly body: Uint8Array;
  /** Of the answer. */
  readonly stream: LambdaStream;
}

/** Read with `c.get("exchange")`: `c.var` is made anew each time it is asked for. */
export interface AppEnv {
  Bindings: HostBindings;
  Variables: { exchange: Exchange };
}

export type AppContext = Context<AppEnv>;

/** Requests made in the process itself (`app.request`) come without bindings. */
export function hostOf(c: AppContext): HostBindings {
  const given: HostBindings | undefined = c.env;
  return given ?? {};
}

/** A request header by lower-case name, without building a `Headers` object where Node has it at hand. */
export function headerOf(c: AppContext, name: string): string | undefined {
  const { incoming } = hostOf(c);
  if (incoming === undefined) return c.req.header(name);
  const value = incoming.headers[name];
  return typeof value === "string" ? value : value?.[0];
}
