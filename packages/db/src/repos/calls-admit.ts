/**
 * `admit`: who asks, may they, is there room, and the row that says so, in one batch (design "Round-trip
 * budget"). The first statement decides and writes its decision into the tenant's row of `rate_windows`;
 * each later one acts only where it finds that decision made for its own request. So nothing is computed
 * twice, a refusal leaves nothing behind, and since writers come one after another, limits are exact.
 *
 * Sent twice (a reply was lost), the batch finds its own call row and neither counts nor writes again.
 */
import { hasScope, roles, scopes, type Caller, type Role, type Scope } from "@toolyard/core/callers/caller";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { newId } from "@toolyard/core/ids";
import type { AdmitInput, AdmitResult, KeptTurn, NewCall } from "@toolyard/core/ports/calls";
import type { TenantSettings, SettingsCaps } from "@toolyard/core/tenants/settings";
import { toRfc3339 } from "@toolyard/core/time";
import type { Database, SqlValue, Statement, StatementResult } from "../database.ts";
import { brokeAfterWrite, mattersToRepetition } from "../schema/calls.ts";
import { parseSettings } from "../settings.ts";
import { openBreakers, toOpenBreakers } from "./breakers.ts";
import { overBudget, toRefusal } from "./budget-fragments.ts";
import { ended, endOfNewRow, insertAdmittedCall, keyLifetimeMs, newRowArgs, type CallSource } from "./calls-rows.ts";
import { admitPlain, isPlain, type PlainAdmission } from "./calls-admit-plain.ts";
import { hearing, now, setting, toListeners, underCaps, windowMs, windowStart } from "./fragments.ts";
import { isIdle } from "./session-fragments.ts";
import { readAll, readFirst } from "./rows.ts";

/** Results that one request takes along; more wait for the next one. */
const dueAtOnce = 50;

type Row = StatementResult["rows"][number];

// Arguments of `decide`: ?1 tenant, ?2 hash of the key, ?3 id of a caller who is known, ?4 this request,
// ?5 is it counted, ?6 expected config version, ?7 session, ?8 does a caller who is known manage the tenant,
// of the settings at that version ?9 requests a minute, ?10 chats, ?11 tool calls, ?12 idle time of sessions;
// of the call: ?13 route, ?14 idempotency key, ?15 age of retries to attach to, ?16 input hash, ?17 the call
// it supersedes, ?18 is it a running chat, ?19 slots wanted, ?20 is a slot required, ?21 attach only to what
// broke off after a write had begun, ?22 end user, ?23 tokens and ?24 micro-units that it reserves.

const sameContent = `tenant = ?1 AND caller_id = who.caller_id AND input_hash = ?16 AND route = ?13
  AND idempotency_key IS NULL AND parent_id IS NULL AND id IS NOT ?17`;

/** Looked up only where something was found, among what the caller has asked since. */
const isNewest = `NOT EXISTS (SELECT 1 FROM calls WHERE ${sameContent} AND created_at > found.created_at)`;

/**
 * Which earlier call the request belongs to: by its key, else by its content, for retries that say so and
 * for those that say nothing. Most clients repeat in silence what broke; that must not write twice.
 */
const existing = `CASE
  WHEN ?14 IS NOT NULL THEN (
    SELECT id FROM calls
    WHERE tenant = ?1 AND caller_id = who.caller_id AND route = ?13 AND idempotency_key = ?14
      AND created_at > who.now - ${keyLifetimeMs} AND NOT (id IS ?17 AND state IN ${ended}))
  WHEN ?15 IS NOT NULL AND ?21 THEN (
    SELECT id FROM (
      SELECT id, state, error, created_at FROM calls
      WHERE ${sameContent} AND created_at > who.now - ?15 AND ${mattersToRepetition}
      ORDER BY created_at DESC LIMIT 1) AS found
    WHERE ${brokeAfterWrite} AND ${isNewest})
  WHEN ?15 IS NOT NULL THEN (
    SELECT id FROM (
      SELECT id, created_at FROM calls
      WHERE ${sameContent} AND created_at > who.now - ?15 AND ${mattersToRepetition}
      UNION ALL
      SELECT id, created_at FROM calls INDEXED BY calls_running
      WHERE ${sameContent} AND created_at > who.now - ?15 AND state = 'running'
      ORDER BY created_at DESC LIMIT 1) AS found
    WHERE ${isNewest})
  END`;

/** Running calls of the tenant; leases that have run out hold nothing. */
const running = (what: string, which = "true"): string => `(
  SELECT ${what} FROM calls WHERE tenant = ?1 AND state = 'running' AND lease_until > who.now AND ${which})`;

/** Counted only where there is something to be held against. */
const standing = `
  CASE WHEN ?18 THEN ${running("COUNT(*)", "kind = 'chat'")} END AS chats,
  CASE WHEN ?18 AND who.key_chats IS NOT NULL
    THEN ${running("COUNT(*)", "kind = 'chat' AND caller_id = who.caller_id")} END AS own_chats,
  CASE WHEN ?19 IS NOT NULL THEN ${running("COALESCE(SUM(slots), 0)")} END AS held_slots`;

const countInWindow = (scope: string): string => `(
  SELECT count FROM rate_windows WHERE tenant = ?1 AND scope = ${scope} AND window_start = asked.window_start)`;

const verdict = (hasCall: boolean): string => `CASE
  WHEN asked.status <> 'active' THEN 'tenant'
  WHEN EXISTS (SELECT 1 FROM calls WHERE tenant = ?1 AND id = ?4) THEN 'repeated'
  WHEN ?6 IS NOT NULL AND asked.config_version <> ?6 THEN 'stale_config'
  WHEN ?5 AND asked.key_requests <= ${countInWindow("'key:' || asked.caller_id")} THEN 'rate:key'
  WHEN ?5 AND asked.tenant_requests <= ${countInWindow("'tenant'")} THEN 'rate:tenant'
  ${hasCall ? "WHEN asked.existing IS NOT NULL THEN 'existing'" : ""}
  WHEN ?7 IS NOT NULL AND EXISTS (
    SELECT 1 FROM sessions WHERE id = ?7
      AND (tenant <> ?1 OR (caller_id <> asked.caller_id AND NOT asked.manages)
        OR expired_at IS NOT NULL OR ${isIdle("sessions", "asked.session_idle_ms")}))
    THEN 'session'
  ${
    hasCall
      ? `WHEN asked.own_chats >= asked.key_chats THEN 'chats:key'
         WHEN asked.chats >= asked.tenant_chats THEN 'chats:tenant'
         WHEN ?20 AND asked.held_slots >= asked.tool_calls THEN 'tools'
         WHEN asked.over_budget IS NOT NULL THEN 'budget'`
      : ""
  }
  ELSE 'admitted' END`;

/** The budget that has no room for what the call reserves. */
const overAnyBudget = overBudget({
  tenant: "?1",
  caller: "who.caller_id",
  user: "?22",
  tokens: "?23",
  micros: "?24",
  id: "?4",
});

const limit = (known: string, ...[name, caps]: Parameters<typeof setting>): string =>
  `COALESCE(${known}, ${setting(name, caps)})`;

/**
 * A decision about the request, unless nobody asks: then no row is written. A key without a limit of its
 * own is counted with its tenant only.
 */
const decide = (hasCall: boolean, caps: SettingsCaps): string => `
WITH who AS (
  SELECT t.status, t.config_version, COALESCE(k.id, ?3) AS caller_id,
    COALESCE(?8, k.role = 'operator' OR EXISTS (SELECT 1 FROM json_each(k.scopes) WHERE value = 'manage')) AS manages,
    k.requests_per_minute AS key_requests,
    ${limit("?9", "requests_per_minute", caps)} AS tenant_requests,
    k.concurrent_requests AS key_chats,
    ${limit("?10", "concurrent_requests", caps)} AS tenant_chats,
    ${limit("?11", "concurrent_tool_calls", caps)} AS tool_calls,
    ${limit("?12", "session_idle_ms", caps)} AS session_idle_ms,
    ${now} AS now,
    ${windowStart} AS window_start
  FROM tenants AS t
  LEFT JOIN api_keys AS k
    ON k.hash = ?2 AND k.tenant = t.id AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > ${now})
  WHERE t.id = ?1 AND COALESCE(k.id, ?3) IS NOT NULL
),
asked AS MATERIALIZED (
  SELECT who.*${hasCall ? `, ${standing}, ${existing} AS existing, CASE WHEN ?23 > 0 OR ?24 > 0 THEN ${overAnyBudget} END AS over_budget` : ""} FROM who
),
decision AS MATERIALIZED (
  SELECT caller_id, key_requests, window_start, ${verdict(hasCall)} AS verdict,
    ${hasCall ? "existing, MAX(0, MIN(?19, tool_calls - held_slots)) AS slots, over_budget" : "NULL AS existing, NULL AS slots, NULL AS over_budget"}
  FROM asked
)
INSERT INTO rate_windows
  (tenant, scope, window_start, count, request, verdict, caller_id, existing, slots, over_budget)
SELECT ?1, CASE scope.of_key WHEN 0 THEN 'tenant' ELSE 'key:' || caller_id END, window_start,
  ?5 AND verdict IN ('admitted', 'existing'), ?4, verdict, caller_id, existing, slots, over_budget
FROM decision CROSS JOIN (SELECT 0 AS of_key UNION ALL SELECT 1) AS scope
WHERE of_key = 0 OR (key_requests IS NOT NULL AND ?5)
ON CONFLICT (tenant, scope) DO UPDATE SET
  count = excluded.count + CASE WHEN window_start = excluded.window_start THEN count ELSE 0 END,
  window_start = excluded.window_start, request = excluded.request, verdict = excluded.verdict,
  caller_id = excluded.caller_id, existing = excluded.existing, slots = excluded.slots,
  over_budget = excluded.over_budget`;

const decideCall = underCaps((caps) => decide(true, caps));
const decideRequest = underCaps((caps) => decide(false, caps));

/** Joins the decision made for this request; `?1` is the tenant. */
const decided = (request: string): string =>
  `decided.tenant = ?1 AND decided.scope = 'tenant' AND decided.request = ${request}`;

/** The key leaves a call that is too old to own it, or that this one replaces. */
const releaseKey = `UPDATE calls SET idempotency_key = NULL
  WHERE tenant = ?1 AND route = ?3 AND idempotency_key = ?4
    AND caller_id = (SELECT caller_id FROM rate_windows AS decided
      WHERE ${decided("?2")} AND decided.verdict = 'admitted')
    AND (created_at <= ${now} - ${keyLifetimeMs} OR (id IS ?5 AND state IN ${ended}))`;

const touchSession = `INSERT INTO sessions (id, tenant, caller_id, created_by, created_at, last_used_at)
  SELECT ?3, ?1, decided.caller_id, ?2, ${now}, ${now} FROM rate_windows AS decided
  WHERE ${decided("?2")} AND decided.verdict IN ('admitted', 'repeated')
  ON CONFLICT (id) DO UPDATE SET last_used_at = excluded.last_used_at WHERE tenant = excluded.tenant`;

/** The decision, with the row of a key that has a limit of its own. */
const readDecision = `
SELECT decided.verdict, ${hearing}, ${openBreakers}, decided.existing, decided.over_budget, decided.count, own.count AS key_count,
  decided.window_start + ${windowMs} - ${now} AS reset_ms,
  CASE decided.verdict WHEN 'repeated' THEN (SELECT slots FROM calls WHERE tenant = ?1 AND id = ?2) ELSE decided.slots END AS slots,
  CASE decided.verdict WHEN 'stale_config' THEN (SELECT config_version FROM tenants WHERE id = ?1) END AS config_version,
  CASE WHEN own.count IS NOT NULL THEN (SELECT requests_per_minute FROM api_keys WHERE hash = ?3) END AS key_requests
FROM rate_windows AS decided
LEFT JOIN rate_windows AS own
  ON own.tenant = ?1 AND own.scope = 'key:' || decided.caller_id AND own.window_start = decided.window_start
WHERE ${decided("?2")}`;

/** Who asks, for a process that does not know it as of now. */
const readCaller = `
SELECT t.config_version, t.settings, k.id AS key_id, k.role, k.scopes, k.tools, k.user_id, k.business_unit
FROM tenants AS t LEFT JOIN api_keys AS k ON k.hash = ?2 AND k.tenant = t.id
WHERE t.id = ?1`;

const readCall = "SELECT * FROM calls WHERE tenant = ?1 AND id = ?2";

const readTurns = `SELECT key, kept_turns.caller_id, sealed, expires_at FROM rate_windows AS decided
  JOIN kept_turns ON kept_turns.tenant = ?1 AND kept_turns.caller_id = decided.caller_id
  WHERE ${decided("?2")} AND key IN (SELECT value FROM json_each(?3)) AND expires_at > ${now}`;

const readSession = underCaps(
  (caps) => `SELECT CASE
    WHEN s.id IS NULL OR s.created_by = ?2 THEN 'new'
    WHEN s.tenant <> ?1 THEN 'foreign'
    WHEN s.expired_at IS NOT NULL OR ${isIdle("s", setting("session_idle_ms", caps))} THEN 'expired'
    ELSE 'live' END AS state, s.caller_id
  FROM tenants AS t LEFT JOIN sessions AS s ON s.id = ?3 WHERE t.id = ?1`,
);

/**
 * Of this session only: what an older one of its name was to be given, which was deleted, is not told to it. The plus
 * keeps SQLite with the index of the session.
 */
const readDue = `SELECT * FROM calls
  WHERE tenant = ?1 AND session_id = ?2 AND delivery = 'due' AND state IN ${ended}
    AND +created_at >= (SELECT begun.created_at FROM sessions AS begun WHERE begun.id = ?2)
  ORDER BY finished_at, id LIMIT ${dueAtOnce}`;

interface Plan {
  readonly statements: Statement[];
  /** Where in the batch the reads are; some only where they are asked for. */
  readonly decision: number;
  readonly caller?: number;
  readonly turns?: number;
  readonly session?: number;
  readonly due?: number;
}

/** What is known of caller and tenant, from before or from this batch. */
interface Known {
  readonly configVersion: number;
  readonly caller: Caller;
  readonly settings: TenantSettings;
}

/** @throws GatewayError `invalid_api_key`, `not_found` for a tenant that does not exist, `database_unavailable` */
export async function admit(source: CallSource, input: AdmitInput, caps: SettingsCaps): Promise<AdmitResult> {
  if (!isPlain(input)) return decideAndAdmit(source, input, caps);
  const { group, place } = admitPlain(source.database, input);
  const row = await group.counted;
  if (row === undefined) return decideAndAdmit(source, input, caps);
  // As if those admitted together had come one after the other.
  return toUnhindered(input, row, group.calls.length - place);
}

/** @param after so many of those counted with it came after this request */
function toUnhindered(input: PlainAdmission, row: Row, after: number): AdmitResult {
  const { caller, settings } = input.known;
  return {
    tenant: { id: input.tenant, status: "active", configVersion: input.expectedConfigVersion },
    settings,
    caller,
    outcome: { kind: "admitted", slots: input.slots?.wanted ?? input.call.slots },
    rate: rateOf(row, settings, Number(row["count"]) - after),
    turns: [],
    ...toListeners(row),
    ...toOpenBreakers(row),
  };
}

async function decideAndAdmit(source: CallSource, input: AdmitInput, caps: SettingsCaps): Promise<AdmitResult> {
  const { database, reader } = source;
  const plan = planBatch(input, caps);
  // Without a call row nothing tells a second sending from a second request, and it would count twice.
  const repeatable = input.call !== undefined || !input.limits.countRequest;
  const results = await database.batch(plan.statements, { repeatable });
  const rowsAt = (index: number | undefined): readonly Row[] =>
    index === undefined ? [] : (results[index]?.rows ?? []);
  const [decision] = rowsAt(plan.decision);
  if (decision === undefined) throw await nobody(database, input);
  const known = knownOf(input, decision, { row: rowsAt(plan.caller)[0], caps });
  const [session] = rowsAt(plan.session);
  const sessionState = session === undefined ? undefined : sessionStateOf(session, known.caller);
  return {
    tenant: {
      id: input.tenant,
      status: decision["verdict"] === "tenant" ? "suspended" : "active",
      configVersion: known.configVersion,
    },
    settings: known.settings,
    caller: known.caller,
    outcome: await outcomeOf(source, input, decision),
    rate: rateOf(decision, known.settings),
    turns: rowsAt(plan.turns).map(toKeptTurn),
    ...toListeners(decision),
    ...toOpenBreakers(decision),
    ...(sessionState === undefined
      ? {}
      : {
          session: {
            state: sessionState,
            due: sessionState === "foreign" ? [] : readAll(reader, dueIn(results, plan)),
          },
        }),
  };
}

const dueIn = (results: readonly StatementResult[], { due }: Plan): StatementResult | undefined =>
  due === undefined ? undefined : results[due];

function planBatch(input: AdmitInput, caps: SettingsCaps): Plan {
  const { tenant, principal, call, sessionId, known } = input;
  const request = call?.id ?? newId("request");
  const statements: Statement[] = [decisionStatement(input, request, caps)];
  const add = (sql: string, args: readonly SqlValue[]): number => statements.push({ sql, args }) - 1;
  // Before the call, which must not be older than its session.
  if (sessionId !== undefined) add(touchSession, [tenant, request, sessionId]);
  if (call !== undefined) {
    if (call.idempotencyKey !== null) {
      add(releaseKey, [tenant, request, call.route, call.idempotencyKey, input.supersedes ?? null]);
    }
    add(insertAdmittedCall, newRowArgs(tenant, null, call));
    statements.push(...endOfNewRow(tenant, call));
  }
  const hash = principal.kind === "key" ? principal.hash : null;
  return {
    statements,
    decision: add(readDecision, [tenant, request, hash]),
    ...(known === undefined ? { caller: add(readCaller, [tenant, hash]) } : {}),
    ...(input.turnKeys === undefined || input.turnKeys.length === 0
      ? {}
      : { turns: add(readTurns, [tenant, request, JSON.stringify(input.turnKeys)]) }),
    ...(sessionId === undefined
      ? {}
      : { session: add(readSession(caps), [tenant, request, sessionId]), due: add(readDue, [tenant, sessionId]) }),
  };
}

function knownOf(
  { principal, known, expectedConfigVersion }: AdmitInput,
  decision: Row,
  read: { readonly row: Row | undefined; readonly caps: SettingsCaps },
): Known {
  if (known !== undefined) {
    return { ...known, configVersion: Number(decision["config_version"] ?? expectedConfigVersion) };
  }
  const row = read.row ?? {};
  return {
    configVersion: Number(row["config_version"]),
    caller: principal.kind === "known" ? principal.caller : keyCaller(row),
    settings: settingsOf(String(row["settings"]), read.caps),
  };
}

function decisionStatement(input: AdmitInput, request: string, caps: SettingsCaps): Statement {
  const { principal, call, known } = input;
  const caller = principal.kind === "known" ? principal.caller : known?.caller;
  const args: SqlValue[] = [
    input.tenant,
    principal.kind === "key" ? principal.hash : null,
    principal.kind === "known" ? principal.caller.id : null,
    request,
    input.limits.countRequest ? 1 : 0,
    input.expectedConfigVersion ?? null,
    input.sessionId ?? null,
    caller === undefined ? null : hasScope(caller, "manage") ? 1 : 0,
    known?.settings.requests_per_minute ?? null,
    known?.settings.concurrent_requests ?? null,
    known?.settings.concurrent_tool_calls ?? null,
    known?.settings.session_idle_ms ?? null,
  ];
  if (call === undefined) return { sql: decideRequest(caps), args };
  return { sql: decideCall(caps), args: [...args, ...callArgs(input, call)] };
}

function callArgs({ slots, attach, supersedes }: AdmitInput, call: NewCall): readonly SqlValue[] {
  return [
    call.route,
    call.idempotencyKey,
    attach?.withinMs ?? null,
    call.inputHash,
    supersedes ?? null,
    call.kind === "chat" && call.state === "running" ? 1 : 0,
    slots?.wanted ?? null,
    slots?.required === true ? 1 : 0,
    attach?.to === "broken_off" ? 1 : 0,
    call.userId,
    // A call that waits for a person may wait for long; the budget is asked when it is claimed.
    call.state === "input_required" ? 0 : call.reserved.tokens,
    call.state === "input_required" ? 0 : call.reserved.micros,
  ];
}

const readExpired = `SELECT expires_at FROM api_keys
  WHERE tenant = ?1 AND hash = ?2 AND revoked_at IS NULL AND expires_at <= ${now}`;

/** No decision was made: there is no such key, or no such tenant for somebody whom we know. */
async function nobody(database: Database, { principal, tenant }: AdmitInput): Promise<GatewayError> {
  if (principal.kind !== "key") {
    const remedy = "GET /v1/tenants lists all, and the header 'x-toolyard-tenant' says which one is meant";
    return new GatewayError("not_found", `There is no tenant '${tenant}'; ${remedy}.`);
  }
  // Who has the whole secret may know when it ended. Only who is refused waits for this.
  const [expired] = await database.batch([{ sql: readExpired, args: [tenant, principal.hash] }], { readonly: true });
  const at = expired?.rows[0]?.["expires_at"];
  const problem =
    typeof at === "number"
      ? `expired at ${toRfc3339(at)}; make another one with POST /v1/api-keys.`
      : "does not exist or was revoked; check that it was copied whole.";
  return new GatewayError("invalid_api_key", `This API key ${problem}`, { param: "authorization" });
}

async function outcomeOf(
  { database, reader }: CallSource,
  { tenant, call }: AdmitInput,
  decision: Row,
): Promise<AdmitResult["outcome"]> {
  const { verdict } = decision;
  switch (verdict) {
    case "admitted":
    case "repeated":
      return { kind: "admitted", slots: Number(decision["slots"] ?? call?.slots ?? 0) };
    case "stale_config":
      return { kind: "stale_config" };
    case "tenant":
    case "session":
      return { kind: "refused", by: verdict };
    case "rate:key":
    case "rate:tenant":
      return { kind: "rate_limited", scope: verdict === "rate:key" ? "key" : "tenant" };
    case "chats:key":
    case "chats:tenant":
      return { kind: "concurrency_limited", scope: verdict === "chats:key" ? "key" : "tenant" };
    case "tools":
      return { kind: "concurrency_limited", scope: "tools" };
    case "budget":
      return { kind: "over_budget", refusal: toRefusal(decision["over_budget"]) };
    case "existing": {
      const args = [tenant, String(decision["existing"])];
      const [found] = await database.batch([{ sql: readCall, args }], { readonly: true });
      const existing = readFirst(reader, found);
      if (call !== undefined && existing !== undefined) {
        return { kind: "existing", call: existing, by: call.idempotencyKey === null ? "retry" : "key" };
      }
    }
  }
  throw new TypeError(`The admission of a request ended with '${String(verdict)}'.`);
}

/** The limit that is nearest, or that refused. */
function rateOf(decision: Row, settings: TenantSettings, count: unknown = decision["count"]): AdmitResult["rate"] {
  const resetMs = Math.max(0, Number(decision["reset_ms"]));
  const tenant = rate(settings.requests_per_minute, count);
  const { verdict, key_requests: keyRequests } = decision;
  if (typeof keyRequests !== "number" || verdict === "rate:tenant") return { ...tenant, resetMs };
  const key = rate(keyRequests, decision["key_count"]);
  return { ...(verdict === "rate:key" || key.remaining < tenant.remaining ? key : tenant), resetMs };
}

function rate(limit: number, count: unknown): { readonly limit: number; readonly remaining: number } {
  return { limit, remaining: Math.max(0, limit - Number(count ?? 0)) };
}

const settingsByText = new WeakMap<SettingsCaps, Map<string, TenantSettings>>();
const settingsKept = 1_000;

/** Parsed once for each text, not with every request. */
function settingsOf(text: string, caps: SettingsCaps): TenantSettings {
  let byText = settingsByText.get(caps);
  if (byText === undefined) settingsByText.set(caps, (byText = new Map<string, TenantSettings>()));
  const known = byText.get(text);
  if (known !== undefined) return known;
  const settings = parseSettings(text, caps);
  if (byText.size >= settingsKept) byText.clear();
  byText.set(text, settings);
  return settings;
}

function keyCaller(answer: Row): Caller {
  const { tools, user_id: userId, business_unit: businessUnit } = answer;
  return {
    kind: "key",
    id: String(answer["key_id"]),
    role: roles.find((role): role is Role => role === answer["role"]) ?? "member",
    scopes: textsOf(answer["scopes"]).filter(isScope),
    tools: tools === null ? null : textsOf(tools),
    ...(typeof userId === "string" ? { userId } : {}),
    ...(typeof businessUnit === "string" ? { businessUnit } : {}),
  };
}

function isScope(text: string): text is Scope {
  return scopes.some((scope) => scope === text);
}

/** What is no list of texts gives no rights. */
function textsOf(column: unknown): readonly string[] {
  const value: unknown = typeof column === "string" ? JSON.parse(column) : undefined;
  return Array.isArray(value) ? value.filter((part) => typeof part === "string") : [];
}

/** A session is its caller's; those who manage the tenant see all of it. The verdict says the same. */
function sessionStateOf(session: Row, caller: Caller): "new" | "live" | "expired" | "foreign" {
  const { state, caller_id: owner } = session;
  if (state === "new") return state;
  const isVisible = owner === caller.id || hasScope(caller, "manage");
  return isVisible && (state === "live" || state === "expired") ? state : "foreign";
}

function toKeptTurn(row: Row): KeptTurn {
  return {
    key: String(row["key"]),
    callerId: String(row["caller_id"]),
    sealed: String(row["sealed"]),
    expiresAt: Number(row["expires_at"]),
  };
}
