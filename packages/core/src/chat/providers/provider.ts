/**
 * A model back end. A provider turns one request into one stream of events, whether the back end
 * streams or not; the loop above knows nothing of wire formats.
 */
import type { JsonObject } from "../../json.ts";
import type { Usage } from "../../calls/usage.ts";
import type { EgressResponse } from "../../ports/egress.ts";
import type { Span } from "../../ports/traces.ts";
import type { SchemaFamily } from "../../tools/schema-projection.ts";
import type { OriginalRequest } from "./forwardable-body.ts";

/** A configured back end of a tenant. */
export interface ProviderRecord {
  readonly id: string;
  readonly name: string;
  /** Key of providers/index.ts. */
  readonly kind: string;
  readonly baseUrl: string;
  /** Name of the credential that holds the key; null: the back end asks for none. */
  readonly credential: string | null;
  /** Model names as callers write them → names as the back end knows them. */
  readonly models: Readonly<Record<string, string>>;
  /** Serve models that are not listed in `models`, under their own name. */
  readonly passthroughModels: boolean;
  /** What its models read of schemas; null: as their names say. */
  readonly schemaFamily: SchemaFamily | null;
  /** The lowest is asked first; of equal ones the oldest. */
  readonly priority: number;
  readonly enabled: boolean;
  /** Sends in all before the first byte (429 and 5xx only). */
  readonly maxAttempts: number;
  readonly timeoutMs: number;
}

export interface ProviderRequest {
  /** OpenAI request body for the back end; `model` is the back end's name. */
  readonly body: JsonObject;
  /** The request that `body` was made of. */
  readonly original?: OriginalRequest;
  readonly stream: boolean;
  readonly signal: AbortSignal;
  /** Resolved key, or undefined where the back end asks for none. */
  readonly apiKey: string | undefined;
  readonly provider: ProviderRecord;
  /** Requests to the back end are told of under it. */
  readonly span?: Span | undefined;
  /** Whoever reads the events also takes them at once, after the first. */
  readonly take?: TakeEvents | undefined;
}

/**
 * Takes events that come together, instead of reading them, while the reader waits for more of them. So a
 * stream's text passes without a promise. What ends an answer is always read.
 * @returns a promise where the next ones have to wait until it is resolved
 */
export type TakeEvents = (events: readonly ProviderEvent[]) => Promise<void> | undefined;

/** A request whose answer goes to the client as it comes. */
export interface RelayRequest extends Pick<ProviderRequest, "provider" | "apiKey" | "signal" | "span"> {
  /** Below the back end's address: `/embeddings`. */
  readonly path: string;
  readonly bytes: Uint8Array | string;
  readonly accept: string;
  /** The back end's name of the model, for errors. */
  readonly model: string;
}

export type ModelListRequest = Pick<ProviderRequest, "provider" | "apiKey" | "signal" | "span">;

/** An assistant message as the back end wrote it; unknown fields are kept for the next turn. */
export type UpstreamMessage = JsonObject;

/** A complete tool call of a turn, assembled by providers/tool-call-assembly.ts. */
export interface AssembledToolCall {
  /** The back end's id, made unique and non-empty. */
  readonly id: string;
  readonly name: string;
  /** As written by the model; JSON text if the model did its work. Blank became `{}`. */
  readonly arguments: string;
  /**
   * Fields beyond id and function, for example a thought signature. `type` is among them only where it
   * is not `function`; a `custom` call has its input, which is no JSON, in `arguments`.
   */
  readonly extra: JsonObject;
}

export type ProviderEvent =
  /** Once, first: what the back end said of itself. */
  | {
      readonly type: "start";
      readonly id: string;
      readonly model: string;
      readonly created: number;
      readonly systemFingerprint?: string;
      /** Where the back end has begun without text, as before calls. */
      readonly content?: null;
    }
  /** `frame`: the SSE event as received, to be forwarded unchanged where nothing has to be rewritten. */
  | { readonly type: "text-delta"; readonly text: string; readonly choice: number; readonly frame?: Uint8Array }
  | {
      readonly type: "reasoning-delta";
      readonly text: string;
      readonly field: "reasoning_content" | "reasoning";
      readonly choice: number;
      readonly frame?: Uint8Array;
    }
  | { readonly type: "refusal-delta"; readonly text: string; readonly choice: number; readonly frame?: Uint8Array }
  /** `index` counts 0, 1, … in order of first appearance, whatever the back end sent; `id` and `name` only with the first. */
  | {
      readonly type: "tool-call-delta";
      readonly index: number;
      readonly id?: string;
      readonly name?: string;
      readonly arguments: string;
      readonly choice: number;
      readonly custom?: true;
      /** Fields beyond id and function, each once. */
      readonly extra?: JsonObject;
    }
  /** Chunks that carry something else (logprobs, annotations, audio): passed on as they are. */
  | {
      readonly type: "other-delta";
      readonly delta: JsonObject;
      readonly choice: number;
      readonly logprobs?: JsonObject;
      readonly frame?: Uint8Array;
    }
  /** Once per choice, after its last delta. `toolCalls` is empty where the model called nothing. */
  | {
      readonly type: "message";
      readonly choice: number;
      readonly message: UpstreamMessage;
      readonly toolCalls: readonly AssembledToolCall[];
      readonly finishReason: string;
    }
  | { readonly type: "usage"; readonly usage: Usage }
  /**
   * Whole body of a non-streamed answer, or the unknown top-level fields of a stream's chunks. Last.
   * `bytes`: the body as received, to be sent on unchanged where nothing has to be rewritten.
   */
  | { readonly type: "response"; readonly body: JsonObject; readonly bytes?: Uint8Array };

export interface ChatProvider {
  /**
   * One model call, in events; those that come together are given together. Retries, fallback and key
   * look-up are the caller's.
   * @throws GatewayError `provider_*`; with `details.extra.before_first_byte` true where a retry is safe
   */
  stream(request: ProviderRequest): AsyncGenerator<readonly ProviderEvent[], void, void>;
  /**
   * One request, and the head of its answer; bodies are nobody's here.
   * @throws GatewayError as `stream`; `provider_rejected` and the like for a status other than 2xx
   */
  relay?(request: RelayRequest): Promise<EgressResponse>;
  /** The models that the back end offers, for providers with `passthroughModels`. */
  listModels?(request: ModelListRequest): Promise<readonly string[]>;
}
