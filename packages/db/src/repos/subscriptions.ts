/** Subscriptions, who holds them, and what becomes of their messages. Contract: `SubscriptionRepo`. */
import { and, asc, eq, getTableName, sql, type SQL } from "drizzle-orm";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { Beginning, Holding, SubscriptionRepo } from "@toolyard/core/ports/subscriptions";
import {
  subscriptionRoute,
  type FailedMessage,
  type HolderReport,
  type MessageSubscription,
  type SubscriptionChange,
  type SubscriptionHolder,
} from "@toolyard/core/subscriptions/subscription";
import { mostOf } from "@toolyard/core/ports/limits";
import { nowMs } from "../columns.ts";
import type { Shards, SqlValue, Statement, StatementResult } from "../database.ts";
import { failedMessages } from "../schema/failed-messages.ts";
import { subscriptionHolders } from "../schema/subscription-holders.ts";
import { subscriptions } from "../schema/subscriptions.ts";
import { build, decodeRow, statement } from "../sql.ts";
import { everyShard, mostChanges } from "./every-shard.ts";
import { now } from "./fragments.ts";
import { isLive } from "./live-connections.ts";
import { type OnBrokenRow, otherVersion, readRows, type Reader, readFirst, readPage, selectPage } from "./rows.ts";

/** Of a tenant: a node reads all of them with each sign of life. */
const mostSubscriptions = mostOf.subscriptions;
/** A holder that went silent shows for so long, with what it said last. */
const goneShownMs = 86_400_000;
/** As long as a message that comes again is known for what it is. */
const lanesKeptMs = 86_400_000;
const failuresKeptMs = 30 * 86_400_000;

const insertSubscription = `INSERT INTO subscriptions
    (id, tenant, name, description, service_id, topic, target, options, enabled, role)
  SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10
  WHERE (SELECT COUNT(*) FROM subscriptions WHERE tenant = ?2) < ${mostSubscriptions}
  ON CONFLICT DO NOTHING`;

const isConnected = `EXISTS (SELECT 1 FROM connections AS c
  WHERE c.id = h.connection_id AND c.tenant = h.tenant AND ${isLive})`;

/** Somebody else has it, is there, and has said so within the lease. */
const isTaken = `EXISTS (SELECT 1 FROM subscription_holders AS h
  WHERE h.tenant = ?1 AND h.subscription_id = wanted.value ->> 'id' AND h.instance <> ?2
    AND h.lease_until > ${now} AND ${isConnected})`;

const takeLeases = `INSERT INTO subscription_holders (tenant, instance, subscription_id, node, connection_id, lease_until)
  SELECT ?1, ?2, wanted.value ->> 'id', ?4, ?5, ${now} + ?6 FROM json_each(?3) AS wanted
  WHERE (wanted.value ->> 'exclusive' = 0 OR NOT ${isTaken})
    AND EXISTS (SELECT 1 FROM subscriptions AS s WHERE s.tenant = ?1 AND s.id = wanted.value ->> 'id')
  ON CONFLICT (tenant, subscription_id, instance) DO UPDATE SET node = excluded.node,
    connection_id = excluded.connection_id, lease_until = excluded.lease_until, seen_at = ${now}
  RETURNING subscription_id`;
const wantedIds = "(SELECT value ->> 'id' FROM json_each(?3))";
/** What is not wanted, and exclusive ones that went to somebody else while this one was away. */
const dropLeases = `DELETE FROM subscription_holders
  WHERE tenant = ?1 AND instance = ?2 AND (subscription_id NOT IN ${wantedIds} OR EXISTS (
    SELECT 1 FROM json_each(?3) AS wanted WHERE wanted.value ->> 'id' = subscription_id
      AND wanted.value ->> 'exclusive' = 1 AND ${isTaken}))`;
/** Whoever had an exclusive one and is away has it no longer, and is not heard should it come back. */
const dropOthers = `DELETE FROM subscription_holders
  WHERE tenant = ?1 AND instance <> ?2 AND subscription_id IN (
    SELECT h.subscription_id FROM subscription_holders AS h JOIN json_each(?3) AS wanted
      ON wanted.value ->> 'id' = h.subscription_id AND wanted.value ->> 'exclusive' = 1
    WHERE h.tenant = ?1 AND h.instance = ?2)`;

const reportOf = (field: string): string =>
  `(SELECT value ->> '${field}' FROM json_each(?3) WHERE value ->> 'id' = subscription_id)`;
const isReported = "subscription_id IN (SELECT value ->> 'id' FROM json_each(?3))";
const noteReports = `UPDATE subscription_holders SET state = ${reportOf("state")}, error_code = ${reportOf("code")},
    error_message = ${reportOf("message")}, waiting = ${reportOf("waiting")}, in_hand = ${reportOf("in_hand")},
    last_error_at = CASE WHEN ${reportOf("code")} IS NULL THEN last_error_at ELSE ${now} END
  WHERE tenant = ?1 AND instance = ?2 AND ${isReported}`;
const counted = ["accepted", "duplicates", "refused", "dead", "dropped"] as const;
const countReports = `UPDATE subscriptions SET
    ${counted.map((name) => `${name} = subscriptions.${name} + report.${name}`).join(", ")},
    last_message_at = NULLIF(MAX(COALESCE(subscriptions.last_message_at, 0), COALESCE(report.last_message_at, 0)), 0)
  FROM (SELECT value ->> 'id' AS id, ${counted.map((name) => `value ->> '${name}' AS ${name}`).join(", ")},
    value ->> 'last_message_at' AS last_message_at FROM json_each(?2)) AS report
  WHERE subscriptions.tenant = ?1 AND subscriptions.id = report.id
    AND ${counted.map((name) => `report.${name}`).join(" + ")} > 0`;

const readHolders = `SELECT h.*, ${isConnected} AND h.lease_until > ${now} AS connected FROM subscription_holders AS h
  WHERE h.tenant = ?1 AND h.subscription_id = ?2 ORDER BY h.since, h.instance LIMIT 100`;

// As the index `calls_of_subscriptions` has it.
const open = `route || '' = '${subscriptionRoute}' AND state IN ('queued', 'running', 'input_required')`;
const callOf = (key: string): string => `SELECT id FROM calls
  WHERE tenant = ?1 AND caller_id = ?2 AND route = '${subscriptionRoute}' AND idempotency_key = ${key}`;
/** A call that waits for a person holds nobody up: that may take days. */
const isUnderWay = (key: string): string => `EXISTS (SELECT 1 FROM calls
  WHERE tenant = ?1 AND caller_id = ?2 AND idempotency_key = ${key} AND ${open} AND state <> 'input_required')`;
const takeLane = `INSERT INTO subscription_lanes (tenant, subscription_id, key, lane)
  SELECT ?1, ?2, ?3, ?4 WHERE NOT EXISTS (${callOf("?3")})
    AND EXISTS (SELECT 1 FROM subscriptions WHERE tenant = ?1 AND id = ?2)
  ON CONFLICT (tenant, subscription_id, lane) DO UPDATE SET key = excluded.key, updated_at = ${now}
    WHERE NOT ${isUnderWay("subscription_lanes.key")}`;
const readSubscription = "SELECT * FROM subscriptions WHERE tenant = ?1 AND id = ?2";
const readBeginning = `SELECT
  (SELECT config_version FROM tenants WHERE id = ?1) AS config_version,
  EXISTS (SELECT 1 FROM subscription_holders
    WHERE tenant = ?1 AND subscription_id = ?2 AND instance = ?5 AND lease_until > ${now}) AS is_holder,
  (${callOf("?3")}) AS call_id,
  (SELECT COUNT(*) FROM calls WHERE tenant = ?1 AND caller_id = ?2 AND ${open}) AS open_calls,
  ?4 IS NULL OR COALESCE((SELECT key = ?3 FROM subscription_lanes
    WHERE tenant = ?1 AND subscription_id = ?2 AND lane = ?4), 1) AS is_next`;
const readFailure = "SELECT * FROM failed_messages WHERE tenant = ?1 AND subscription_id = ?2 AND key = ?3";

const countFailure = `INSERT INTO failed_messages
    (tenant, subscription_id, key, message_id, attempts, is_dead, code, message, id)
  SELECT ?1, ?2, ?3, ?4, 1, ?7 <= 1, ?5, ?6, ?8 WHERE EXISTS (SELECT 1 FROM subscriptions WHERE tenant = ?1 AND id = ?2)
  ON CONFLICT (tenant, subscription_id, key) DO UPDATE SET attempts = attempts + 1, is_dead = attempts + 1 >= ?7,
    code = excluded.code, message = excluded.message, last_at = ${now}
  RETURNING *`;

const among = (table: string, due: string): Statement["sql"] =>
  `DELETE FROM ${table} WHERE rowid IN (SELECT rowid FROM ${table} WHERE ${due} LIMIT ?1)`;
const expiries = [
  among("subscription_holders", `lease_until <= ${now} - ${goneShownMs}`),
  among("subscription_lanes", `updated_at <= ${now} - ${lanesKeptMs}`),
  among("failed_messages", `last_at <= ${now} - ${failuresKeptMs}`),
];

export function createSubscriptionRepo(shards: Shards, onBrokenRow: OnBrokenRow): SubscriptionRepo {
  const reader: Reader<typeof subscriptions, MessageSubscription> = {
    table: subscriptions,
    tableName: getTableName(subscriptions),
    key: subscriptions.id,
    onBrokenRow,
    toRecord: ({ tenant: _tenant, accepted, duplicates, refused, dead, dropped, ...subscription }) => ({
      ...subscription,
      totals: { accepted, duplicates, refused, dead, dropped },
    }),
  };
  const failureReader: Reader<typeof failedMessages, FailedMessage> = {
    table: failedMessages,
    tableName: getTableName(failedMessages),
    key: failedMessages.id,
    onBrokenRow,
    toRecord: ({ tenant: _tenant, subscriptionId: _subscription, key: _key, ...failed }) => failed,
  };
  const readonly = { readonly: true } as const;

  return {
    create: async (tenant, subscription) => {
      const { id, name, description, serviceId, topic, target, options, enabled, role } = subscription;
      const json = [JSON.stringify(target), JSON.stringify(options)];
      const args = [id, tenant, name, description, serviceId, topic, ...json, enabled ? 1 : 0, role];
      const [, found, counted] = await shards.databaseFor(tenant).batch(
        [
          { sql: insertSubscription, args },
          { sql: readSubscription, args: [tenant, id] },
          { sql: "SELECT COUNT(*) AS count FROM subscriptions WHERE tenant = ?1", args: [tenant] },
        ],
        { repeatable: true },
      );
      const created = readFirst(reader, found);
      if (created !== undefined) return created;
      throw Number(counted?.rows[0]?.["count"]) >= mostSubscriptions ? tooMany() : nameTaken(name);
    },

    update: async (tenant, id, change, expectedVersion) => {
      const expected = expectedVersion === undefined ? undefined : eq(subscriptions.version, expectedVersion);
      const update = build
        .update(subscriptions)
        .set({ ...columnsOf(change), version: sql`${subscriptions.version} + 1`, updatedAt: nowMs })
        .where(and(own(tenant, id), expected))
        .returning();
      const [updated, found] = await shards
        .databaseFor(tenant)
        .batch([statement(update), { sql: readSubscription, args: [tenant, id] }]);
      const record = readFirst(reader, updated);
      const version = found?.rows[0]?.["version"];
      if (record === undefined && version !== undefined)
        throw otherVersion("subscription", Number(version), expectedVersion);
      return record;
    },

    get: async (tenant, id) => {
      const [found] = await shards.databaseFor(tenant).batch([{ sql: readSubscription, args: [tenant, id] }], readonly);
      return readFirst(reader, found);
    },

    list: async (tenant, page) => {
      const select = selectPage(reader, eq(subscriptions.tenant, tenant), page);
      const [found] = await shards.databaseFor(tenant).batch([select], readonly);
      return readPage(reader, found, page);
    },

    delete: async (tenant, id) => {
      const parts = ["subscription_holders", "subscription_lanes", "failed_messages"].map((table) => ({
        sql: `DELETE FROM ${table} WHERE tenant = ?1 AND subscription_id = ?2`,
        args: [tenant, id],
      }));
      const [deleted] = await shards
        .databaseFor(tenant)
        .batch([statement(build.delete(subscriptions).where(own(tenant, id))), ...parts]);
      return (deleted?.changes ?? 0) > 0;
    },

    all: async (tenant) => {
      const select = build.select().from(subscriptions).where(eq(subscriptions.tenant, tenant));
      const [owner, found] = await shards
        .databaseFor(tenant)
        .batch(
          [
            { sql: "SELECT config_version FROM tenants WHERE id = ?1", args: [tenant] },
            statement(select.orderBy(asc(subscriptions.id))),
          ],
          readonly,
        );
      const row = owner?.rows[0];
      if (row === undefined) return undefined;
      const { data, unreadable = [] } = readRows(reader, found?.rows ?? []);
      return { subscriptions: data, unreadable, configVersion: Number(row["config_version"]) };
    },

    hold: async (tenant, holding) => {
      // Counts must not be added twice, so a batch whose answer was lost is not sent again.
      const [, held] = await shards.databaseFor(tenant).batch(holdStatements(tenant, holding));
      return (held?.rows ?? []).map((row) => String(row["subscription_id"]));
    },

    release: async (tenant, instance) => {
      const args = [tenant, instance];
      await shards
        .databaseFor(tenant)
        .batch([{ sql: "DELETE FROM subscription_holders WHERE tenant = ?1 AND instance = ?2", args }], {
          repeatable: true,
        });
    },

    holders: async (tenant, id) => {
      const [found] = await shards.databaseFor(tenant).batch([{ sql: readHolders, args: [tenant, id] }], readonly);
      return (found?.rows ?? []).map(toHolder);
    },

    begin: async (tenant, { subscription, key, instance, lane }) => {
      const message = [tenant, subscription, key];
      const [, found, state, failed] = await shards
        .databaseFor(tenant)
        .batch(
          [
            lane === null ? { sql: "SELECT 1", args: [] } : { sql: takeLane, args: [...message, lane] },
            { sql: readSubscription, args: [tenant, subscription] },
            { sql: readBeginning, args: [...message, lane, instance] },
            { sql: readFailure, args: message },
          ],
          { repeatable: true },
        );
      const record = readFirst(reader, found);
      const row = state?.rows[0];
      if (record === undefined || row === undefined) return undefined;
      return { ...toBeginning(row), subscription: record, failed: readFirst(failureReader, failed) ?? null };
    },

    fail: async (tenant, { id, subscription, key, messageId, code, message, maxAttempts }) => {
      const args = [tenant, subscription, key, messageId, code, message, maxAttempts, id];
      const [counted] = await shards.databaseFor(tenant).batch([{ sql: countFailure, args }]);
      const failed = readFirst(failureReader, counted);
      if (failed === undefined) throw new GatewayError("not_found", `There is no subscription '${subscription}'.`);
      return failed;
    },

    recover: async (tenant, subscription, key) => {
      const sql = "DELETE FROM failed_messages WHERE tenant = ?1 AND subscription_id = ?2 AND key = ?3";
      await shards.databaseFor(tenant).batch([{ sql, args: [tenant, subscription, key] }], { repeatable: true });
    },

    failed: async (tenant, subscription, page) => {
      const which = and(eq(failedMessages.tenant, tenant), eq(failedMessages.subscriptionId, subscription));
      const [found] = await shards.databaseFor(tenant).batch([selectPage(failureReader, which, page)], readonly);
      return readPage(failureReader, found, page);
    },

    expire: async (limit) => {
      const statements = expiries.map((text) => ({ sql: text, args: [limit] }));
      return mostChanges(await everyShard(shards, (database) => database.batch(statements)));
    },
  };
}

function holdStatements(
  tenant: string,
  { instance, node, connectionId, leaseMs, wanted, reports }: Holding,
): readonly Statement[] {
  const ids = JSON.stringify(wanted.map(({ id, exclusive }) => ({ id, exclusive: exclusive ? 1 : 0 })));
  const said = JSON.stringify(reports.map(toRow));
  return [
    { sql: dropLeases, args: [tenant, instance, ids] },
    { sql: takeLeases, args: [tenant, instance, ids, node, connectionId, leaseMs] },
    { sql: dropOthers, args: [tenant, instance, ids] },
    { sql: noteReports, args: [tenant, instance, said] },
    { sql: countReports, args: [tenant, said] },
  ];
}

function toRow({ id, state, error, waiting, inHand, counts, lastMessageAt }: HolderReport): Record<string, SqlValue> {
  return {
    id,
    state,
    code: error?.code ?? null,
    message: error?.message ?? null,
    waiting,
    in_hand: inHand,
    ...counts,
    last_message_at: lastMessageAt,
  };
}

type Row = StatementResult["rows"][number];

function toBeginning(row: Row): Omit<Beginning, "subscription" | "failed"> {
  const callId = row["call_id"];
  return {
    configVersion: Number(row["config_version"]),
    isHolder: row["is_holder"] === 1,
    callId: typeof callId === "string" ? callId : null,
    openCalls: Number(row["open_calls"]),
    isNext: row["is_next"] === 1,
  };
}

function toHolder(row: Row): SubscriptionHolder {
  const holder = decodeRow(subscriptionHolders, row);
  const { node, instance, state, errorCode, errorMessage, waiting, inHand, since, seenAt, lastErrorAt } = holder;
  return {
    node,
    instance,
    connected: row["connected"] === 1,
    state: state ?? "starting",
    error: errorCode === null ? null : { code: errorCode, message: errorMessage ?? "" },
    waiting,
    inHand,
    since,
    seenAt,
    lastErrorAt,
  };
}

type Columns = { -readonly [Field in keyof SubscriptionChange]: SubscriptionChange[Field] };

function columnsOf(change: SubscriptionChange): Columns {
  return Object.fromEntries(Object.entries(change).filter(([, value]) => value !== undefined));
}

function own(tenant: string, id: string): SQL | undefined {
  return and(eq(subscriptions.tenant, tenant), eq(subscriptions.id, id));
}

function nameTaken(name: string): GatewayError {
  return new GatewayError(
    "conflict",
    `There is a subscription '${name}' already; take another 'name', or change that one.`,
    { param: "name" },
  );
}

function tooMany(): GatewayError {
  return new GatewayError("conflict", `A tenant has at most ${mostSubscriptions} subscriptions; delete one first.`, {
    param: "name",
  });
}
