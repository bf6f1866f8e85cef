/**
 * The short way of an admission, for what nearly every request is: a chat or a tool call of a caller whom this
 * process knows, that brings no key, session or kept turn and falls under no budget. Nothing has to be looked up
 * then; it is enough that nothing stands in the way. Those of one caller that are waiting for the same commit are
 * asked about once, as one: the first statement counts them unless anything stands in the way of any, and each has
 * its row written where it was counted. Where it was not, nothing was done, and the long way finds out for each of
 * them why, and decides: this way can only admit, and only what the long way would have admitted.
 *
 * Sent twice, the batch finds its rows there, writes and counts nothing, and the long way recognises them.
 */
import type { AdmitInput, NewCall } from "@toolyard/core/ports/calls";
import type { Database, GrowingBatch, SqlValue, Statement, StatementResult } from "../database.ts";
import { brokeAfterWrite, mattersToRepetition } from "../schema/calls.ts";
import { openBreakers } from "./breakers.ts";
import { hearing, now, windowMs, windowStart } from "./fragments.ts";

/** As many as are committed together. */
const mostTogether = 64;

// ?1 tenant, ?2 the first of the calls, ?3 how many they are, ?4 config version, ?5 hash of the key, ?6 chats (null: they
// are none) and ?7 requests a minute that the tenant may have, ?8 age of repetitions to look for, ?9 caller, ?10 route,
// ?11 hashes of the inputs, ?12 slots that they want (null: none) of the ?13 that the tenant has.
const countUnhindered = `INSERT INTO rate_windows (tenant, scope, window_start, count, request, verdict)
  SELECT ?1, 'tenant', ${windowStart}, ?3, ?2, 'unhindered'
  WHERE EXISTS (SELECT 1 FROM tenants WHERE id = ?1 AND status = 'active' AND config_version = ?4)
    AND (?5 IS NULL OR EXISTS (
      SELECT 1 FROM api_keys WHERE hash = ?5 AND tenant = ?1 AND revoked_at IS NULL
        AND (expires_at IS NULL OR expires_at > ${now})
        AND requests_per_minute IS NULL AND concurrent_requests IS NULL))
    AND ?3 + COALESCE((
      SELECT count FROM rate_windows WHERE tenant = ?1 AND scope = 'tenant' AND window_start = ${windowStart}), 0) <= ?7
    AND (?6 IS NULL OR ?3 + (
      SELECT COUNT(*) FROM calls
      WHERE tenant = ?1 AND state = 'running' AND lease_until > ${now} AND kind = 'chat') <= ?6)
    AND (?12 IS NULL OR ?12 + (
      SELECT COALESCE(SUM(slots), 0) FROM calls
      WHERE tenant = ?1 AND state = 'running' AND lease_until > ${now}) <= ?13)
    AND NOT (?8 IS NOT NULL AND EXISTS (
      SELECT 1 FROM json_each(?11) AS asked WHERE (
        SELECT ${brokeAfterWrite} FROM calls
        WHERE tenant = ?1 AND caller_id = ?9 AND input_hash = asked.value AND route = ?10 AND created_at > ${now} - ?8
          AND ${mattersToRepetition}
        ORDER BY created_at DESC LIMIT 1)))
    AND NOT EXISTS (SELECT 1 FROM calls WHERE tenant = ?1 AND id = ?2)
  ON CONFLICT (tenant, scope) DO UPDATE SET
    count = excluded.count + CASE WHEN window_start = excluded.window_start THEN count ELSE 0 END,
    window_start = excluded.window_start, request = excluded.request, verdict = excluded.verdict
  RETURNING count, window_start + ${windowMs} - ${now} AS reset_ms, ${hearing}, ${openBreakers}`;

/** The columns in which chats without tools differ; what the others hold is what makes them plain. */
const plainRow = {
  tenant: "?1",
  id: "?3",
  kind: "'chat'",
  uri: "?4",
  tool: "?5",
  effect: "?6",
  repeat: "?7",
  state: "'running'",
  attempt: "1",
  lease_until: `${now} + ?8`,
  async: "0",
  caller_id: "?9",
  caller_chain: "'[]'",
  route: "?10",
  input_hash: "?11",
  input_view: "?12",
  slots: "0",
  delivery: "'none'",
  request_id: "?13",
  trace_id: "?14",
  created_at: now,
  started_at: now,
  sent_at: now,
  user_id: "?15",
} as const;

/** Of calls that hold slots: chats with tools, and tools. */
const slottedRow = {
  ...plainRow,
  kind: "?16",
  session_id: "?17",
  tool_hash: "?18",
  caller_chain: "?19",
  input: "?20",
  slots: "?21",
} as const;

/** ?2 is the first of those counted together with it. */
const insertCounted = (row: Readonly<Record<string, string>>): string =>
  `INSERT INTO calls (${Object.keys(row).join(", ")})
  SELECT ${Object.values(row).join(", ")} FROM rate_windows AS decided
  WHERE decided.tenant = ?1 AND decided.scope = 'tenant' AND decided.request = ?2 AND decided.verdict = 'unhindered'
  ON CONFLICT DO NOTHING`;

const insertPlain = insertCounted(plainRow);
const insertSlotted = insertCounted(slottedRow);

/** An admission by the short way: what is known of tenant and caller, at the version of which it is known. */
export interface PlainAdmission extends AdmitInput {
  readonly call: NewCall;
  readonly known: NonNullable<AdmitInput["known"]>;
  readonly expectedConfigVersion: number;
}

/** False where there is more to decide. */
export function isPlain(input: AdmitInput): input is PlainAdmission {
  const { call, known, expectedConfigVersion, limits, attach, turnKeys, sessionId, supersedes } = input;
  return (
    call !== undefined &&
    known !== undefined &&
    expectedConfigVersion !== undefined &&
    limits.countRequest &&
    attach?.to !== "any" &&
    (turnKeys === undefined || turnKeys.length === 0) &&
    sessionId === undefined &&
    supersedes === undefined &&
    isPlainCall(call)
  );
}

/** It runs at once, for nobody but its caller, and what it reserves is nothing but slots. */
function isPlainCall(call: NewCall): boolean {
  const { reserved } = call;
  return (
    call.state === "running" &&
    call.end === undefined &&
    call.ran === undefined &&
    call.idempotencyKey === null &&
    reserved.tokens === 0 &&
    reserved.micros === 0 &&
    call.parentId === null &&
    call.rootId === null &&
    call.effectKey === null &&
    call.runAt === null &&
    call.deadlineMs === null &&
    call.delivery === "none" &&
    !call.async
  );
}

type Row = StatementResult["rows"][number];

/** Admissions that are decided as one; what they have in common is that of the first. */
class Group implements GrowingBatch {
  readonly calls: NewCall[] = [];
  readonly #common: PlainAdmission;
  readonly #close: () => void;

  constructor(common: PlainAdmission, close: () => void) {
    this.#common = common;
    this.#close = close;
  }

  get size(): number {
    return this.calls.length;
  }

  compose(): readonly Statement[] {
    this.#close();
    const { tenant, expectedConfigVersion, attach, call, slots } = this.#common;
    const { caller, settings } = this.#common.known;
    const first = this.calls[0]?.id ?? "";
    const count = [
      tenant,
      first,
      this.calls.length,
      expectedConfigVersion,
      hashOf(this.#common),
      call.kind === "chat" ? settings.concurrent_requests : null,
      settings.requests_per_minute,
      attach?.withinMs ?? null,
      caller.id,
      call.route,
      JSON.stringify(this.calls.map(({ inputHash }) => inputHash)),
      slots === undefined ? null : this.calls.length * slots.wanted,
      settings.concurrent_tool_calls,
    ];
    const common = [tenant, first, caller.id] as const;
    return [
      { sql: countUnhindered, args: count },
      ...this.calls.map((one) =>
        isBare(one, slots)
          ? { sql: insertPlain, args: rowArgs(one, common) }
          : { sql: insertSlotted, args: [...rowArgs(one, common), ...slottedArgs(one, slots)] },
      ),
    ];
  }
}

interface OpenGroup {
  readonly calls: NewCall[];
  /** Undefined where something stands in the way. */
  readonly counted: Promise<Row | undefined>;
}

/** Those whose batch has not been composed yet, by what their admissions have in common. */
const openGroups = new WeakMap<Database, Map<string, OpenGroup>>();

/** @returns the group that the call is admitted with, and its place there, from 1 */
export function admitPlain(
  database: Database,
  input: PlainAdmission,
): { readonly group: OpenGroup; readonly place: number } {
  const group = groupOf(database, input);
  return { group, place: group.calls.push(input.call) };
}

function groupOf(database: Database, input: PlainAdmission): OpenGroup {
  const { tenant, expectedConfigVersion, known, call, attach, slots } = input;
  const name = `${tenant} ${known.caller.id} ${hashOf(input)} ${expectedConfigVersion} ${attach?.withinMs} ${call.kind} ${slots?.wanted} ${call.route}`;
  let groups = openGroups.get(database);
  if (groups === undefined) openGroups.set(database, (groups = new Map<string, OpenGroup>()));
  const open = groups.get(name);
  if (open !== undefined && open.calls.length < mostTogether) return open;
  const group = new Group(input, () => {
    if (groups.get(name)?.calls === group.calls) groups.delete(name);
  });
  const counted = database.batch(group, { repeatable: true }).then(([result]) => result?.rows[0]);
  const opened = { calls: group.calls, counted };
  groups.set(name, opened);
  return opened;
}

function rowArgs(call: NewCall, [tenant, first, callerId]: readonly [string, string, string]): SqlValue[] {
  return [
    tenant,
    first,
    call.id,
    call.uri,
    call.tool,
    call.effect,
    call.repeat,
    call.leaseMs,
    callerId,
    call.route,
    call.inputHash,
    call.inputView,
    call.requestId,
    call.traceId,
    call.userId,
  ];
}

/** Its row needs none of the values in which the longer one differs. */
function isBare(call: NewCall, slots: AdmitInput["slots"]): boolean {
  return (
    slots === undefined &&
    call.kind === "chat" &&
    call.sessionId === null &&
    call.toolHash === null &&
    call.input === null &&
    call.slots === 0 &&
    call.callerChain.length === 0
  );
}

function slottedArgs(call: NewCall, slots: AdmitInput["slots"]): SqlValue[] {
  return [
    call.kind,
    call.sessionId,
    call.toolHash,
    JSON.stringify(call.callerChain),
    call.input,
    slots?.wanted ?? call.slots,
  ];
}

function hashOf({ principal }: AdmitInput): string | null {
  return principal.kind === "key" ? principal.hash : null;
}
