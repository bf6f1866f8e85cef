/** Passed down explicitly with every call; nothing reads it from the air. */
import type { Caller } from "./callers/caller.ts";
import type { TenantConfig } from "./tenant-config.ts";
import type { Redactor } from "./secrets/redactor.ts";
import type { RuntimeConfig } from "./blind/runtime-config.ts";
import type { RunPurse } from "./budgets/run-purse.ts";
import type { Span } from "./ports/traces.ts";

export interface CallContext {
  readonly tenant: string;
  readonly caller: Caller;
  /** The tenant's configuration at the version that `admit` returned. */
  readonly config: TenantConfig;
  readonly requestId: string;
  /** 32 hex digits, from `traceparent` or minted. */
  readonly traceId: string;
  /** What happens under this context is told of under it; undefined: nothing is traced. */
  readonly span?: Span | undefined;
  readonly sessionId?: string;
  /** What the agents that act under this context may still use, where they do so in one process. */
  readonly purse?: RunPurse | undefined;
  /** Knows the secret values of this call and replaces them wherever they appear. */
  readonly redactor: Redactor;
  /** Inline plugins and credentials of a trusted caller; never stored (BLIND-7). */
  readonly runtimeConfig?: RuntimeConfig;
}
