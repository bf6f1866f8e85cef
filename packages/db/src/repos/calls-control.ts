/** Reading calls, and what people may do to them: list, cancel, approve, reject. */
import type { Call, CallError } from "@toolyard/core/calls/call";
import type { CallFilter, CallPageRequest, CallRepo, FamilyWanted } from "@toolyard/core/ports/calls";
import type { Page } from "@toolyard/core/ports/page";
import type { Database, SqlValue } from "../database.ts";
import { ended, type CallSource } from "./calls-rows.ts";
import { now } from "./fragments.ts";
import { requirePlace } from "./place.ts";
import { readAll, readFirst, readPage } from "./rows.ts";

type Decision = Parameters<CallRepo["decide"]>[2];

const readCall = "SELECT * FROM calls WHERE tenant = ?1 AND id = ?2";

export async function get({ database, reader }: CallSource, tenant: string, id: string): Promise<Call | undefined> {
  const [found] = await database.batch([{ sql: readCall, args: [tenant, id] }], { readonly: true });
  return readFirst(reader, found);
}

/** A walk through the tenant's newest calls, by the index of their times. */
const readByOutcome = `SELECT * FROM calls
  WHERE tenant = ?1 AND created_at >= ${now} - ?2 AND kind = 'tool'
    AND substr(uri, 1, length(?3)) = ?3 AND instr(outcome_text, ?4) > 0
  ORDER BY created_at DESC LIMIT 1`;

export async function findByOutcome(
  { database, reader }: CallSource,
  tenant: string,
  { uriPrefix, text, withinMs }: Parameters<CallRepo["findByOutcome"]>[1],
): Promise<Call | undefined> {
  const statement = { sql: readByOutcome, args: [tenant, withinMs, uriPrefix, text] };
  const [found] = await database.batch([statement], { readonly: true, long: { owner: tenant } });
  return readFirst(reader, found);
}

/** `from` is inclusive, `to` is not, so that adjoining spans share no call. */
const conditions = {
  state: "state = ?",
  kind: "kind = ?",
  tool: "tool = ?",
  sessionId: "session_id = ?",
  parentId: "parent_id = ?",
  callerId: "caller_id = ?",
  requestId: "request_id = ?",
  runs: "? AND uri GLOB 'flow://*' AND tool_hash IS NOT 'flow-question'",
  from: "created_at >= ?",
  to: "created_at < ?",
} as const satisfies Record<keyof CallFilter, string>;

const readPlace = "SELECT created_at FROM calls WHERE tenant = ?1 AND id = ?2";

/** In the order of creation, which ids of chats and tool calls together do not have. */
export async function list(
  { database, reader }: CallSource,
  tenant: string,
  { filter, page }: { readonly filter: CallFilter; readonly page: CallPageRequest },
): Promise<Page<Call>> {
  const where = ["tenant = ?"];
  const args: SqlValue[] = [tenant];
  for (const [name, condition] of Object.entries(conditions)) {
    const value = filter[name as keyof typeof conditions];
    if (value === undefined) continue;
    where.push(condition);
    args.push(value === true ? 1 : value);
  }
  // Spelled out for the index of calls that wait for a person, which is the list that is asked for most.
  if (filter.state === "input_required") where.push("state = 'input_required'");
  // Few of all that a tenant has, which SQLite does not know.
  const isRunning = filter.state === "running";
  if (isRunning) where.push("state = 'running'");
  const { direction, follows } = orders[page.order];
  // The plus keeps SQLite from walking through the tenant's whole time to find the few rows of these.
  const isNarrow = [filter.requestId, filter.parentId, filter.sessionId].some((value) => value !== undefined);
  const time = isNarrow ? "+created_at" : "created_at";
  const { after, beyond } = page;
  if (beyond !== undefined) {
    where.push(`(${time}, id) ${follows} (?, ?)`);
    args.push(beyond.createdAt, beyond.id);
  } else if (after !== undefined) {
    where.push(`(${time}, id) ${follows} (SELECT created_at, id FROM calls WHERE tenant = ? AND id = ?)`);
    args.push(tenant, after);
  }
  // No index leads to these among all others: where there are few, the walk is as long as the tenant's time.
  const isWalk =
    !isNarrow &&
    !isRunning &&
    filter.state !== "input_required" &&
    [filter.state, filter.kind, filter.tool, filter.runs].some((value) => value !== undefined);
  const sql = `SELECT * FROM calls ${isRunning ? "INDEXED BY calls_running" : ""} WHERE ${where.join(" AND ")}
    ORDER BY ${time} ${direction}, id ${direction} LIMIT ?`;
  const statements = [{ sql, args: [...args, page.limit + 1] }];
  if (after !== undefined) statements.push({ sql: readPlace, args: [tenant, after] });
  const long = isWalk ? { long: { owner: tenant } } : {};
  const [found, place] = await database.batch(statements, { readonly: true, ...long });
  requirePlace(place);
  return readPage(reader, found, page);
}

const orders = { asc: { direction: "ASC", follows: ">" }, desc: { direction: "DESC", follows: "<" } } as const;

/** However deep they are, as far as they have ended. */
const sumBelow = `WITH RECURSIVE below (top, id) AS (
    SELECT value, value FROM json_each(?2)
    UNION
    SELECT below.top, child.id FROM below CROSS JOIN calls AS child
    WHERE child.tenant = ?1 AND child.parent_id = below.id AND child.parent_id IS NOT NULL
  )
  SELECT below.top, SUM(part.cost ->> 'micros') AS micros FROM below CROSS JOIN calls AS part
  WHERE part.tenant = ?1 AND part.id = below.id AND part.id <> below.top AND part.state IN ${ended}
  GROUP BY below.top`;

export async function costsBelow(
  database: Database,
  tenant: string,
  ids: readonly string[],
): Promise<ReadonlyMap<string, number>> {
  const [found] = await database.batch([{ sql: sumBelow, args: [tenant, JSON.stringify(ids)] }], { readonly: true });
  return new Map((found?.rows ?? []).map((row) => [String(row["top"]), Number(row["micros"])]));
}

/** Chats ask for calls, and calls (agents, flows) for further ones. */
const withFamily = `WITH RECURSIVE family (id) AS (
    SELECT ?2
    UNION
    SELECT child.id FROM family CROSS JOIN calls AS child
    WHERE child.tenant = ?1 AND child.parent_id = family.id AND child.parent_id IS NOT NULL
  )`;

const readFamily = (condition: string): string => `${withFamily}
  SELECT one.* FROM family CROSS JOIN calls AS one WHERE one.tenant = ?1 AND one.id = family.id ${condition}
  ORDER BY one.created_at, one.id LIMIT ?3`;
const readWhole = readFamily("");
const readOpen = readFamily(`AND one.state NOT IN ${ended}`);

export async function family(
  { database, reader }: CallSource,
  tenant: string,
  { id, limit, isOpen = false }: FamilyWanted & { readonly id: string },
): Promise<readonly Call[]> {
  const sql = isOpen ? readOpen : readWhole;
  const [found] = await database.batch([{ sql, args: [tenant, id, limit] }], { readonly: true });
  return readAll(reader, found);
}

const cancelFamily = `${withFamily}
  UPDATE calls SET cancel_requested = 1,
    finished_at = CASE state WHEN 'running' THEN NULL ELSE ${now} END,
    error = CASE WHEN state = 'running' THEN error WHEN started_at IS NULL THEN ?3 ELSE ?4 END,
    write_token = CASE state WHEN 'running' THEN write_token END,
    state = CASE state WHEN 'running' THEN 'running' ELSE 'cancelled' END
  WHERE tenant = ?1 AND id IN (SELECT id FROM family) AND state IN ('queued', 'input_required', 'running')`;

const cancelled: CallError = { code: "call_cancelled", message: "The call was cancelled before it was started." };
/** It has been at work: a run that waits, or a call that is to be tried again. */
const cancelledWaiting: CallError = { code: "call_cancelled", message: "The call was cancelled while it waited." };

export async function requestCancel(
  { database, reader }: CallSource,
  tenant: string,
  id: string,
): Promise<Call | undefined> {
  const [, found] = await database.batch(
    [
      { sql: cancelFamily, args: [tenant, id, JSON.stringify(cancelled), JSON.stringify(cancelledWaiting)] },
      { sql: readCall, args: [tenant, id] },
    ],
    { repeatable: true },
  );
  return readFirst(reader, found);
}

const readCancel = "SELECT cancel_requested FROM calls WHERE tenant = ?1 AND id = ?2";

export async function isCancelRequested(database: Database, tenant: string, id: string): Promise<boolean> {
  const [found] = await database.batch([{ sql: readCancel, args: [tenant, id] }], { readonly: true });
  return found?.rows[0]?.["cancel_requested"] === 1;
}

/** What was approved is run by a worker, whoever asked for it first. */
const decideCall = `UPDATE calls SET
    approval = json_patch(json_object('by', ?4, 'decision', ?3, 'at', ${now}), ?5),
    state = CASE ?3 WHEN 'approved' THEN 'queued' ELSE 'rejected' END,
    async = CASE ?3 WHEN 'approved' THEN 1 ELSE async END,
    finished_at = CASE ?3 WHEN 'approved' THEN NULL ELSE ${now} END,
    error = CASE ?3 WHEN 'approved' THEN NULL ELSE ?6 END,
    input = COALESCE(?7, input), run_at = NULL, sent_at = ${now}, write_token = NULL
  WHERE tenant = ?1 AND id = ?2 AND state = 'input_required' AND attempt = COALESCE(?8, attempt)`;

export async function decide(
  { database, reader }: CallSource,
  tenant: string,
  { id, by, decision, reason, answered }: Decision & { readonly id: string },
): Promise<Call | undefined> {
  const why = reason === undefined ? {} : { reason };
  const rejection: CallError = {
    code: "call_rejected",
    message: `The call was rejected by '${by}'${reason === undefined ? "" : `: ${reason}`}.`,
    ...(reason === undefined ? {} : { details: { reason } }),
  };
  const args = [tenant, id, decision, by, JSON.stringify(why), JSON.stringify(rejection)];
  const { input = null, attempt = null } = answered ?? {};
  const [, found] = await database.batch(
    [
      { sql: decideCall, args: [...args, input, attempt] },
      { sql: readCall, args: [tenant, id] },
    ],
    { repeatable: true },
  );
  return readFirst(reader, found);
}
