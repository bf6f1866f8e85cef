/** A tool as the dispatcher and the model know it, whatever is behind it. */
import type { Role, Scope } from "../callers/caller.ts";
import type { CallContext } from "../context.ts";
import type { JsonObject } from "../json.ts";
import type { Effect, Repeat } from "./effect.ts";

/** The `service` of tools that work on the files of the session. */
export const workspaceService = "workspace";

export interface Tool {
  /** Address, for example `plugin://search_company_basic`. */
  readonly uri: string;
  /** `[a-zA-Z0-9_-]{1,64}`; what the model calls. */
  readonly name: string;
  readonly title?: string;
  readonly description: string;
  /** JSON Schema of the arguments, an object schema. */
  readonly parameters: JsonObject;
  /** Whole numbers of any length reach its back end: they are texts of their digits until they are written. */
  readonly carriesLongNumbers?: boolean;
  /** JSON Schema of structured results, where its back end has said one. */
  readonly outputSchema?: JsonObject;
  readonly kind: "HTTP" | "NATIVE" | "MCP" | "VCP" | "SERVICE" | "NODE" | "FLOW" | "AGENT";
  /** Nodes that offer it. */
  readonly nodes?: readonly string[];
  /** Of a VCP node: how it calls itself, and under which id it is connected. */
  readonly distributed?: { readonly serverId: string; readonly vcpName: string; readonly isAsynchronous: boolean };
  readonly enabled: boolean;
  /** Not enabled because its definition has changed and nobody has accepted that. */
  readonly quarantined?: boolean;
  readonly roles: readonly Role[];
  /** Whoever has it may run the tool, and nobody else; absent: the scopes and patterns for tools decide. */
  readonly scope?: Scope;
  readonly effect: Effect;
  /** What of the arguments a schema cannot say. @throws GatewayError why they are not this caller's to give */
  readonly check?: (args: JsonObject, context: CallContext) => void;
  /** Where the effect depends on the arguments (a fetch with GET or POST); beats `effect`. */
  readonly effectOf?: (args: JsonObject) => Effect;
  readonly repeat: Repeat;
  /** Waits for a person's approval before it runs. */
  readonly sensitive: boolean;
  /** Writes with equal `service` in one turn run in call order (CHAT-10). */
  readonly service: string;
  /** Where the service depends on the call (a session's workspace); beats `service`. */
  readonly serviceOf?: (context: CallContext) => string;
  /** Of native tools: models are told of it in chats without a session, too. */
  readonly needsNoSession?: boolean;
  /** Writes that reach people or places outside the tenant's own services (mail, sms, `fetch` POST). */
  readonly outward?: boolean;
  /** Credential names that must be present before the model is called (BLIND-5). */
  readonly requiredCredentials: readonly string[];
  /** Acts with the user's own access to something elsewhere, which has to be given first (`ToolAdapter.userClient`). */
  readonly actsForUser?: boolean;
  /** Milliseconds for one attempt; absent: the tenant's `tool_timeout_ms`. */
  readonly timeoutMs?: number;
  /** Its adapter ends an attempt at the time limit by itself and says how it ended; the dispatcher waits a moment longer. */
  readonly endsInTime?: boolean;
  /** Sends in all, the first included; absent: 1. */
  readonly maxAttempts?: number;
  /** Tools that read outside content make later outward writes need approval (design "Approval"). */
  readonly outputTrust: "own" | "outside";
  /** Which of its versions this is; a call that was taken on for it keeps to it. */
  readonly version?: string;
  /** SHA-256 of the definition: an approval is for this hash only. */
  readonly hash: string;
}

/** A plugin of VCP, of the tenant or on a node of its own: it understands VCP's own words, and answers in VCP's form. */
export function isVcpPlugin({ kind, distributed }: Pick<Tool, "kind" | "distributed">): boolean {
  return kind === "VCP" || distributed !== undefined;
}
