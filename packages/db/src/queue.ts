/**
 * The task queue as a table, for homes without SQS and with its manners: at least once, hidden while
 * somebody works on it, dead letters after five receives. Messages lie in the directory database,
 * whichever shard their rows are on, so that a worker polls one place.
 */
import { randomUUID } from "node:crypto";
import type { PolledTaskQueue, QueueMessage, ReceivedMessage } from "@toolyard/core/ports/task-queue";
import type { Shards, StatementResult } from "./database.ts";
import { countOf, countsOf, now } from "./repos/fragments.ts";

type Row = StatementResult["rows"][number];

/** As SQS allows. */
const longestDelayMs = 900_000;
const defaultMaxReceives = 5;
const deadLettersRead = 1_000;

export interface DatabaseQueueOptions {
  /** Receives after which a message goes to the dead letters. Default 5. */
  readonly maxReceives?: number;
}

const sendMessages = `INSERT INTO queue_messages (id, tenant, queue, call_id, visible_at)
  SELECT message.value ->> 'id', message.value ->> 'tenant', ?1, message.value ->> 'callId', ${now} + ?3
  FROM json_each(?2) AS message WHERE true
  ON CONFLICT (id) DO NOTHING`;

const waiting = "queue = ?1 AND dead_at IS NULL";

/** More than have work at one time; it bounds what a receive looks at, whatever there is. */
const mostTenants = 1_000;
/** Looked through for them, some microseconds each: most may have nothing but messages that wait with a delay. */
const mostWalked = 5_000;

/** The first message of the next tenant after `before`; so its time says whether the tenant has anything due. */
const firstOfNext = (before: string): string => `(
  SELECT rowid FROM queue_messages WHERE ${waiting} ${before} ORDER BY tenant, visible_at LIMIT 1)`;

/**
 * Tenants by turns, what one has in hand counted as its first ones: nobody's backlog is before somebody else's single
 * message. Of each tenant only its oldest few are looked at, no more than its share (?6, with what the receiver has in
 * hand by tenant in ?7), and of the others only where there is more than is asked for; beyond those bounds they with
 * the oldest messages still have their turn.
 */
const nextMessages = `WITH RECURSIVE
  oldest AS MATERIALIZED (
    SELECT tenant FROM queue_messages WHERE ${waiting} AND visible_at <= ${now} ORDER BY visible_at LIMIT ?2 + 1),
  others (tenant, is_due, found) AS (
    SELECT tenant, visible_at <= ${now}, visible_at <= ${now}
    FROM queue_messages WHERE rowid = ${firstOfNext("")} AND (SELECT COUNT(*) FROM oldest) > ?2
    UNION ALL
    SELECT first.tenant, first.visible_at <= ${now}, others.found + (first.visible_at <= ${now})
    FROM others CROSS JOIN queue_messages AS first ON first.rowid = ${firstOfNext("AND tenant > others.tenant")}
    WHERE others.found < ${mostTenants} LIMIT ${mostWalked}),
  owners AS (
    SELECT tenant, ${countOf("?7", "tenant")} AS own, (
      SELECT COUNT(*) FROM queue_messages AS held
      WHERE held.queue = ?1 AND held.tenant = owner.tenant AND held.receipt IS NOT NULL AND held.dead_at IS NULL
        AND held.visible_at > ${now}) AS in_hand
    FROM (SELECT tenant FROM others WHERE is_due UNION SELECT tenant FROM oldest) AS owner)
  SELECT id FROM (
    SELECT id, visible_at, place + in_hand AS turn FROM (
      SELECT message.id, message.visible_at, owners.own, owners.in_hand,
        ROW_NUMBER() OVER (PARTITION BY message.tenant ORDER BY message.visible_at) AS place
      FROM owners CROSS JOIN queue_messages AS message ON message.rowid IN (
        SELECT rowid FROM queue_messages
        WHERE ${waiting} AND tenant = owners.tenant AND visible_at <= ${now} ORDER BY visible_at LIMIT MIN(?2, ?6))
      WHERE owners.own < ?6)
    WHERE place + own <= ?6)
  ORDER BY turn, visible_at LIMIT ?2`;

/**
 * A message that has been received too often is taken once more, to be laid aside. Sent twice, the
 * second finds by its receipt what the first took.
 */
const takeMessages = `UPDATE queue_messages SET
    dead_at = CASE WHEN receipt IS NOT ?3 AND receives >= ?5 THEN ${now} END,
    receives = receives + (receipt IS NOT ?3),
    visible_at = ${now} + ?4,
    receipt = ?3
  WHERE id IN (
    SELECT id FROM (
      SELECT id FROM queue_messages WHERE receipt = ?3 AND dead_at IS NULL
      UNION ALL
      SELECT id FROM (${nextMessages})
    ) LIMIT ?2)
  RETURNING id, tenant, call_id, receives, receipt, dead_at`;

const deleteMessages = `DELETE FROM queue_messages
  WHERE queue = ?1 AND (id, receipt) IN (
    SELECT receipt.value ->> 'id', receipt.value ->> 'token' FROM json_each(?2) AS receipt)`;

const readDead = `SELECT tenant, call_id FROM queue_messages
  WHERE queue = ?1 AND dead_at IS NOT NULL ORDER BY dead_at DESC LIMIT ${deadLettersRead}`;

export function createDatabaseTaskQueue(
  shards: Shards,
  { maxReceives = defaultMaxReceives }: DatabaseQueueOptions = {},
): PolledTaskQueue {
  const database = shards.directory;
  return {
    waits: false,
    /** @throws RangeError for a delay above 15 minutes */
    send: async (queue, messages, { delayMs = 0 } = {}) => {
      if (delayMs > longestDelayMs) {
        throw new RangeError(`A message waits ${longestDelayMs} ms at most; a longer wait is a row with 'run_at'.`);
      }
      if (messages.length === 0) return;
      const named = messages.map(({ tenant, callId }) => ({ id: randomUUID(), tenant, callId }));
      await database.batch([{ sql: sendMessages, args: [queue, JSON.stringify(named), Math.max(0, delayMs)] }], {
        repeatable: true,
      });
    },
    ping: async () => {
      await database.batch([{ sql: "SELECT 1 FROM queue_messages LIMIT 1", args: [] }], { readonly: true });
    },
    receive: async (queue, { limit, visibilityMs, share = { most: limit, inHand: [] } }) => {
      const args = [queue, limit, randomUUID(), visibilityMs, maxReceives, share.most, countsOf(share.inHand)];
      const [taken] = await database.batch([{ sql: takeMessages, args }], { repeatable: true });
      return (taken?.rows ?? []).filter((row) => row["dead_at"] === null).map(toReceived);
    },
    delete: async (queue, receipts) => {
      if (receipts.length === 0) return;
      const held = receipts.map(readReceipt);
      await database.batch([{ sql: deleteMessages, args: [queue, JSON.stringify(held)] }], { repeatable: true });
    },
    deadLetters: async (queue) => {
      const [found] = await database.batch([{ sql: readDead, args: [queue] }], { readonly: true });
      return (found?.rows ?? []).map(toMessage);
    },
  };
}

function toMessage(row: Row): QueueMessage {
  return { tenant: String(row["tenant"]), callId: String(row["call_id"]) };
}

function toReceived(row: Row): ReceivedMessage {
  return {
    ...toMessage(row),
    receives: Number(row["receives"]),
    receipt: `${String(row["id"])}.${String(row["receipt"])}`,
  };
}

/** The message and this receive of it: after another receive, an older receipt deletes nothing. */
function readReceipt(receipt: string): { readonly id: string; readonly token: string } {
  const dot = receipt.indexOf(".");
  return { id: receipt.slice(0, dot), token: receipt.slice(dot + 1) };
}
