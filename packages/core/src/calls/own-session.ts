/**
 * Whose session it is, asked where work begins in one that no request of now has named: by schedules, replays and
 * calls that were queued. The rule is that of the admission: a session is its caller's, and those who manage the
 * tenant see all of it. Clients choose the ids, so they can be guessed, and one that is free today may be somebody's
 * tomorrow.
 */
import { hasScope, type Caller } from "../callers/caller.ts";
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { Session } from "../ports/sessions.ts";
import type { TenantSettings } from "../tenants/settings.ts";
import type { Call } from "./call.ts";

/** @throws GatewayError `session_not_found`, the same for one that there is not and somebody else's */
export function requireOwnSession(
  caller: Caller,
  { id, owner }: { readonly id: string; readonly owner: string },
  param = "session_id",
): void {
  if (owner !== caller.id && !hasScope(caller, "manage")) throw sessionNotFound(id, param);
}

/**
 * As `enterSession`, where what comes of the work is for the session alone.
 * @throws GatewayError `session_not_found`, `session_expired`
 */
export async function enterLiveSession(
  deps: Pick<CoreDeps, "repos">,
  context: Pick<CallContext, "tenant" | "caller" | "config">,
  id: string,
  param = "session_id",
): Promise<void> {
  const { expired } = await enterSession(deps, context, id, param);
  if (expired) throw sessionExpired(id, context.config.settings, param);
}

/**
 * Begins it where there is none, so that it is nobody else's from then on; else it counts as used, unless
 * it has expired: then only what works on no workspace goes on.
 * @throws GatewayError `session_not_found`
 */
export async function enterSession(
  { repos }: Pick<CoreDeps, "repos">,
  { tenant, caller, config }: Pick<CallContext, "tenant" | "caller" | "config">,
  id: string,
  param?: string,
): Promise<Session> {
  const { session_idle_ms: idleMs } = config.settings;
  const session = await repos.sessions.touch(tenant, id, caller.id, idleMs).catch((thrown: unknown) => {
    // Another tenant's.
    throw thrown instanceof GatewayError && thrown.code === "session_not_found" ? sessionNotFound(id, param) : thrown;
  });
  requireOwnSession(caller, { id, owner: session.callerId }, param);
  return session;
}

/** Was that made in the caller's session as it is now, and not in one of its name that was deleted since? */
export async function isOfSession(
  { repos }: Pick<CoreDeps, "repos">,
  { tenant, sessionId }: Pick<CallContext, "tenant" | "sessionId">,
  made: Pick<Call, "sessionId" | "createdAt">,
): Promise<boolean> {
  if (sessionId === undefined || made.sessionId !== sessionId) return false;
  const session = await repos.sessions.get(tenant, sessionId);
  return session !== undefined && session.createdAt <= made.createdAt;
}

export function sessionExpired(
  id: string,
  { session_idle_ms: idleMs }: Pick<TenantSettings, "session_idle_ms">,
  param = "session_id",
): GatewayError {
  return new GatewayError(
    "session_expired",
    `Session '${id}' was idle for longer than ${idleMs} ms (setting 'session_idle_ms'); start a new one.`,
    { param },
  );
}

export function sessionNotFound(id: string, param = "session_id"): GatewayError {
  const message = `There is no session '${id}' of this caller's; a new one needs a name that nobody else has taken.`;
  return new GatewayError("session_not_found", message, { param });
}
