/** The one stream of a chat. JSON is it collected, SSE is it encoded (design "One loop"). */
import type { GatewayError } from "../errors/gateway-error.ts";
import type { JsonObject, JsonValue } from "../json.ts";
import type { Usage } from "../calls/usage.ts";
import type { ToolOutcome } from "../tools/outcome.ts";
import type { ProviderEvent } from "./providers/provider.ts";

export interface ToolExecution {
  readonly executed: boolean;
  /** Names in order of their first call. */
  readonly tools_called: readonly string[];
  readonly session_id: string;
  /** Virtual path `/mcp_workspaces/{session_id}`. */
  readonly workspace_path: string;
  /** The limit at which the model was not given what it asked for any more. */
  readonly stopped_by?: "rounds" | "repeated_call" | undefined;
  /** Calls that wait for approval or run on after this answer. */
  readonly pending?: readonly {
    readonly call_id: string;
    readonly tool: string;
    readonly reason: "approval" | "async" | "input";
    readonly url?: string;
  }[];
}

/** Where a passage stands that the model was given; `cite` is how it was told to name it. */
export interface ChatSource {
  readonly cite: string;
  readonly knowledge_base: string;
  readonly document_id: string;
  readonly document_name: string;
  readonly chunk_id: string;
  readonly start: number;
  readonly end: number;
  readonly heading: string;
  readonly score: number;
  readonly source_url: string | null;
}

/** As OpenAI writes it: `function` with JSON arguments, or `custom` with free text. */
export type ClientToolCall =
  | {
      readonly id: string;
      readonly type: "function";
      readonly function: { readonly name: string; readonly arguments: string };
    }
  | {
      readonly id: string;
      readonly type: "custom";
      readonly custom: { readonly name: string; readonly input: string };
    };

/** What the model back end says and the client is told as it is. */
export type PassedOn = Extract<
  ProviderEvent,
  { readonly type: "start" | "text-delta" | "reasoning-delta" | "refusal-delta" | "other-delta" }
>;

export type ChatEvent =
  | PassedOn
  /**
   * A call as the model writes it. `owner` tells who runs it; on `/v1` only the client's reach the
   * wire, and those only once the turn is known to end with them. Ids are the gateway's.
   */
  | (Extract<ProviderEvent, { readonly type: "tool-call-delta" }> & { readonly owner: "client" | "gateway" })
  | {
      readonly type: "tool-call";
      readonly owner: "client" | "gateway";
      readonly index: number;
      readonly call: ClientToolCall;
      readonly choice: number;
    }
  | { readonly type: "tool-result"; readonly toolCallId: string; readonly tool: string; readonly outcome: ToolOutcome }
  | { readonly type: "tool-pending"; readonly toolCallId: string; readonly tool: string; readonly callId: string }
  | {
      readonly type: "approval-required";
      readonly toolCallId: string;
      readonly tool: string;
      readonly callId: string;
      readonly url: string;
      /** It is not approval that is wanted, but answers to these. */
      readonly requests?: { readonly [name: string]: JsonValue };
    }
  /** Another agent goes on with the conversation. */
  | { readonly type: "handoff"; readonly from: string; readonly to: string; readonly reason: string }
  | { readonly type: "usage"; readonly usage: Usage; readonly rounds: readonly Usage[] }
  | {
      readonly type: "finish";
      readonly reasons: readonly { readonly choice: number; readonly finishReason: string }[];
      readonly toolExecution: ToolExecution | undefined;
      readonly body?: JsonObject;
      /** The whole answer as JSON text, where it is just what the back end wrote. */
      readonly bytes?: Uint8Array;
      /** Passages of knowledge bases that the model was given. */
      readonly sources?: readonly ChatSource[];
      /** Micro-units of the chat and of the calls that it ran; absent in a replayed answer. */
      readonly micros?: number;
    }
  | { readonly type: "error"; readonly error: GatewayError; readonly toolExecution: ToolExecution | undefined };
