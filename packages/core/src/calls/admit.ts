/**
 * The one way in. Whatever a request wants, this batch proves who it is, counts it, reserves what it
 * will hold and records it, in one round trip (design "Round-trip budget").
 */
import { hasScope, type Caller, type Scope } from "../callers/caller.ts";
import type { CoreDeps } from "../deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { AdmitInput, AdmitResult } from "../ports/repos.ts";
import type { TenantConfig } from "../tenant-config.ts";

export interface Admitted {
  readonly caller: Caller;
  readonly config: TenantConfig;
  readonly result: AdmitResult;
}

export interface AdmitOptions {
  readonly scope: Scope | null;
}

/**
 * @throws GatewayError `invalid_api_key`, `tenant_suspended`, `permission_denied`, `rate_limited`,
 * `concurrency_limited`; the last two with `retryAfterMs`
 */
export async function admit(deps: CoreDeps, input: AdmitInput, options: AdmitOptions): Promise<Admitted> {
  const result = await deps.repos.calls.admit(input);
  if (result.tenant.status === "suspended") {
    throw new GatewayError(
      "tenant_suspended",
      "This tenant is suspended; the operator can lift that with PATCH /v1/tenants/{id}.",
    );
  }
  if (options.scope !== null) requireScope(result.caller, options.scope);
  refuseOverLimit(result);
  const config = await deps.configs.get(result.tenant.id, result.tenant.configVersion);
  return { caller: result.caller, config, result };
}

export function requireScope(caller: Caller, scope: Scope): void {
  if (!hasScope(caller, scope)) {
    throw new GatewayError("permission_denied", `This key lacks the scope '${scope}'.`, { param: scope });
  }
}

function refuseOverLimit({ outcome, rate, settings }: AdmitResult): void {
  if (outcome.kind === "rate_limited") {
    throw new GatewayError(
      "rate_limited",
      `More than ${rate.limit} requests per minute for this ${outcome.scope}; setting 'requests_per_minute'.`,
      { retryAfterMs: rate.resetMs, extra: { scope: outcome.scope } },
    );
  }
  if (outcome.kind === "concurrency_limited") {
    const tools = outcome.scope === "tools";
    throw new GatewayError(
      "concurrency_limited",
      tools
        ? `${settings.concurrent_tool_calls} tool calls of this tenant are running already; setting 'concurrent_tool_calls'.`
        : `Too many requests of this ${outcome.scope} are running already; setting 'concurrent_requests'.`,
      { retryAfterMs: 1_000, extra: { scope: outcome.scope } },
    );
  }
}
