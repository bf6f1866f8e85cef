/** Parts of SQL about sessions and the room in their workspaces, for session `s` of tenant `t`. */
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { mostWorkspaceFiles } from "@toolyard/core/ports/sessions";
import { deliveredSession } from "../schema/schedules.ts";
import { now, setting, underCaps, untilWoken } from "./fragments.ts";

/** Goes on by itself, now or later. */
const isUnderWay = (call: string): string =>
  `(${call}.state = 'running' OR ${call}.state = 'queued' AND COALESCE(${call}.run_at, 0) < ${untilWoken})`;

/**
 * A session that a schedule or a call may still deliver to by itself is not idle, however long that takes, and the end
 * of such a call counts as a use of it: what it comes to would be told to nobody. One that waits for a person keeps
 * none, nor does a run of which nothing else is under way: it may wait for ever. The plus takes the column's affinity,
 * which would keep SQLite from the index.
 */
export const isIdle = (session: string, idleMs: string): string => `(${session}.last_used_at < ${now} - ${idleMs}
  AND NOT EXISTS (SELECT 1 FROM schedules AS keeping WHERE keeping.tenant = ${session}.tenant
    AND keeping.${deliveredSession} = +${session}.id AND keeping.next_at IS NOT NULL)
  AND NOT EXISTS (SELECT 1 FROM calls AS coming WHERE coming.tenant = ${session}.tenant
    AND coming.session_id = ${session}.id AND coming.delivery = 'due'
    AND (${isUnderWay("coming")} OR coming.finished_at >= ${now} - ${idleMs}
      OR coming.state = 'queued' AND EXISTS (SELECT 1 FROM calls AS below WHERE below.tenant = coming.tenant
        AND below.session_id = coming.session_id AND below.root_id = COALESCE(coming.root_id, coming.id)
        AND ${isUnderWay("below")}))))`;

export const isExpired = underCaps(
  (caps) => `(s.expired_at IS NOT NULL OR ${isIdle("s", setting("session_idle_ms", caps))})`,
);

export const usedBytes = `(SELECT COALESCE(SUM(used.bytes), 0) FROM workspace_files AS used
  WHERE used.tenant = s.tenant AND used.session_id = s.id)`;

export const usedFiles = `(SELECT COUNT(*) FROM workspace_files AS used
  WHERE used.tenant = s.tenant AND used.session_id = s.id)`;

/** What open uploads may still bring. */
export const announcedBytes = `(SELECT COALESCE(SUM(open.bytes), 0) FROM workspace_uploads AS open
  WHERE open.tenant = s.tenant AND open.session_id = s.id AND open.settled_at IS NULL)`;

/** A file is counted without what it replaces. */
export const usedBesides = (
  path: string,
): string => `(SELECT COALESCE(SUM(others.bytes), 0) FROM workspace_files AS others
  WHERE others.tenant = s.tenant AND others.session_id = s.id AND others.path <> ${path})`;

/** A file may replace another where there are as many as may be. */
export const hasPlaceFor = (path: string): string => `(SELECT COUNT(*) FROM workspace_files AS others
  WHERE others.tenant = s.tenant AND others.session_id = s.id AND others.path <> ${path}) < ${mostWorkspaceFiles}`;

export const touchSession = underCaps(
  (caps) => `UPDATE sessions AS s SET last_used_at = ${now} FROM tenants AS t
  WHERE t.id = ?1 AND s.id = ?2 AND s.tenant = ?1 AND NOT ${isExpired(caps)}`,
);

export function noSession(id: string): GatewayError {
  return new GatewayError("session_not_found", `There is no session '${id}'.`, { param: "session_id" });
}

export function expiredSession(id: string): GatewayError {
  return new GatewayError(
    "session_expired",
    `Session '${id}' was idle for too long (setting 'session_idle_ms'); start a new one.`,
    { param: "session_id" },
  );
}
