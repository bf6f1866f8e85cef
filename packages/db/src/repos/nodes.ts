/**
 * Nodes and the calls that they have in hand. Contract: `NodeRepo`. A node is told of something by an event
 * for its connection, written in the transaction that made it so (decision 0021): whichever process holds the
 * socket tells it.
 */
import { getTableName, type InferSelectModel } from "drizzle-orm";
import {
  hashNodeTool,
  serverIdOf,
  type NewNodeRun,
  type NodeRecord,
  type NodeRegistration,
  type NodeRun,
} from "@toolyard/core/nodes/node";
import type { NodeRepo, RunsSeen } from "@toolyard/core/ports/nodes";
import type { Shards, SqlValue, Statement, StatementResult } from "../database.ts";
import { nodeRuns } from "../schema/node-runs.ts";
import { nodes } from "../schema/nodes.ts";
import { decodeRow } from "../sql.ts";
import { everyShard, mostChanges } from "./every-shard.ts";
import { now } from "./fragments.ts";
import { isLive } from "./live-connections.ts";
import { readFirst, readPage, type OnBrokenRow, type Reader, type Row } from "./rows.ts";

/** Of a tenant; their tools are part of its configuration. */
const mostNodes = 100;
/** The tools of a node that is away stay listed for so long, so that a short cut does not change what models see. */
const awayMs = 600_000;
/** Runs that are over stay, so that results that come twice, or after days, are known for what they are. */
const runsKeptMs = 7 * 86_400_000;
/** Whoever waits for a result has taken it by then. */
const takenWithinMs = 2_000;
/** A call's row is written at the latest when its chat ends. */
const rowWithinMs = 1_200_000;

const hasConnection = (node: string): string => `EXISTS (SELECT 1 FROM connections AS c
  WHERE c.id = ${node}.connection_id AND c.tenant = ${node}.tenant AND ${isLive})`;
const isUnderWay = "state IN ('offered', 'accepted')";

/** Other nodes that offer something of ?4, tool names with the hashes of their definitions, that is another thing. */
const clashing = `FROM nodes AS o, json_each(o.hashes) AS theirs
  JOIN json_each(?4) AS mine ON mine.key = theirs.key AND mine.value <> theirs.value
  WHERE o.tenant = ?1 AND o.name <> ?2`;
const isFree = `NOT EXISTS (SELECT 1 ${clashing} AND ${hasConnection("o")})
  AND ((SELECT COUNT(*) FROM nodes WHERE tenant = ?1) < ${mostNodes}
    OR EXISTS (SELECT 1 FROM nodes WHERE tenant = ?1 AND name = ?2))`;
const readClash = `SELECT o.name AS node, mine.key AS tool ${clashing} AND ${hasConnection("o")} AND ?3 = ?3 LIMIT 1`;

/** An event for connection `c`. @param rows whence it, `tenant` and what `data` names come */
const tell = (type: string, data: string, rows: string): string => `
  INSERT INTO connection_events (tenant, audience, audience_value, type, data, next_at)
  SELECT c.tenant, 'connection', c.id, '${type}', ${data}, CASE WHEN c.holder = '' THEN ${now} END FROM ${rows}`;
const nodeAt = `nodes AS n JOIN connections AS c ON c.id = n.connection_id AND c.tenant = n.tenant AND ${isLive}`;
const runAt = `node_runs AS r JOIN connections AS c ON c.id = r.connection_id AND c.tenant = r.tenant AND ${isLive}`;
const offered = "json_object('run', r.id, 'call_id', r.call_id, 'attempt', r.attempt, 'tool', r.tool)";

const tellReplaced = tell(
  "node.replaced",
  "json_object('name', n.name)",
  `${nodeAt} WHERE n.tenant = ?1 AND n.name = ?2 AND n.instance <> ?3 AND ${isFree}`,
);
const forgetAway = `DELETE FROM nodes WHERE tenant = ?1 AND name <> ?2 AND ?3 = ?3 AND name IN (
    SELECT o.name ${clashing} AND NOT ${hasConnection("o")}) AND ${isFree}`;
/** What its plugins gave to prompts goes with a process that another one of the name replaces, and with those that are forgotten. */
const forgetTheirValues = `DELETE FROM vcp_static_values WHERE tenant = ?1 AND ${isFree} AND source IN (
    SELECT 'node:' || name FROM nodes WHERE tenant = ?1 AND name = ?2 AND instance <> ?3
    UNION ALL SELECT 'node:' || o.name ${clashing} AND NOT ${hasConnection("o")})`;
/**
 * Before the change itself, with which it is one transaction: what is the same already changes nothing. Of VCP nodes
 * the instance is part of what is shown.
 */
const raiseForTools = `UPDATE tenants SET config_version = config_version + 1
  WHERE id = ?1 AND ?3 = ?3 AND ${isFree}
    AND NOT EXISTS (SELECT 1 FROM nodes WHERE tenant = ?1 AND name = ?2 AND hashes = ?4
      AND (instance = ?3 OR ?3 NOT LIKE 'dist-%'))`;
const putNode = `INSERT INTO nodes (tenant, name, instance, hashes, version, caller_id, connection_id, tools, id, expires_at)
  SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ${now} + ${awayMs} WHERE ${isFree}
  ON CONFLICT (tenant, name) DO UPDATE SET hashes = excluded.hashes, version = excluded.version,
    caller_id = excluded.caller_id, connection_id = excluded.connection_id, tools = excluded.tools,
    expires_at = excluded.expires_at, seen_at = ${now},
    since = CASE WHEN nodes.instance = excluded.instance THEN nodes.since ELSE ${now} END, instance = excluded.instance`;
const isThis = "EXISTS (SELECT 1 FROM nodes WHERE tenant = ?1 AND name = ?2 AND instance = ?3)";
const adoptOffers = `UPDATE node_runs SET instance = ?3
  WHERE tenant = ?1 AND node = ?2 AND ${isUnderWay} AND state = 'offered' AND ${isThis}`;
const moveRuns = `UPDATE node_runs SET connection_id = ?4
  WHERE tenant = ?1 AND node = ?2 AND instance = ?3 AND ${isUnderWay} AND ${isThis}`;
const offerAgain = tell(
  "node.call",
  offered,
  `${runAt} WHERE r.tenant = ?1 AND r.node = ?2 AND r.instance = ?3 AND r.${isUnderWay} AND r.state = 'offered'`,
);

const nodeColumns = `n.*, ${hasConnection("n")} AS connected,
  (SELECT COUNT(*) FROM node_runs WHERE tenant = n.tenant AND node = n.name AND ${isUnderWay} AND lease_until > ${now})
    AS under_way`;
const readNode = `SELECT ${nodeColumns} FROM nodes AS n WHERE n.tenant = ?1 AND n.name = ?2`;
const listNodes = {
  asc: `SELECT ${nodeColumns} FROM nodes AS n WHERE n.tenant = ?1 AND n.id > ?2 ORDER BY n.id LIMIT ?3`,
  desc: `SELECT ${nodeColumns} FROM nodes AS n WHERE n.tenant = ?1 AND (?2 = '' OR n.id < ?2) ORDER BY n.id DESC LIMIT ?3`,
} as const;

const isMeant = "n.tenant = ?1 AND n.name = ?2 AND (?3 = '' OR n.instance = ?3)";
const tellRemoved = tell("node.removed", "json_object('name', n.name)", `${nodeAt} WHERE ${isMeant} AND ?3 = ''`);
const takeBackOffers = `UPDATE node_runs SET state = 'withdrawn', ended_at = ${now}, input = CASE WHEN input = '' THEN '' END
  WHERE tenant = ?1 AND node = ?2 AND ${isUnderWay} AND state = 'offered'
    AND EXISTS (SELECT 1 FROM nodes AS n WHERE ${isMeant})`;
const raiseForRemoval = `UPDATE tenants SET config_version = config_version + 1
  WHERE id = ?1 AND EXISTS (SELECT 1 FROM nodes AS n WHERE ${isMeant})`;
const forgetOwnValues = `DELETE FROM vcp_static_values
  WHERE tenant = ?1 AND source = 'node:' || ?2 AND EXISTS (SELECT 1 FROM nodes AS n WHERE ${isMeant})`;
const deleteNode = "DELETE FROM nodes WHERE tenant = ?1 AND name = ?2 AND (?3 = '' OR instance = ?3) RETURNING name";

/** Most room first: what it has in hand of the tool, by how many it takes at once. */
const putRun = `INSERT INTO node_runs (id, tenant, call_id, attempt, node, instance, connection_id, tool, handed_over, input, lease_until)
  SELECT ?2, ?1, ?3, ?4, n.name, n.instance, n.connection_id, ?5, ?6, ?7, ${now} + ?8
  FROM ${nodeAt} WHERE n.tenant = ?1 AND (?9 = '' OR n.name = ?9)
    AND EXISTS (SELECT 1 FROM json_each(n.hashes) WHERE key = ?5 AND value = ?10)
  ORDER BY 1.0 * (SELECT COUNT(*) FROM node_runs AS r WHERE r.tenant = n.tenant AND r.node = n.name AND r.tool = ?5
      AND r.${isUnderWay} AND r.lease_until > ${now})
    / (SELECT value ->> 'concurrency' FROM json_each(n.tools) WHERE value ->> 'name' = ?5), n.name
  LIMIT 1 ON CONFLICT DO NOTHING`;
const tellOffer = tell("node.call", offered, `${runAt} WHERE r.tenant = ?1 AND r.id = ?2 AND r.state = 'offered'`);

const readRun = `SELECT r.*, ${now} AS now, ${hasConnection("r")} AS connected
  FROM node_runs AS r WHERE r.tenant = ?1 AND r.id = ?2`;

const acceptRun = `UPDATE node_runs SET state = 'accepted', lease_until = ${now} + ?4
  WHERE tenant = ?1 AND id = ?2 AND instance = ?3 AND state = 'offered' AND cancelled = 0`;
const endRun = `UPDATE node_runs SET state = 'ended', result = ?4, ended_at = ${now}, input = CASE WHEN input = '' THEN '' END
  WHERE tenant = ?1 AND id = ?2 AND instance = ?3 AND ${isUnderWay}`;

const tellCancel = (which: string): string =>
  tell("node.cancel", "json_object('run', r.id)", `${runAt} WHERE r.tenant = ?1 AND ${which} AND r.${isUnderWay}`);
const stopRuns = (which: string): string => `UPDATE node_runs SET cancelled = 1,
    ended_at = CASE WHEN state = 'offered' THEN ${now} ELSE ended_at END,
    input = CASE WHEN input = '' THEN '' END, state = CASE WHEN state = 'offered' THEN 'withdrawn' ELSE state END
  WHERE tenant = ?1 AND ${which} AND ${isUnderWay} RETURNING *, ${now} AS now, 0 AS connected`;

const seeNode = `UPDATE nodes SET seen_at = ${now}, expires_at = ${now} + ${awayMs} WHERE tenant = ?1 AND instance = ?2`;
const inHand = `tenant = ?1 AND instance = ?2 AND id IN (SELECT value FROM json_each(?3)) AND ${isUnderWay}`;
const extendRuns = `UPDATE node_runs SET lease_until = ${now} + ?4 WHERE ${inHand}`;
const extendCalls = `UPDATE calls SET lease_until = ${now} + ?4
  WHERE tenant = ?1 AND state = 'running' AND (id, attempt) IN (
    SELECT call_id, attempt FROM node_runs WHERE ${inHand} AND handed_over = 1)`;
/**
 * The call has been cancelled, has ended, or another attempt owns it. One that was given up while its node was away is
 * `unknown` until the node, which may have worked on, says what came of it.
 */
const stopUnwanted = `UPDATE node_runs SET cancelled = 1 WHERE ${inHand} AND handed_over = 1 AND NOT EXISTS (
    SELECT 1 FROM calls WHERE calls.tenant = ?1 AND calls.id = node_runs.call_id AND calls.cancel_requested = 0
      AND (calls.state = 'running' AND calls.attempt = node_runs.attempt OR calls.state = 'unknown' AND NOT EXISTS (
        SELECT 1 FROM node_runs AS newer WHERE newer.tenant = ?1 AND newer.call_id = calls.id
          AND newer.attempt > node_runs.attempt)))`;
const readInHand = `SELECT id, cancelled FROM node_runs WHERE ${inHand}`;

/** What came of runs whose calls ended without it, or can end only with it. */
const readLate = `SELECT r.*, ${now} AS now, 0 AS connected FROM node_runs AS r
  LEFT JOIN calls ON calls.tenant = r.tenant AND calls.id = r.call_id
  WHERE r.settled = 0 AND r.ended_at IS NOT NULL AND r.ended_at <= ${now} - ${takenWithinMs}
    AND (calls.id IS NULL AND r.ended_at <= ${now} - ${rowWithinMs} OR r.handed_over = 1
      OR calls.state NOT IN ('queued', 'running', 'input_required'))
  ORDER BY r.ended_at LIMIT ?1`;
const settleRun = "UPDATE node_runs SET settled = 1, result = NULL WHERE tenant = ?1 AND id = ?2";

const raiseForExpiry = `UPDATE tenants SET config_version = config_version + 1
  WHERE id IN (SELECT tenant FROM nodes WHERE expires_at <= ${now})`;
const forgetExpiredValues = `DELETE FROM vcp_static_values WHERE (tenant, source) IN (
  SELECT tenant, 'node:' || name FROM nodes WHERE expires_at <= ${now})`;
const forgetNodes = `DELETE FROM nodes WHERE expires_at <= ${now}`;
const forgetRuns = `DELETE FROM node_runs WHERE rowid IN (
  SELECT rowid FROM node_runs WHERE lease_until <= ${now} - ${runsKeptMs} LIMIT ?1)`;

export function createNodeRepo(shards: Shards, onBrokenRow: OnBrokenRow): NodeRepo {
  const reader: Reader<typeof nodes, NodeRecord> = {
    table: nodes,
    tableName: getTableName(nodes),
    key: nodes.id,
    onBrokenRow,
    toRecord: toNode,
  };
  const ask = (tenant: string, ...statements: readonly Statement[]): Promise<readonly StatementResult[]> =>
    shards.databaseFor(tenant).batch(statements, { repeatable: true });

  const change = async (
    tenant: string,
    id: string,
    ...statements: readonly Statement[]
  ): Promise<NodeRun | undefined> => {
    const answers = await ask(tenant, ...statements, { sql: readRun, args: [tenant, id] });
    return answers.at(-1)?.rows.map(toRun)[0];
  };

  return {
    register: async (tenant, registration) => {
      const own = [tenant, registration.name, registration.instance];
      const args = [...own, hashesOf(registration)];
      const [clash, , , , , , , , , found] = await ask(
        tenant,
        { sql: readClash, args },
        { sql: tellReplaced, args },
        { sql: forgetTheirValues, args },
        { sql: forgetAway, args },
        { sql: raiseForTools, args },
        { sql: putNode, args: [...args, ...nodeArgs(registration)] },
        { sql: adoptOffers, args: own },
        { sql: moveRuns, args: [...own, registration.connectionId] },
        { sql: offerAgain, args: own },
        { sql: readNode, args: own.slice(0, 2) },
      );
      const taken = clash?.rows[0];
      if (taken !== undefined) return { kind: "collision", tool: String(taken["tool"]), node: String(taken["node"]) };
      const node = readFirst(reader, found);
      return node?.instance === registration.instance ? { kind: "registered", node } : { kind: "full" };
    },

    remove: async (tenant, name, instance = "") => {
      const args = [tenant, name, instance];
      const statements = [tellRemoved, takeBackOffers, raiseForRemoval, forgetOwnValues, deleteNode];
      const answers = await shards.databaseFor(tenant).batch(statements.map((sql) => ({ sql, args })));
      return (answers.at(-1)?.rows.length ?? 0) > 0;
    },

    get: async (tenant, name) => {
      const [found] = await ask(tenant, { sql: readNode, args: [tenant, name] });
      return readFirst(reader, found);
    },

    list: async (tenant, page) => {
      const { limit, after = "", order } = page;
      const [found] = await ask(tenant, { sql: listNodes[order], args: [tenant, after, limit + 1] });
      return readPage(reader, found, page);
    },

    offer: (tenant, run) =>
      change(tenant, run.id, { sql: putRun, args: runArgs(tenant, run) }, { sql: tellOffer, args: [tenant, run.id] }),

    run: (tenant, id) => change(tenant, id),

    accept: async (tenant, id, instance, leaseMs) => {
      const run = await change(tenant, id, { sql: acceptRun, args: [tenant, id, instance, leaseMs] });
      return run?.state === "accepted" && run.instance === instance && !run.cancelled ? run : undefined;
    },

    extend: async (tenant, instance, runs, leaseMs) => {
      const hand = [tenant, instance, JSON.stringify(runs)];
      const answers = await ask(
        tenant,
        { sql: seeNode, args: [tenant, instance] },
        { sql: extendRuns, args: [...hand, leaseMs] },
        { sql: extendCalls, args: [...hand, leaseMs] },
        { sql: stopUnwanted, args: hand },
        { sql: readInHand, args: hand },
      );
      return toSeen(answers.at(-1));
    },

    end: async (tenant, id, instance, result) => {
      const run = await change(tenant, id, { sql: endRun, args: [tenant, id, instance, result] });
      return run?.instance === instance ? run : undefined;
    },

    withdraw: (tenant, id) =>
      change(
        tenant,
        id,
        { sql: tellCancel("r.id = ?2"), args: [tenant, id] },
        { sql: stopRuns("id = ?2"), args: [tenant, id] },
      ),

    cancelCall: async (tenant, callId) => {
      const [, stopped] = await shards.databaseFor(tenant).batch([
        { sql: tellCancel("r.call_id = ?2"), args: [tenant, callId] },
        { sql: stopRuns("call_id = ?2"), args: [tenant, callId] },
      ]);
      return (stopped?.rows ?? []).map(toRun);
    },

    late: async (limit) => {
      const answers = await everyShard(shards, (database) => database.batch([{ sql: readLate, args: [limit] }]));
      return answers.flatMap(([found]) =>
        (found?.rows ?? []).map((row) => ({ tenant: String(row["tenant"]), run: toRun(row) })),
      );
    },

    settle: async (tenant, id) => {
      await ask(tenant, { sql: settleRun, args: [tenant, id] });
    },

    expire: async (limit) => {
      const statements = [
        { sql: raiseForExpiry, args: [] },
        { sql: forgetExpiredValues, args: [] },
        { sql: forgetNodes, args: [] },
        { sql: forgetRuns, args: [limit] },
      ];
      const answers = await everyShard(shards, (database) => database.batch(statements));
      return mostChanges(answers.map((results) => results.slice(-1)));
    },
  };
}

function hashesOf({ tools }: NodeRegistration): string {
  return JSON.stringify(
    Object.fromEntries(
      tools.map((tool) => [tool.name, hashNodeTool(tool)] as const).toSorted(([a], [b]) => (a < b ? -1 : 1)),
    ),
  );
}

function nodeArgs({ id, version, callerId, connectionId, tools }: NodeRegistration): SqlValue[] {
  return [version, callerId, connectionId, JSON.stringify(tools), id];
}

function runArgs(tenant: string, run: NewNodeRun): SqlValue[] {
  const { id, callId, attempt, tool, handedOver, input, leaseMs, node, toolHash } = run;
  return [tenant, id, callId, attempt, tool, handedOver ? 1 : 0, input, leaseMs, node ?? "", toolHash];
}

function toNode(record: InferSelectModel<typeof nodes>, row: Row): NodeRecord {
  const { tenant: _tenant, hashes: _hashes, expiresAt: _expiresAt, ...node } = record;
  const serverId = serverIdOf(node.instance);
  return {
    ...node,
    ...(serverId === undefined ? {} : { serverId }),
    connected: row["connected"] === 1,
    underWay: Number(row["under_way"]),
  };
}

function toRun(row: Row): NodeRun {
  const {
    tenant: _tenant,
    createdAt: _createdAt,
    endedAt: _endedAt,
    settled: _settled,
    ...run
  } = decodeRow(nodeRuns, row);
  return { ...run, now: Number(row["now"]), connected: row["connected"] === 1 };
}

function toSeen(found: StatementResult | undefined): RunsSeen {
  const rows = found?.rows ?? [];
  return {
    known: rows.map((row) => String(row["id"])),
    cancelled: rows.filter((row) => row["cancelled"] === 1).map((row) => String(row["id"])),
  };
}
