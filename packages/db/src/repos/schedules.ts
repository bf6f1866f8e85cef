/** Schedules, and their firings as they go on record. Contract: `ScheduleRepo`. */
import { and, eq, getTableName, isNotNull } from "drizzle-orm";
import type { CallError } from "@toolyard/core/calls/call";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { DueSchedule, NewSchedule, ScheduleRepo, Taking } from "@toolyard/core/ports/schedules";
import type { Schedule } from "@toolyard/core/schedules/schedule";
import { mostOf } from "@toolyard/core/ports/limits";
import type { Shards, Statement, StatementResult } from "../database.ts";
import { schedules } from "../schema/schedules.ts";
import { build, statement } from "../sql.ts";
import { insertFiring, newRowArgs } from "./calls-rows.ts";
import { everyShard } from "./every-shard.ts";
import { now } from "./fragments.ts";
import { type OnBrokenRow, readAll, type Reader, readFirst, readPage, selectPage } from "./rows.ts";

/** Of a tenant, ended ones not counted: enough for a reminder a day for years. */
const mostSchedules = mostOf.schedules;
/** What has fired for the last time is shown for so long. */
const endedShownMs = 30 * 86_400_000;

const insertSchedule = `INSERT INTO schedules (tenant, id, name, task_id, given, timing, time_zone, start_at, end_at,
    misfire, target, task, deliver, caller, caller_id, paused, next_at)
  SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17
  WHERE (SELECT COUNT(*) FROM schedules WHERE tenant = ?1 AND next_at IS NOT NULL) < ${mostSchedules}
  ON CONFLICT DO NOTHING`;
/** Whoever asks for it again under the same id of a task has seen it fire: a plugin that has itself called each day. */
const releaseTask = `UPDATE schedules SET task_id = NULL
  WHERE tenant = ?1 AND task_id = ?2 AND id <> ?3 AND next_at IS NULL AND COALESCE(taken_at, 0) <= ${now}`;
const readSchedule = "SELECT * FROM schedules WHERE tenant = ?1 AND id = ?2";

/** By turns, so that a tenant with many does not keep the others waiting. */
const readDue = `SELECT s.*, t.config_version FROM (
    SELECT due.rowid AS due_row, due.next_at AS due_at,
      ROW_NUMBER() OVER (PARTITION BY due.tenant ORDER BY due.next_at) AS turn
    FROM schedules AS due CROSS JOIN tenants AS owner ON owner.id = due.tenant AND owner.status = 'active'
    WHERE due.next_at IS NOT NULL AND due.paused = 0 AND due.next_at <= ${now} + ?2
      AND due.tenant NOT IN (SELECT value FROM json_each(?3))
    ORDER BY turn, due_at LIMIT ?1)
  CROSS JOIN schedules AS s ON s.rowid = due_row
  CROSS JOIN tenants AS t ON t.id = s.tenant
  ORDER BY turn, due_at`;
const forgetEnded = `DELETE FROM schedules WHERE rowid IN (SELECT rowid FROM schedules
  WHERE next_at IS NULL AND updated_at <= ${now} - ${endedShownMs} LIMIT ?1)`;
const readNow = `SELECT ${now} AS now`;

/** Its firings, as far as nobody has begun one. */
const ofSchedule = "tenant = ?1 AND parent_id = ?2 AND parent_id IS NOT NULL";
const moveOn = `UPDATE schedules SET next_at = ?4, taken_at = COALESCE(?5, taken_at),
    missed_at = COALESCE(?6, missed_at), fired = fired + ?7, updated_at = ${now}
  WHERE tenant = ?1 AND id = ?2 AND next_at = ?3 AND paused = 0`;
const readTaken = `SELECT id FROM calls
  WHERE tenant = ?1 AND state = 'queued' AND id IN (SELECT value FROM json_each(?2))`;

/** What was taken for a time ahead is due again, since its firing is called off. */
const pauseSchedule = `UPDATE schedules SET paused = 1, updated_at = ${now},
    next_at = CASE WHEN taken_at > ${now} THEN taken_at ELSE next_at END, taken_at = MIN(taken_at, ${now})
  WHERE tenant = ?1 AND id = ?2 AND paused = 0`;
const resumeSchedule = `UPDATE schedules SET paused = 0, next_at = ?3, updated_at = ${now}
  WHERE tenant = ?1 AND id = ?2 AND paused = 1`;
/** Its time may come again, so what was called off gives the key of the time back. */
const callOff = `UPDATE calls SET state = 'cancelled', cancel_requested = 1, finished_at = ${now}, error = ?3,
    write_token = NULL, idempotency_key = NULL
  WHERE ${ofSchedule} AND attempt = 0 AND state IN ('queued', 'input_required')`;

const deleteSchedule = "DELETE FROM schedules WHERE tenant = ?1 AND id = ?2 AND caller_id = COALESCE(?3, caller_id)";

const calledOff = (why: "paused" | "deleted"): string => {
  const error: CallError = { code: "call_cancelled", message: `Its schedule was ${why} before it was started.` };
  return JSON.stringify(error);
};

export function createScheduleRepo(shards: Shards, onBrokenRow: OnBrokenRow): ScheduleRepo {
  const reader: Reader<typeof schedules, Schedule> = {
    table: schedules,
    tableName: getTableName(schedules),
    key: schedules.id,
    onBrokenRow,
    toRecord: ({ tenant: _tenant, callerId: _callerId, ...schedule }) => schedule,
  };
  const readonly = { readonly: true } as const;
  const repeatable = { repeatable: true } as const;

  return {
    create: async (tenant, schedule) => {
      const [, , found, taken] = await shards.databaseFor(tenant).batch(
        [
          { sql: releaseTask, args: [tenant, schedule.taskId, schedule.id] },
          { sql: insertSchedule, args: newScheduleArgs(tenant, schedule) },
          { sql: readSchedule, args: [tenant, schedule.id] },
          { sql: "SELECT id FROM schedules WHERE tenant = ?1 AND task_id = ?2", args: [tenant, schedule.taskId] },
        ],
        repeatable,
      );
      const created = readFirst(reader, found);
      if (created !== undefined) return created;
      throw (taken?.rows.length ?? 0) > 0 ? taskIdTaken(schedule.taskId) : tooMany();
    },

    get: async (tenant, id) => {
      const [found] = await shards.databaseFor(tenant).batch([{ sql: readSchedule, args: [tenant, id] }], readonly);
      return readFirst(reader, found);
    },

    list: async (tenant, page, callerId) => {
      const own = callerId === undefined ? undefined : eq(schedules.callerId, callerId);
      const select = selectPage(reader, and(eq(schedules.tenant, tenant), own), page);
      const [found] = await shards.databaseFor(tenant).batch([select], readonly);
      return readPage(reader, found, page);
    },

    targets: async (tenant) => {
      const { id, name, target, nextAt } = schedules;
      const mayFire = and(eq(schedules.tenant, tenant), isNotNull(nextAt));
      const select = build.select({ id, name, target }).from(schedules).where(mayFire).orderBy(id);
      const [found] = await shards.databaseFor(tenant).batch([statement(select)], readonly);
      return (found?.rows ?? []).map((row) => ({
        id: String(row["id"]),
        name: typeof row["name"] === "string" ? row["name"] : null,
        target: String(row["target"]),
      }));
    },

    due: async ({ limit, aheadMs, except = [] }) => {
      const statements = [
        { sql: readDue, args: [limit, aheadMs, JSON.stringify(except)] },
        { sql: readNow, args: [] },
        { sql: forgetEnded, args: [limit] },
      ];
      const answers = await everyShard(shards, (database) => database.batch(statements));
      return {
        due: answers.flatMap(([found]) => toDue(reader, found)),
        now: Math.max(...answers.map(([, clock]) => Number(clock?.rows[0]?.["now"]))),
      };
    },

    take: async (tenant, takings) => {
      const ids = takings.flatMap(({ firings }) => firings.map(({ id }) => id));
      const statements = [
        ...takings.flatMap((taking) => takeStatements(tenant, taking)),
        { sql: readTaken, args: [tenant, JSON.stringify(ids)] },
      ];
      // Sent twice, the second sending finds the time moved on, and its own rows on record.
      const results = await shards.databaseFor(tenant).batch(statements, repeatable);
      return (results.at(-1)?.rows ?? []).map((row) => String(row["id"]));
    },

    pause: async (tenant, id) => {
      const [, , found] = await shards.databaseFor(tenant).batch(
        [
          { sql: pauseSchedule, args: [tenant, id] },
          { sql: callOff, args: [tenant, id, calledOff("paused")] },
          { sql: readSchedule, args: [tenant, id] },
        ],
        repeatable,
      );
      return readFirst(reader, found);
    },

    resume: async (tenant, id, nextAt) => {
      const [, found] = await shards.databaseFor(tenant).batch(
        [
          { sql: resumeSchedule, args: [tenant, id, nextAt] },
          { sql: readSchedule, args: [tenant, id] },
        ],
        repeatable,
      );
      return readFirst(reader, found);
    },

    delete: async (tenant, id, callerId) => {
      const [deleted] = await shards.databaseFor(tenant).batch([
        { sql: deleteSchedule, args: [tenant, id, callerId ?? null] },
        // The id may be that of any other call which has calls below it.
        { sql: `${callOff} AND changes() > 0`, args: [tenant, id, calledOff("deleted")] },
      ]);
      return (deleted?.changes ?? 0) > 0;
    },
  };
}

function newScheduleArgs(tenant: string, schedule: NewSchedule): Statement["args"] {
  const { id, name, taskId, given, timing, timeZone, startAt, endAt, misfire, target, task } = schedule;
  const { deliver, caller, paused, nextAt } = schedule;
  const when = [JSON.stringify(given), JSON.stringify(timing), timeZone, startAt, endAt, misfire];
  const what = [target, task, JSON.stringify(deliver), JSON.stringify(caller), caller.id];
  return [tenant, id, name, taskId, ...when, ...what, paused ? 1 : 0, nextAt];
}

/** While it is due then: each of these asks for it, before the last one moves it on. */
function takeStatements(tenant: string, taking: Taking): readonly Statement[] {
  const { id, dueAt, nextAt, takenAt, missedAt, callerId, firings } = taking;
  return [
    ...firings.map((call) => ({ sql: insertFiring, args: [...newRowArgs(tenant, callerId, call), id, dueAt] })),
    { sql: moveOn, args: [tenant, id, dueAt, nextAt, takenAt, missedAt, firings.length] },
  ];
}

function toDue(reader: Reader<typeof schedules, Schedule>, found: StatementResult | undefined): readonly DueSchedule[] {
  return (found?.rows ?? []).flatMap((row) => {
    const [schedule] = readAll(reader, { rows: [row], changes: 0 });
    if (schedule === undefined) return [];
    return [{ tenant: String(row["tenant"]), configVersion: Number(row["config_version"]), schedule }];
  });
}

function taskIdTaken(taskId: string | null): GatewayError {
  return new GatewayError(
    "conflict",
    `There is a schedule with the task id '${taskId}' already; take another 'task_id', or delete that one.`,
    { param: "task_id" },
  );
}

function tooMany(): GatewayError {
  return new GatewayError("conflict", `A tenant has at most ${mostSchedules} schedules that still fire; delete some.`);
}
