/** Steps and signals of runs of flows. Contract: `FlowRunRepo`. */
import { getTableName } from "drizzle-orm";
import type { CallState } from "@toolyard/core/calls/call";
import type { FlowRunRepo, FlowRunWrite, FlowSignal, FlowStep, FlowStepWrite } from "@toolyard/core/ports/flow-runs";
import type { Shards, Statement } from "../database.ts";
import { flowSignals } from "../schema/flow-signals.ts";
import { flowSteps } from "../schema/flow-steps.ts";
import { parkStatement, wakeCall } from "./calls-lease.ts";
import { callReader, endOfNewRow, endStatements, insertCallOfRun, newRowArgs } from "./calls-rows.ts";
import { recordStatements } from "./calls-settle.ts";
import { now } from "./fragments.ts";
import { readFirst, readWhole, type OnBrokenRow, type Reader } from "./rows.ts";

const steps = getTableName(flowSteps);
const signals = getTableName(flowSignals);

const readRun = "SELECT * FROM calls WHERE tenant = ?1 AND id = ?2";

const readSteps = `SELECT * FROM ${steps} WHERE tenant = ?1 AND run = ?2 ORDER BY seq`;

const readOpenCalls = `SELECT * FROM calls WHERE tenant = ?1 AND id IN (
    SELECT call_id FROM ${steps} WHERE tenant = ?1 AND run = ?2 AND finished_at IS NULL AND call_id IS NOT NULL
    UNION ALL
    SELECT question_id FROM ${steps} WHERE tenant = ?1 AND run = ?2 AND finished_at IS NULL AND question_id IS NOT NULL)`;

const readSignals = `SELECT * FROM ${signals} WHERE tenant = ?1 AND run = ?2 ORDER BY number`;

const isHeld = "(tenant = ?1 AND id = ?2 AND attempt = ?3 AND state = 'running')";

const explain = `SELECT CASE WHEN ${isHeld} THEN 1 ELSE 0 END AS held, cancel_requested, woken,
    EXISTS (SELECT 1 FROM api_keys AS k WHERE k.tenant = ?1 AND k.id = calls.caller_id
      AND (k.revoked_at IS NOT NULL OR k.expires_at <= ${now})) AS caller_gone
  FROM calls WHERE tenant = ?1 AND id = ?2`;

/** Numbers go on from the last one; sent twice, the second only numbers anew. */
const putSteps = `INSERT INTO ${steps} (tenant, run, path, node, kind, state, attempt, input, output, error, call_id,
    question_id, progress, wake_at, started_at, finished_at, started_seq, seq)
  SELECT ?1, ?2, value ->> 'path', value ->> 'node', value ->> 'kind', value ->> 'state', value ->> 'attempt',
    value ->> 'input', value ->> 'output', value ->> 'error', value ->> 'callId', value ->> 'questionId',
    value ->> 'progress', value ->> 'wakeAt', moment, CASE WHEN value ->> 'hasEnded' THEN moment END,
    last + key + 1, last + key + 1
  FROM json_each(?4) CROSS JOIN (SELECT
    (SELECT COALESCE(MAX(seq), 0) FROM ${steps} WHERE tenant = ?1 AND run = ?2) AS last,
    CAST(unixepoch('subsec') * 1000 AS INTEGER) AS moment)
  WHERE EXISTS (SELECT 1 FROM calls WHERE tenant = ?1 AND id = ?2 AND (?3 IS NULL OR ${isHeld}))
  ON CONFLICT (tenant, run, path) DO UPDATE SET state = excluded.state, attempt = excluded.attempt,
    input = COALESCE(excluded.input, input), output = excluded.output, error = excluded.error,
    call_id = excluded.call_id, question_id = excluded.question_id, progress = excluded.progress,
    wake_at = excluded.wake_at, finished_at = excluded.finished_at, seq = excluded.seq`;

const takeSignals = `UPDATE ${signals} SET path = (
    SELECT taken.value ->> 'path' FROM json_each(?4) AS taken WHERE taken.value ->> 'token' = ${signals}.token)
  WHERE tenant = ?1 AND run = ?2 AND token IN (SELECT taken.value ->> 'token' FROM json_each(?4) AS taken)
    AND EXISTS (SELECT 1 FROM calls WHERE ${isHeld})`;

const readStates = `SELECT id, state FROM calls WHERE tenant = ?1 AND id IN (SELECT value FROM json_each(?2))`;

const readChanges = `SELECT * FROM ${steps} WHERE tenant = ?1 AND run = ?2 AND seq > ?3
  ORDER BY CASE WHEN started_seq > ?3 THEN started_seq ELSE seq END LIMIT ?4`;

const keepSignal = `INSERT INTO ${signals} (tenant, run, token, name, payload, number)
  SELECT ?1, ?2, ?3, ?4, ?5, (SELECT COALESCE(MAX(number), 0) + 1 FROM ${signals} WHERE tenant = ?1 AND run = ?2)
  FROM calls WHERE tenant = ?1 AND id = ?2 AND repeat = 'resume' AND state IN ('queued', 'running', 'input_required')
  ON CONFLICT DO NOTHING RETURNING token`;

const readSignal = `SELECT * FROM ${signals} WHERE tenant = ?1 AND run = ?2 AND token = ?3`;
const readRepeat = "SELECT repeat FROM calls WHERE tenant = ?1 AND id = ?2";

const readLastDecided = `SELECT id FROM calls WHERE tenant = ?1 AND parent_id = ?2 AND approval IS NOT NULL
  ORDER BY approval ->> '$.at' DESC LIMIT 1`;

export function createFlowRunRepo(shards: Shards, onBrokenRow: OnBrokenRow): FlowRunRepo {
  const ofCalls = callReader(onBrokenRow);
  const ofSteps: Reader<typeof flowSteps, FlowStep> = {
    table: flowSteps,
    tableName: getTableName(flowSteps),
    key: flowSteps.path,
    onBrokenRow,
    toRecord: ({ tenant: _tenant, run: _run, ...step }) => step,
  };
  const ofSignals: Reader<typeof flowSignals, FlowSignal> = {
    table: flowSignals,
    tableName: getTableName(flowSignals),
    key: flowSignals.token,
    onBrokenRow,
    toRecord: ({ tenant: _tenant, run: _run, createdAt: _createdAt, ...signal }) => signal,
  };
  return {
    load: async (tenant, run) => {
      const args = [tenant, run];
      const [found, stepRows, callRows, signalRows] = await shards.databaseFor(tenant).batch(
        [readRun, readSteps, readOpenCalls, readSignals].map((sql) => ({ sql, args })),
        { readonly: true },
      );
      const call = readFirst(ofCalls, found);
      if (call === undefined) return undefined;
      return {
        call,
        wakes: Number(found?.rows[0]?.["woken"]),
        steps: readWhole(ofSteps, stepRows),
        calls: readWhole(ofCalls, callRows),
        signals: readWhole(ofSignals, signalRows),
      };
    },

    write: async (tenant, write) => {
      const { statements, statesAt, parkedAt } = writeStatements(tenant, write);
      const results = await shards.databaseFor(tenant).batch(statements, { repeatable: true });
      const explained = results[0]?.rows[0];
      const states = (results[statesAt]?.rows ?? []).map(
        ({ id, state }) => [String(id), String(state) as CallState] as const,
      );
      return {
        held: explained?.["held"] === 1,
        cancelRequested: explained?.["cancel_requested"] === 1,
        callerGone: explained?.["caller_gone"] === 1,
        wakes: Number(explained?.["woken"] ?? 0),
        states: new Map(states),
        dueInMs: new Map(
          [...parkedAt].flatMap(([id, at]) => {
            const due = results[at]?.rows[0]?.["due_in"];
            return due === undefined ? [] : [[id, Number(due)] as const];
          }),
        ),
      };
    },

    changes: async (tenant, run, after, limit) => {
      const [found, stepRows] = await shards.databaseFor(tenant).batch(
        [
          { sql: readRun, args: [tenant, run] },
          { sql: readChanges, args: [tenant, run, after, limit] },
        ],
        { readonly: true },
      );
      const call = readFirst(ofCalls, found);
      return call === undefined ? undefined : { call, steps: readWhole(ofSteps, stepRows) };
    },

    signal: async (tenant, run, { token, name, payload }) => {
      const [kept, , known, found] = await shards.databaseFor(tenant).batch(
        [
          { sql: keepSignal, args: [tenant, run, token, name, JSON.stringify(payload)] },
          { sql: wakeCall, args: [tenant, run] },
          { sql: readSignal, args: [tenant, run, token] },
          { sql: readRepeat, args: [tenant, run] },
        ],
        { repeatable: true },
      );
      if ((kept?.rows.length ?? 0) > 0) return "kept";
      const before = readFirst(ofSignals, known);
      if (before !== undefined) return before;
      return found?.rows[0]?.["repeat"] === "resume" ? "ended" : "unknown_run";
    },

    lastDecided: async (tenant, run) => {
      const args = [tenant, run];
      const [found] = await shards.databaseFor(tenant).batch([{ sql: readLastDecided, args }], { readonly: true });
      const id = found?.rows[0]?.["id"];
      return typeof id === "string" ? id : undefined;
    },

    recordWithSteps: async (tenant, callerId, call, done) => {
      const recorded = recordStatements(tenant, { callerId, calls: [call] });
      // Where another run has its key, there is no such run.
      const put = { sql: putSteps, args: [tenant, call.id, null, stepArgs(done)] };
      const results = await shards.databaseFor(tenant).batch([...recorded.statements, put], { repeatable: true });
      const [result] = recorded.read(results);
      return result ?? { id: call.id, kind: "recorded" };
    },
  };
}

function writeStatements(
  tenant: string,
  { run, attempt, steps: written, calls, concurrency, ends, taken }: FlowRunWrite,
): {
  readonly statements: readonly Statement[];
  readonly statesAt: number;
  readonly parkedAt: ReadonlyMap<string, number>;
} {
  const held = [tenant, run, attempt];
  const statements: Statement[] = [{ sql: explain, args: held }];
  const parkedAt = new Map<string, number>();
  // Before anything else: what was done is done, whoever holds the run now.
  for (const end of ends) {
    if (end.finish.state === "queued") {
      const { wakeInMs = null, ...rest } = end.finish.parked ?? {};
      parkedAt.set(end.id, statements.length);
      statements.push(parkStatement(tenant, { id: end.id, attempt: end.attempt, inMs: wakeInMs, ...rest }));
    } else statements.push(...endStatements(tenant, end));
  }
  for (const call of calls) {
    statements.push({ sql: insertCallOfRun, args: [...newRowArgs(tenant, null, call), run, attempt, concurrency] });
    statements.push(...endOfNewRow(tenant, call));
  }
  if (written.length > 0) statements.push({ sql: putSteps, args: [...held, stepArgs(written)] });
  if (taken.length > 0) statements.push({ sql: takeSignals, args: [...held, JSON.stringify(taken)] });
  const statesAt = statements.length;
  if (calls.length > 0) {
    statements.push({ sql: readStates, args: [tenant, JSON.stringify(calls.map(({ id }) => id))] });
  }
  return { statements, statesAt, parkedAt };
}

function stepArgs(written: readonly FlowStepWrite[]): string {
  return JSON.stringify(
    written.map(({ input, output, error, progress, ...step }) => ({
      ...step,
      input: jsonText(input),
      output: jsonText(output),
      error: jsonText(error),
      progress: jsonText(progress),
      hasEnded: step.state === "completed" || step.state === "failed",
    })),
  );
}

function jsonText(value: unknown): string | null {
  return value === null ? null : JSON.stringify(value);
}
