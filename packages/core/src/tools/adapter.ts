/**
 * What a scheme implements. The dispatcher has already resolved, permitted, validated, limited and
 * recorded the call; an adapter only carries it out.
 */
import type { CallContext } from "../context.ts";
import type { OAuthClient } from "../oauth/client.ts";
import type { Tool } from "./tool.ts";
import type { ToolUri, UriOptions } from "./uri.ts";
import type { ExplainedRequest } from "./explained-request.ts";
import type { ServiceRuntime } from "../services/scheme.ts";
import type { InvocationContext, LateTool, ToolCall, ToolReply } from "./tool-call.ts";

export interface ToolAdapter {
  /** Of a scheme that is read when it is used: before anything is asked of it. */
  load?(): Promise<void>;
  /** The tool at this address in the caller's tenant, or undefined. No I/O: reads the snapshot. */
  resolve(uri: ToolUri, context: CallContext): Tool | undefined;
  /** All tools of this scheme, for listing. */
  list(context: CallContext): readonly Tool[];
  /** Fails by throwing `GatewayError`, with what is known of the request (errors/delivery.ts). */
  invoke(call: ToolCall, context: InvocationContext): Promise<ToolReply>;
  /**
   * Gives a queued call to whoever carries it out without us: its row stays running under a lease that the other
   * one extends, and ends when the result comes in, wherever that is. False where this call has to be waited for:
   * then it is to be invoked.
   */
  handOver?(call: ToolCall, context: InvocationContext): Promise<boolean>;
  /**
   * What came of a call that was handed over, or that nobody waited for any more, in the form of its back end; what
   * must not be shown is then known to the redactor. Undefined where the tool is none of a back end any more.
   */
  readLate?(tool: LateTool, text: string, context: CallContext): Promise<ToolReply | undefined>;
  /** The tool of this name, which models and callers may use instead of the URI. No I/O. */
  find?(name: string, context: CallContext): Tool | undefined;
  /** Options that its URIs take; absent: all of the specification. */
  readonly options?: UriOptions | undefined;
  /** Why there is nothing at this address, for those who manage the tenant. */
  whyMissing?(uri: ToolUri, context: CallContext): string | undefined;
  /** The same for a name that `find` does not know, where it is a name of this adapter's. */
  whyUnknown?(name: string, context: CallContext): string | undefined;
  /** The request that a call would send, for tools that send one of their own. */
  explain?(call: Omit<ToolCall, "id" | "attempt">, context: CallContext): Promise<ExplainedRequest | null>;
  /** Of schemes whose back ends are configured as tool services. */
  readonly services?: ServiceRuntime | undefined;
  /** The OAuth client through which the tool acts for its user, for tools that need the user's own access. */
  userClient?(tool: Tool, context: CallContext): Promise<OAuthClient | undefined>;
}
