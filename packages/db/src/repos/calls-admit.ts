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
import type { AdmitInput, AdmitResult, KeptTurn, NewCall } from "@toolyard/core/ports/repos";
import type { TenantSettings } from "@toolyard/core/tenant-config";
import type { Database, SqlValue, Statement, StatementResult } from "../database.ts";
import { parseSettings } from "../settings.ts";
import { overBudget, toRefusal } from "./budget-fragments.ts";
import { ended, insertAdmittedCall, keyLifetimeMs, newRowArgs, toCall } from "./calls-rows.ts";
import { now, setting } from "./fragments.ts";

const windowMs = 60_000;
/** Results that one request takes along; more wait for the next one. */
const dueAtOnce = 50;

type Row = StatementResult["rows"][number];

// Arguments of `decide`: ?1 tenant, ?2 hash of the key, ?3 id of a caller who is known, ?4 this request,
// ?5 is it counted, ?6 expected config version, ?7 session, ?8 does a caller who is known manage the tenant;
// of the call: ?9 route, ?10 idempotency key, ?11 age of retries to attach to, ?12 input hash, ?13 the call
// it supersedes, ?14 is it a running chat, ?15 slots wanted, ?16 is a slot required, ?17 attach only to what
// broke off after a write had begun, ?18 end user, ?19 tokens and ?20 micro-units that it reserves.

/**
 * Which earlier call the request belongs to: by its key, else by its content, for retries that say so and
 * for those that say nothing. Most clients repeat in silence what broke; that must not write twice.
 */
const existing = `CASE
  WHEN ?10 IS NOT NULL THEN (
    SELECT id FROM calls
    WHERE tenant = ?1 AND caller_id = who.caller_id AND route = ?9 AND idempotency_key = ?10
      AND created_at > who.now - ${keyLifetimeMs} AND NOT (id IS ?13 AND state IN ${ended}))
  WHEN ?11 IS NOT NULL THEN (
    SELECT id FROM (
      SELECT id, state, error FROM calls
      WHERE tenant = ?1 AND caller_id = who.caller_id AND input_hash = ?12 AND route = ?9
        AND idempotency_key IS NULL AND parent_id IS NULL
        AND created_at > who.now - ?11 AND id IS NOT ?13
      ORDER BY created_at DESC LIMIT 1)
    WHERE NOT ?17 OR (state IN ('failed', 'cancelled')
      AND (error ->> '$.details.write_started' = 1 OR error ->> '$.code' = 'chat_interrupted')))
  END`;

/** Leases that have run out hold nothing. */
const running = `(
  SELECT
    COUNT(*) FILTER (WHERE kind = 'chat') AS chats,
    COUNT(*) FILTER (WHERE kind = 'chat'
      AND caller_id = COALESCE(?3, (SELECT id FROM api_keys WHERE hash = ?2))) AS own_chats,
    COALESCE(SUM(slots), 0) AS slots
  FROM calls WHERE tenant = ?1 AND state = 'running' AND lease_until > ${now})`;

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
        OR expired_at IS NOT NULL OR last_used_at < asked.now - asked.session_idle_ms))
    THEN 'session'
  ${
    hasCall
      ? `WHEN ?14 AND asked.own_chats >= asked.key_chats THEN 'chats:key'
         WHEN ?14 AND asked.chats >= asked.tenant_chats THEN 'chats:tenant'
         WHEN ?16 AND asked.slots >= asked.tool_calls THEN 'tools'
         WHEN asked.over_budget IS NOT NULL THEN 'budget'`
      : ""
  }
  ELSE 'admitted' END`;

/** The budget that has no room for what the call reserves. */
const overAnyBudget = overBudget({
  tenant: "?1",
  caller: "who.caller_id",
  user: "?18",
  tokens: "?19",
  micros: "?20",
  id: "?4",
});

/**
 * A decision about the request, unless nobody asks: then no row is written. A key without a limit of its
 * own is counted with its tenant only.
 */
const decide = (hasCall: boolean): string => `
WITH who AS MATERIALIZED (
  SELECT t.status, t.config_version, COALESCE(k.id, ?3) AS caller_id,
    COALESCE(?8, k.role = 'operator' OR EXISTS (SELECT 1 FROM json_each(k.scopes) WHERE value = 'manage')) AS manages,
    k.requests_per_minute AS key_requests,
    ${setting("requests_per_minute")} AS tenant_requests,
    k.concurrent_requests AS key_chats,
    ${setting("concurrent_requests")} AS tenant_chats,
    ${setting("concurrent_tool_calls")} AS tool_calls,
    ${setting("session_idle_ms")} AS session_idle_ms,
    ${now} AS now,
    ${now} - ${now} % ${windowMs} AS window_start
  FROM tenants AS t
  LEFT JOIN api_keys AS k
    ON k.hash = ?2 AND k.tenant = t.id AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > ${now})
  WHERE t.id = ?1 AND COALESCE(k.id, ?3) IS NOT NULL
),
asked AS MATERIALIZED (
  SELECT who.*${hasCall ? `, running.*, ${existing} AS existing, ${overAnyBudget} AS over_budget FROM who CROSS JOIN ${running} AS running` : " FROM who"}
),
decision AS MATERIALIZED (
  SELECT caller_id, key_requests, window_start, ${verdict(hasCall)} AS verdict,
    ${hasCall ? "existing, MAX(0, MIN(?15, tool_calls - slots)) AS slots, over_budget" : "NULL AS existing, NULL AS slots, NULL AS over_budget"}
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

const decideCall = decide(true);
const decideRequest = decide(false);

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

/** All that the answer is made of but what only some requests ask for. */
const readAnswer = `
SELECT t.status, t.config_version, t.wrapped_key, t.settings,
  k.id AS key_id, k.role, k.scopes, k.tools, k.user_id, k.business_unit, k.requests_per_minute,
  decided.verdict, decided.over_budget, decided.window_start, decided.count AS tenant_count, own.count AS key_count,
  recorded.slots, ${now} AS now
FROM rate_windows AS decided
JOIN tenants AS t ON t.id = decided.tenant
LEFT JOIN api_keys AS k ON k.hash = ?3 AND k.tenant = t.id
LEFT JOIN rate_windows AS own
  ON own.tenant = ?1 AND own.scope = 'key:' || k.id AND own.window_start = decided.window_start
LEFT JOIN calls AS recorded ON recorded.tenant = ?1 AND recorded.id = ?2
WHERE ${decided("?2")}`;

const readExisting = `SELECT calls.* FROM rate_windows AS decided
  JOIN calls ON calls.tenant = ?1 AND calls.id = decided.existing
  WHERE ${decided("?2")} AND decided.verdict = 'existing'`;

const readTurns = `SELECT key, kept_turns.caller_id, sealed, expires_at FROM rate_windows AS decided
  JOIN kept_turns ON kept_turns.tenant = ?1 AND kept_turns.caller_id = decided.caller_id
  WHERE ${decided("?2")} AND key IN (SELECT value FROM json_each(?3)) AND expires_at > ${now}`;

const readSession = `SELECT CASE
    WHEN s.id IS NULL OR s.created_by = ?2 THEN 'new'
    WHEN s.tenant <> ?1 THEN 'foreign'
    WHEN s.expired_at IS NOT NULL OR s.last_used_at < ${now} - ${setting("session_idle_ms")} THEN 'expired'
    ELSE 'live' END AS state, s.caller_id
  FROM tenants AS t LEFT JOIN sessions AS s ON s.id = ?3 WHERE t.id = ?1`;

const readDue = `SELECT * FROM calls
  WHERE tenant = ?1 AND session_id = ?2 AND delivery = 'due' AND state IN ${ended}
  ORDER BY finished_at, id LIMIT ${dueAtOnce}`;

interface Plan {
  readonly statements: Statement[];
  /** Where in the batch the optional reads are. */
  readonly answer: number;
  readonly existing?: number;
  readonly turns?: number;
  readonly session?: number;
  readonly due?: number;
}

/** @throws GatewayError `invalid_api_key`, `not_found` for a tenant that does not exist, `database_unavailable` */
export async function admit(database: Database, input: AdmitInput): Promise<AdmitResult> {
  const plan = planBatch(input);
  // Without a call row nothing tells a second sending from a second request, and it would count twice.
  const repeatable = input.call !== undefined || !input.limits.countRequest;
  const results = await database.batch(plan.statements, { repeatable });
  const rowsAt = (index: number | undefined): readonly Row[] =>
    index === undefined ? [] : (results[index]?.rows ?? []);
  const [answer] = rowsAt(plan.answer);
  if (answer === undefined) throw nobody(input);
  const caller = input.principal.kind === "known" ? input.principal.caller : keyCaller(answer);
  const [session] = rowsAt(plan.session);
  const sessionState = session === undefined ? undefined : sessionStateOf(session, caller);
  return {
    tenant: {
      id: input.tenant,
      status: answer["status"] === "active" ? "active" : "suspended",
      configVersion: Number(answer["config_version"]),
      wrappedKey: String(answer["wrapped_key"]),
    },
    settings: settingsOf(String(answer["settings"])),
    caller,
    outcome: outcomeOf(input, answer, rowsAt(plan.existing)[0]),
    rate: rateOf(answer),
    turns: rowsAt(plan.turns).map(toKeptTurn),
    ...(sessionState === undefined
      ? {}
      : { session: { state: sessionState, due: sessionState === "foreign" ? [] : rowsAt(plan.due).map(toCall) } }),
  };
}

function planBatch(input: AdmitInput): Plan {
  const { tenant, principal, call, sessionId } = input;
  const request = call?.id ?? newId("request");
  const statements: Statement[] = [decisionStatement(input, request)];
  const add = (sql: string, args: readonly SqlValue[]): number => statements.push({ sql, args }) - 1;
  if (call !== undefined) {
    if (call.idempotencyKey !== null) {
      add(releaseKey, [tenant, request, call.route, call.idempotencyKey, input.supersedes ?? null]);
    }
    add(insertAdmittedCall, newRowArgs(tenant, null, call));
  }
  if (sessionId !== undefined) add(touchSession, [tenant, request, sessionId]);
  const answer = add(readAnswer, [tenant, request, principal.kind === "key" ? principal.hash : null]);
  const mayExist = call !== undefined && (call.idempotencyKey !== null || input.attach !== undefined);
  return {
    statements,
    answer,
    ...(mayExist ? { existing: add(readExisting, [tenant, request]) } : {}),
    ...(input.turnKeys === undefined || input.turnKeys.length === 0
      ? {}
      : { turns: add(readTurns, [tenant, request, JSON.stringify(input.turnKeys)]) }),
    ...(sessionId === undefined
      ? {}
      : { session: add(readSession, [tenant, request, sessionId]), due: add(readDue, [tenant, sessionId]) }),
  };
}

function decisionStatement(input: AdmitInput, request: string): Statement {
  const { principal, call } = input;
  const args: SqlValue[] = [
    input.tenant,
    principal.kind === "key" ? principal.hash : null,
    principal.kind === "known" ? principal.caller.id : null,
    request,
    input.limits.countRequest ? 1 : 0,
    input.expectedConfigVersion ?? null,
    input.sessionId ?? null,
    principal.kind === "known" ? (hasScope(principal.caller, "manage") ? 1 : 0) : null,
  ];
  if (call === undefined) return { sql: decideRequest, args };
  return { sql: decideCall, args: [...args, ...callArgs(input, call)] };
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

/** No decision was made: there is no such key, or no such tenant for somebody whom we know. */
function nobody({ principal, tenant }: AdmitInput): GatewayError {
  if (principal.kind === "key") {
    return new GatewayError("invalid_api_key", "This API key does not exist, was revoked or has expired.", {
      param: "authorization",
    });
  }
  return new GatewayError("not_found", `There is no tenant '${tenant}'.`);
}

function outcomeOf({ call }: AdmitInput, answer: Row, existingRow: Row | undefined): AdmitResult["outcome"] {
  const verdict = answer["verdict"];
  switch (verdict) {
    case "admitted":
    case "repeated":
      return { kind: "admitted", slots: Number(answer["slots"] ?? 0) };
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
      return { kind: "over_budget", refusal: toRefusal(answer["over_budget"]) };
    case "existing":
      if (call !== undefined && existingRow !== undefined) {
        return { kind: "existing", call: toCall(existingRow), by: call.idempotencyKey === null ? "retry" : "key" };
      }
  }
  throw new TypeError(`The admission of a request ended with '${String(verdict)}'.`);
}

/** The limit that is nearest, or that refused. */
function rateOf(answer: Row): AdmitResult["rate"] {
  const settings = settingsOf(String(answer["settings"]));
  const windowStart = Number(answer["window_start"]);
  const resetMs = Math.max(0, windowStart + windowMs - Number(answer["now"]));
  const tenant = rate(settings.requests_per_minute, answer["tenant_count"]);
  if (typeof answer["requests_per_minute"] !== "number" || answer["verdict"] === "rate:tenant") {
    return { ...tenant, resetMs };
  }
  const key = rate(answer["requests_per_minute"], answer["key_count"]);
  return { ...(answer["verdict"] === "rate:key" || key.remaining < tenant.remaining ? key : tenant), resetMs };
}

function rate(limit: number, count: unknown): { readonly limit: number; readonly remaining: number } {
  return { limit, remaining: Math.max(0, limit - Number(count ?? 0)) };
}

const settingsByText = new Map<string, TenantSettings>();
const settingsKept = 1_000;

/** Parsed once for each text, not with every request. */
function settingsOf(text: string): TenantSettings {
  const known = settingsByText.get(text);
  if (known !== undefined) return known;
  const settings = parseSettings(text);
  if (settingsByText.size >= settingsKept) settingsByText.clear();
  settingsByText.set(text, settings);
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
