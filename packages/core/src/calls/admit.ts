/**
 * The one way in. Whatever a request wants, this batch proves who it is, counts it, reserves what it
 * will hold and records it, in one round trip (design "Round-trip budget").
 */
import { setTimeout as sleep } from "node:timers/promises";
import { overBudget } from "../budgets/budget.ts";
import type { Presented } from "../callers/authenticate.ts";
import { hasScope, type Caller, type Scope } from "../callers/caller.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { AdmitInput, AdmitResult, Principal } from "../ports/calls.ts";
import type { TenantConfig } from "../tenant-config.ts";
import { sessionExpired, sessionNotFound } from "./own-session.ts";

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
 * `concurrency_limited`, `budget_exceeded`; the last three with `retryAfterMs`
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
  refuseSession(result, input.sessionId);
  refuseOverLimit(result);
  const loading = deps.configs.get(result.tenant.id, result.tenant.configVersion);
  const config = loading instanceof Promise ? await loading : loading;
  // What was known before is as old as it was.
  if (input.principal.kind === "key" && input.known === undefined) {
    deps.configs.rememberCaller(input.principal.hash, result.tenant.configVersion, result.caller);
  }
  return { caller: result.caller, config, result };
}

interface Who {
  readonly tenant: string;
  readonly principal: Principal;
}

interface Identified {
  readonly caller: Caller;
  readonly config: TenantConfig;
}

/**
 * Who asks and with which configuration, before the admission that records the call. Costs nothing
 * where this process has seen the key at the version it knows; the admission's
 * `expectedConfigVersion` makes sure that it still holds, and nobody is refused on old knowledge.
 * @throws GatewayError `permission_denied` where the caller lacks one of `scopes`
 */
export function identify(deps: CoreDeps, who: Who, scopes: readonly Scope[]): Identified | Promise<Identified> {
  const { tenant, principal } = who;
  const config = deps.configs.peek(tenant);
  const caller = config === undefined ? undefined : rememberedCaller(deps, principal, config.version);
  if (config !== undefined && caller !== undefined && scopes.every((scope) => hasScope(caller, scope))) {
    return { caller, config };
  }
  return identifyAnew(deps, who, scopes);
}

async function identifyAnew(deps: CoreDeps, { tenant, principal }: Who, scopes: readonly Scope[]): Promise<Identified> {
  const fresh = await admit(deps, { tenant, principal, limits: { countRequest: false } }, { scope: null });
  for (const scope of scopes) requireScope(fresh.caller, scope);
  return fresh;
}

/**
 * Once more, of somebody whose answer goes on for long: who may no longer ask is told nothing more. Counts as no request.
 * @throws GatewayError as `admit`; `invalid_token` where what was presented has run out
 */
export async function admitAgain(deps: CoreDeps, presented: Presented, options: AdmitOptions): Promise<Admitted> {
  const { tenant, principal, until } = presented;
  if (until !== undefined && deps.clock.now() >= until) {
    throw new GatewayError("invalid_token", "The token has expired meanwhile; ask again with another one.", {
      param: "authorization",
    });
  }
  return admit(deps, { tenant, principal, limits: { countRequest: false } }, options);
}

/** Admissions in vain, each because the configuration had changed since it was read. */
const mostStale = 40;
const staleWaitMs = 10;

/**
 * Before the next attempt at an admission that came out `stale_config`: at once, and where that happens again and
 * again, later each time, so that many at once let each other by.
 * @param stale how often it did so before
 * @throws GatewayError `conflict` where the configuration does not come to rest
 */
export async function afterStale(stale: number): Promise<void> {
  if (stale >= mostStale) {
    throw new GatewayError("conflict", "The tenant's configuration keeps changing; try again.", {
      retryAfterMs: 1_000,
    });
  }
  if (stale > 2) await sleep(Math.random() * staleWaitMs * stale);
}

function rememberedCaller(deps: CoreDeps, principal: Principal, version: number): Caller | undefined {
  return principal.kind === "known" ? principal.caller : deps.configs.callerOf(principal.hash, version);
}

export function requireScope(caller: Caller, scope: Scope): void {
  if (!hasScope(caller, scope)) {
    throw new GatewayError("permission_denied", `This key lacks the scope '${scope}'.`, { param: scope });
  }
}

function refuseSession({ session, settings }: AdmitResult, id: string | undefined): void {
  if (id === undefined) return;
  if (session?.state === "expired") throw sessionExpired(id, settings);
  if (session?.state === "foreign") {
    throw sessionNotFound(id);
  }
}

/** Where the limit that was met is set: a key has its own beside the tenant's setting. */
export function limitOf(name: "requests_per_minute" | "concurrent_requests", scope: string): string {
  return scope === "key" ? `'${name}' of the key` : `setting '${name}'`;
}

function refuseOverLimit({ outcome, rate, settings }: AdmitResult): void {
  if (outcome.kind === "rate_limited") {
    throw new GatewayError(
      "rate_limited",
      `More than ${rate.limit} requests per minute for this ${outcome.scope}; ${limitOf("requests_per_minute", outcome.scope)}.`,
      { retryAfterMs: rate.resetMs, extra: { scope: outcome.scope, limit: rate.limit } },
    );
  }
  if (outcome.kind === "concurrency_limited") {
    const tools = outcome.scope === "tools";
    throw new GatewayError(
      "concurrency_limited",
      tools
        ? `${settings.concurrent_tool_calls} tool calls of this tenant are running already; setting 'concurrent_tool_calls'.`
        : `Too many requests of this ${outcome.scope} are running already; ${limitOf("concurrent_requests", outcome.scope)}.`,
      { retryAfterMs: 1_000, extra: { scope: outcome.scope } },
    );
  }
  if (outcome.kind === "over_budget") throw overBudget("budget_exceeded", outcome.refusal);
}
