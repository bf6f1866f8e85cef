/**
 * Callbacks of asynchronous VCP plugins. Contract: `VcpCallbackRepo`. Whether a result ends its call is decided
 * by two statements that may come in either order, that of the plugin's first answer and that of its result:
 * each sees what the other has written, so that one of them finds out.
 */
import type {
  Binding,
  CallAttempt,
  NewCallback,
  TaskName,
  VcpCallbackRepo,
  VcpTask,
} from "@toolyard/core/ports/vcp-callbacks";
import type { Shards, SqlValue, Statement, StatementResult } from "../database.ts";
import { vcpTasks } from "../schema/vcp-tasks.ts";
import { decodeRow } from "../sql.ts";
import { eventStatement } from "./connections.ts";
import { everyShard } from "./every-shard.ts";
import { now } from "./fragments.ts";

/** Of one call. */
const mostTasks = 32;
/** Whoever stored a result has ended the call by then. */
const usedWithinMs = 2_000;
/** Whoever was sent a result has stored it and said so by then, or has died, or is about to store it. */
const storedWithinMs = 2_000;
/** Nobody is about to store a result any more. */
const strandedForMs = 600_000;
/** Whoever was given an expired result has removed it by then. */
const removedWithinMs = 60_000;

const openCallback = `INSERT INTO vcp_callbacks
    (tenant, call_id, attempt, hash, plugin, caller_id, user_id, session_id, kept_ms, expires_at)
  VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ${now} + ?10)
  ON CONFLICT (tenant, call_id, attempt) DO UPDATE SET hash = excluded.hash, expires_at = excluded.expires_at`;
const findCallback = `SELECT call_id, attempt, plugin FROM vcp_callbacks
  WHERE tenant = ?1 AND hash = ?2 AND expires_at > ${now}`;

/** ?2 and ?3 name the attempt, ?4 to ?6 the task: its name, plugin and id. It stays for as long as its result may come. */
const insertTask = `INSERT INTO vcp_tasks
    (tenant, name, plugin, task_id, call_id, attempt, caller_id, user_id, session_id, expires_at)
  SELECT ?1, ?4, ?5, ?6, c.call_id, c.attempt, c.caller_id, c.user_id, c.session_id,
    MAX(${now} + c.kept_ms, c.expires_at)
  FROM vcp_callbacks AS c
  WHERE c.tenant = ?1 AND c.call_id = ?2 AND c.attempt = ?3 AND c.plugin = ?5
    AND (SELECT COUNT(*) FROM vcp_tasks WHERE tenant = ?1 AND call_id = ?2) < ${mostTasks}
  ON CONFLICT DO NOTHING`;
const markCalled = `UPDATE vcp_tasks SET called_at = COALESCE(called_at, ${now})
  WHERE tenant = ?1 AND name = ?4 AND call_id = ?2 AND plugin = ?5 AND task_id = ?6 AND ?3 = ?3`;
const readTask = "SELECT * FROM vcp_tasks WHERE tenant = ?1 AND name = ?2";

const isCalls = "tenant = ?1 AND call_id = ?2 AND attempt = ?3";
/** The named task where it is the call's, else the first that has a result. */
const markAnswered = `UPDATE vcp_callbacks SET answered = 1, task_id = COALESCE(task_id,
    (SELECT task_id FROM vcp_tasks WHERE ${isCalls} AND name = ?4),
    (SELECT task_id FROM vcp_tasks WHERE ${isCalls} AND done_at IS NOT NULL AND ?4 IS NULL ORDER BY done_at LIMIT 1))
  WHERE ${isCalls}`;
const isEnding = `EXISTS (SELECT 1 FROM vcp_callbacks AS c
  WHERE c.tenant = vcp_tasks.tenant AND c.call_id = vcp_tasks.call_id AND c.attempt = vcp_tasks.attempt
    AND c.task_id = vcp_tasks.task_id)`;
/** Results that cannot end the call any more. */
const settleOthers = `UPDATE vcp_tasks SET settled = 1
  WHERE ${isCalls} AND done_at IS NOT NULL AND ?4 IS ?4 AND NOT ${isEnding}
    AND EXISTS (SELECT 1 FROM vcp_callbacks WHERE ${isCalls} AND task_id IS NOT NULL)`;
const readEnding = `SELECT * FROM vcp_tasks WHERE ${isCalls} AND done_at IS NOT NULL AND ?4 IS ?4 AND ${isEnding}`;

/** What clients are told of a result is written with the first word of it: not twice, and not without it. */
const isFirst = "EXISTS (SELECT 1 FROM vcp_tasks WHERE tenant = ?1 AND name = ?10 AND done_at IS NULL)";
/** A result is kept from when it came. Of a call whose token is no more, for what is left of the task's own time. */
const completeTask = `UPDATE vcp_tasks SET done_at = COALESCE(done_at, ${now}),
    expires_at = CASE WHEN done_at IS NULL THEN COALESCE((SELECT ${now} + c.kept_ms FROM vcp_callbacks AS c
      WHERE c.tenant = vcp_tasks.tenant AND c.call_id = vcp_tasks.call_id AND c.attempt = vcp_tasks.attempt), expires_at)
    ELSE expires_at END
  WHERE tenant = ?1 AND name = ?2`;
/** Where the plugin has named none, the first result is the one. */
const takeFirst = `UPDATE vcp_callbacks SET task_id = t.task_id
  FROM (SELECT * FROM vcp_tasks WHERE tenant = ?1 AND name = ?2) AS t
  WHERE vcp_callbacks.tenant = ?1 AND vcp_callbacks.call_id = t.call_id AND vcp_callbacks.attempt = t.attempt
    AND vcp_callbacks.answered = 1 AND vcp_callbacks.task_id IS NULL`;
const settleIfOther = `UPDATE vcp_tasks SET settled = 1
  WHERE tenant = ?1 AND name = ?2 AND NOT ${isEnding}
    AND EXISTS (SELECT 1 FROM vcp_callbacks AS c WHERE c.tenant = vcp_tasks.tenant AND c.call_id = vcp_tasks.call_id
      AND c.attempt = vcp_tasks.attempt AND c.answered = 1)`;
const readCompleted = `SELECT *, ${isEnding} AS ends FROM vcp_tasks WHERE tenant = ?1 AND name = ?2`;

const settleTask = "UPDATE vcp_tasks SET settled = 1 WHERE tenant = ?1 AND name = ?2";
const readAnswered = "SELECT 1 FROM vcp_callbacks WHERE tenant = ?1 AND call_id = ?2 AND answered = 1 LIMIT 1";

/** A call whose process died before it read the plugin's answer ends by itself, and then by this. */
const readLate = `SELECT t.* FROM vcp_tasks AS t
  JOIN vcp_callbacks AS c ON c.tenant = t.tenant AND c.call_id = t.call_id AND c.attempt = t.attempt
  LEFT JOIN calls ON calls.tenant = t.tenant AND calls.id = t.call_id
  WHERE t.settled = 0 AND t.done_at IS NOT NULL AND t.done_at <= ${now} - ${usedWithinMs}
    AND (c.answered = 1 OR calls.id IS NULL OR calls.state NOT IN ('queued', 'running', 'input_required'))
  ORDER BY t.done_at LIMIT ?1`;

const readStranded = `SELECT * FROM vcp_tasks
  WHERE done_at IS NULL AND called_at IS NOT NULL AND called_at <= ${now} - ${storedWithinMs}
  ORDER BY called_at LIMIT ?1`;
const passOver = `UPDATE vcp_tasks SET called_at = NULL
  WHERE tenant = ?1 AND name = ?2 AND done_at IS NULL AND called_at <= ${now} - ${strandedForMs}`;

const claimExpired = `UPDATE vcp_tasks SET expires_at = ${now} + ${removedWithinMs}
  WHERE rowid IN (SELECT rowid FROM vcp_tasks WHERE expires_at <= ${now} LIMIT ?1) RETURNING *`;
const forgetCallbacks = `DELETE FROM vcp_callbacks WHERE rowid IN (
  SELECT rowid FROM vcp_callbacks WHERE expires_at <= ${now} LIMIT ?1)`;
const removeTask = "DELETE FROM vcp_tasks WHERE tenant = ?1 AND name = ?2";

export function createVcpCallbackRepo(shards: Shards): VcpCallbackRepo {
  const ask = (tenant: string, ...statements: readonly Statement[]): Promise<readonly StatementResult[]> =>
    shards.databaseFor(tenant).batch(statements, { repeatable: true });

  return {
    open: async (tenant, callback) => {
      await ask(tenant, { sql: openCallback, args: openArgs(tenant, callback) });
    },

    find: async (tenant, hash) => {
      const [found] = await ask(tenant, { sql: findCallback, args: [tenant, hash] });
      const row = found?.rows[0];
      if (row === undefined) return undefined;
      return { callId: String(row["call_id"]), attempt: Number(row["attempt"]), plugin: String(row["plugin"]) };
    },

    bind: async (tenant, call, task) => {
      const args = taskArgs(tenant, call, task);
      const [, , found] = await ask(
        tenant,
        { sql: insertTask, args },
        { sql: markCalled, args },
        { sql: readTask, args: [tenant, nameOf(task)] },
      );
      return bindingOf(found, call, task);
    },

    answer: async (tenant, call, task) => {
      const args = [tenant, call.callId, call.attempt, task === null ? null : nameOf(task)];
      const binding: Statement[] =
        task === null
          ? []
          : [
              { sql: insertTask, args: taskArgs(tenant, call, task) },
              { sql: readTask, args: [tenant, nameOf(task)] },
            ];
      const answers = await ask(
        tenant,
        ...binding,
        { sql: markAnswered, args },
        { sql: settleOthers, args },
        { sql: readEnding, args },
      );
      const done = answers.at(-1)?.rows[0];
      return {
        binding: task === null ? "bound" : bindingOf(answers[1], call, task),
        done: done === undefined ? undefined : toTask(done),
      };
    },

    task: async (tenant, name) => {
      const [found] = await ask(tenant, { sql: readTask, args: [tenant, nameOf(name)] });
      return taskOf(found, name);
    },

    complete: async (tenant, name, event) => {
      const args = [tenant, nameOf(name)];
      const telling =
        event === undefined ? [] : [eventStatement(tenant, event, { sql: isFirst, args: [nameOf(name)] })];
      const answers = await ask(
        tenant,
        ...telling,
        ...[completeTask, takeFirst, settleIfOther, readCompleted].map((sql) => ({ sql, args })),
      );
      const completed = answers.at(-1);
      const task = taskOf(completed, name);
      if (task === undefined) return undefined;
      const told = event !== undefined && answers[0]?.changes !== 0;
      return { task, ends: completed?.rows[0]?.["ends"] === 1, told };
    },

    settle: async (tenant, name) => {
      await ask(tenant, { sql: settleTask, args: [tenant, nameOf(name)] });
    },

    isAnswered: async (tenant, callId) => {
      const [found] = await ask(tenant, { sql: readAnswered, args: [tenant, callId] });
      return found !== undefined && found.rows.length > 0;
    },

    late: (limit) => fromAll(shards, [{ sql: readLate, args: [limit] }]),

    stranded: (limit) => fromAll(shards, [{ sql: readStranded, args: [limit] }]),

    passOver: async (tenant, name) => {
      await ask(tenant, { sql: passOver, args: [tenant, nameOf(name)] });
    },

    takeExpired: (limit) =>
      fromAll(shards, [
        { sql: claimExpired, args: [limit] },
        { sql: forgetCallbacks, args: [limit] },
      ]),

    remove: async (tenant, name) => {
      await ask(tenant, { sql: removeTask, args: [tenant, nameOf(name)] });
    },
  };
}

function openArgs(tenant: string, callback: NewCallback): SqlValue[] {
  const { callId, attempt, hash, plugin, callerId, userId, sessionId, keptMs, lifetimeMs } = callback;
  return [tenant, callId, attempt, hash, plugin, callerId, userId, sessionId, keptMs, lifetimeMs];
}

function taskArgs(tenant: string, { callId, attempt }: CallAttempt, task: TaskName): SqlValue[] {
  return [tenant, callId, attempt, nameOf(task), task.plugin, task.taskId];
}

function nameOf({ plugin, taskId }: TaskName): string {
  return `${plugin}-${taskId}`;
}

/** Nothing was written: there was no room for it. */
function bindingOf(found: StatementResult | undefined, { callId }: CallAttempt, name: TaskName): Binding {
  if (found === undefined || found.rows.length === 0) return "full";
  const task = taskOf(found, name);
  return task?.callId === callId ? "bound" : "foreign";
}

/** Another plugin's task may have the same name. */
function taskOf(found: StatementResult | undefined, { plugin, taskId }: TaskName): VcpTask | undefined {
  const row = found?.rows[0];
  const task = row === undefined ? undefined : toTask(row);
  return task?.plugin === plugin && task.taskId === taskId ? task : undefined;
}

async function fromAll(
  shards: Shards,
  statements: readonly Statement[],
): Promise<readonly { readonly tenant: string; readonly task: VcpTask }[]> {
  const answers = await everyShard(shards, (database) => database.batch(statements, { repeatable: true }));
  return answers.flatMap(([found]) =>
    (found?.rows ?? []).map((row) => ({ tenant: String(row["tenant"]), task: toTask(row) })),
  );
}

function toTask(row: StatementResult["rows"][number]): VcpTask {
  const { plugin, taskId, callId, attempt, callerId, userId, sessionId, doneAt } = decodeRow(vcpTasks, row);
  return { plugin, taskId, callId, attempt, callerId, userId, sessionId, done: doneAt !== null };
}
