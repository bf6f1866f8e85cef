/**
 * Connections and what they are told. Contract: `ConnectionRepo`. Events of calls come from triggers on
 * `calls`; here they are read by the process that holds a socket, or claimed for the sockets that no
 * process holds. A claim is `next_at` moved ahead and `attempt` raised, in one statement.
 */
import { isDeepStrictEqual } from "node:util";
import { getTableName, type InferSelectModel } from "drizzle-orm";
import type { ConnectionAt, ConnectionRepo, Speaker } from "@toolyard/core/ports/connections";
import type {
  Audience,
  ClaimedConnection,
  ClaimedEvent,
  Connection,
  NewConnection,
  NewEvent,
  RealtimeEvent,
} from "@toolyard/core/realtime/connection";
import { vcpLogClient } from "@toolyard/core/vcp/nodes/client-types";
import type { SettingsCaps } from "@toolyard/core/tenants/settings";
import * as z from "zod";
import type { Database, Shards, SqlValue, Statement, StatementResult } from "../database.ts";
import { connectionEvents } from "../schema/connection-events.ts";
import { connections } from "../schema/connections.ts";
import { decodeRow } from "../sql.ts";
import { everyShard } from "./every-shard.ts";
import { now, pendingOf, setting, underCaps, windowMs, windowStart } from "./fragments.ts";
import { readAll, type OnBrokenRow, type Reader, type Row } from "./rows.ts";
import { awayHolder, isForLog, isLive } from "./live-connections.ts";

/** Of a tenant. */
const mostConnections = 1_000;
/** Of a connection. */
const mostSubscriptions = 50;
/** As API Gateway has it; so what a token or a key allows is asked anew from time to time. */
const longestMs = 2 * 3_600_000;
/** API Gateway gives `$connect` 29 s. */
const connectingMs = 30_000;
/** An event that could not be sent so often is left to what its client reads when it comes back. */
const mostAttempts = 5;

/** Devices of a tenant that are away, and for how long they may be. */
const mostAway = 20;
const awayMs = 86_400_000;
const onItsWayMs = 1_000;
/** Is `away` the device of `own`, as of the same caller? */
const isSameDevice = (away: string, own: string): string => `${away}.holder = '${awayHolder}'
  AND ${away}.subscriptions ->> '$.device.device' = ${own}.subscriptions ->> '$.device.device'
  AND ${away}.caller ->> 'id' = ${own}.caller ->> 'id'`;

const hasRoom = `(SELECT COUNT(*) FROM connections AS c WHERE c.tenant = ?1 AND c.expires_at > ${now}) < ${mostConnections}`;

const readRoom = `SELECT ${hasRoom} AS has_room`;

const insertTicket = `INSERT INTO connection_tickets (hash, tenant, caller, until, expires_at)
  VALUES (?2, ?1, ?3, ?4, MIN(${now} + ?5, COALESCE(?4, ${now} + ?5))) ON CONFLICT DO NOTHING`;
const readTicket = "SELECT expires_at FROM connection_tickets WHERE tenant = ?1 AND hash = ?2";

/** @param from where the caller and the end of its credentials come from */
const insertConnection = (caller: string, until: string, from: string): string => `
  INSERT INTO connections (tenant, id, holder, client_type, hears, caller, expires_at, closes_at)
  SELECT ?1, ?2, ?3, ?4, 4 * (?4 IS '${vcpLogClient}'), ${caller}, MIN(${now} + ?5, COALESCE(${until}, ${now} + ?5)),
    MIN(${now} + ${longestMs}, COALESCE(${until}, ${now} + ${longestMs}))
  ${from} ON CONFLICT DO NOTHING`;
const insertKnown = insertConnection("?6", "?7", `WHERE ${hasRoom}`);
const insertTicketed = insertConnection(
  "ticket.caller",
  "ticket.until",
  `FROM connection_tickets AS ticket WHERE ticket.tenant = ?1 AND ticket.hash = ?6 AND ticket.taken_by = ?2
    AND ${hasRoom}`,
);
/** Used up by whoever asks first, and stays so where there is no room. Sent twice, it finds its own name. */
const takeTicket = `UPDATE connection_tickets SET taken_by = ?2
  WHERE tenant = ?1 AND hash = ?3 AND (taken_by IS NULL OR taken_by = ?2) AND expires_at > ${now}`;
/** Whether there is room, where the ticket was taken for this connection. */
const explainTicket = `SELECT ${hasRoom} AS has_room FROM connection_tickets WHERE tenant = ?1 AND hash = ?3 AND taken_by = ?2`;

const newest = "COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'connection_events'), 0)";
const readConnection = `SELECT c.*, ${newest} AS newest FROM connections AS c
  WHERE c.tenant = ?1 AND c.id = ?2 AND ${isLive}`;
const readOfType = `SELECT c.* FROM connections AS c
  WHERE c.tenant = ?1 AND c.client_type = ?2 AND ${isLive} AND c.holder <> '${awayHolder}' ORDER BY c.created_at, c.id`;
const findConnection = `SELECT c.* FROM connections AS c WHERE c.id = ?1 AND ${isLive}`;

/** A second a thousand, as a server hears of one connection. What they say was admitted with the calls that it is about. */
const nodeMessagesPerMinute = 60_000;
/** As `hasScope` says it. */
const isNode = `(c.caller ->> 'role' = 'operator'
  OR EXISTS (SELECT 1 FROM json_each(c.caller, '$.scopes') WHERE value = 'node'))`;
/**
 * Windows of connection `c` in which what it says is counted: its tenant's, and its key's where that has a limit of its
 * own; that of all of its tenant's nodes for a node, whose results do not wait for requests.
 */
const countedFor = `w.tenant = c.tenant AND w.scope IN (
  CASE WHEN ${isNode} THEN 'nodes' ELSE 'tenant' END, CASE WHEN NOT ${isNode} THEN 'key:' || (c.caller ->> 'id') END)`;
/** The limit that has been reached in this minute, if one has; an operator has none. */
const reachedLimit = (caps: SettingsCaps): string => `(
  SELECT json_object('scope', full.scope, 'limit', full.most, 'resetMs', full.reset_ms) FROM (
    SELECT CASE WHEN w.scope IN ('tenant', 'nodes') THEN w.scope ELSE 'key' END AS scope, w.count,
      w.window_start + ${windowMs} - ${now} AS reset_ms,
      CASE w.scope WHEN 'tenant' THEN ${setting("requests_per_minute", caps)} WHEN 'nodes' THEN ${nodeMessagesPerMinute} ELSE (
        SELECT requests_per_minute FROM api_keys AS k WHERE k.tenant = w.tenant AND k.id = c.caller ->> 'id') END AS most
    FROM rate_windows AS w JOIN tenants AS t ON t.id = w.tenant
    WHERE ${countedFor} AND w.window_start = ${windowStart} AND c.caller ->> 'kind' <> 'operator') AS full
  WHERE full.count >= full.most ORDER BY full.scope LIMIT 1)`;
const findSpeaker = underCaps(
  (caps) => `SELECT c.*, ${reachedLimit(caps)} AS reached FROM connections AS c WHERE c.id = ?1 AND ${isLive}`,
);
/** Of requests there are windows to count in, since its own connecting was one. */
const openNodesWindow = `INSERT INTO rate_windows (tenant, scope, window_start, count)
  SELECT c.tenant, 'nodes', 0, 0 FROM connections AS c WHERE c.tenant = ?1 AND c.id = ?2 AND ${isNode} ON CONFLICT DO NOTHING`;
const countMessage = `UPDATE rate_windows AS w
  SET count = 1 + CASE WHEN w.window_start = ${windowStart} THEN w.count ELSE 0 END, window_start = ${windowStart}
  FROM connections AS c WHERE c.tenant = ?1 AND c.id = ?2 AND c.caller ->> 'kind' <> 'operator' AND ${countedFor}`;
const limitSchema = z.object({ scope: z.enum(["key", "tenant", "nodes"]), limit: z.number(), resetMs: z.number() });

const putSubscription = `UPDATE connections SET subscriptions = json_set(subscriptions, ?3, json(?4))
  WHERE tenant = ?1 AND id = ?2 AND (json_type(subscriptions, ?3) IS NOT NULL
    OR (SELECT COUNT(*) FROM json_each(subscriptions)) < ${mostSubscriptions})`;
const dropSubscription =
  "UPDATE connections SET subscriptions = json_remove(subscriptions, ?3) WHERE tenant = ?1 AND id = ?2";
const countHearing = `UPDATE connections SET hears = (
    SELECT COALESCE(MAX(value ->> 'topic' = 'calls'), 0) + 2 * COALESCE(MAX(value ->> 'topic' = 'logs'), 0)
      + 4 * (connections.client_type IS '${vcpLogClient}')
    FROM json_each(subscriptions))
  WHERE tenant = ?1 AND id = ?2`;

/**
 * A device of a client of the type `VCPLog` that goes away stays as a connection that nobody holds: what it misses
 * is written because of it. One that was away already has missed more.
 */
const leaveDevice = (which: string): string => `UPDATE connections
  SET holder = '${awayHolder}', created_at = ${now}, expires_at = ${now} + ${awayMs}, closes_at = ${now} + ${awayMs}
  WHERE ${which} AND hears & 4 AND subscriptions ->> '$.device.device' IS NOT NULL
    AND (SELECT COUNT(*) FROM connections AS a WHERE a.tenant = connections.tenant AND a.holder = '${awayHolder}') < ${mostAway}
    AND NOT EXISTS (SELECT 1 FROM connections AS a WHERE a.tenant = connections.tenant AND ${isSameDevice("a", "connections")})`;
const deleteOwn = `DELETE FROM connections WHERE tenant = ?1 AND id = ?2 AND holder <> '${awayHolder}'`;
const deleteHeld = "DELETE FROM connections WHERE holder = ?1 AND holder <> ''";
/** What was written for the device of connection ?2 between its last end, or what was on its way then, and its return. */
const readMissed = `SELECT event.* FROM connections AS own
  CROSS JOIN connection_events AS event ON event.tenant = own.tenant
  WHERE own.tenant = ?1 AND own.id = ?2 AND ${isForLog("event")}
    AND event.created_at < own.created_at AND event.created_at >= ${onItsWayMs} * -1 + (
      SELECT MIN(a.created_at) FROM connections AS a WHERE a.tenant = ?1 AND ${isSameDevice("a", "own")})
  ORDER BY event.seq DESC LIMIT ?3`;
const forgetDevice = `DELETE FROM connections WHERE tenant = ?1 AND rowid IN (SELECT a.rowid
  FROM connections AS own JOIN connections AS a ON a.tenant = own.tenant AND ${isSameDevice("a", "own")}
  WHERE own.tenant = ?1 AND own.id = ?2)`;

/** What a connection may have left before it ends. */
const extended = (lifetime: string): string => `MIN(closes_at, ${now} + ${lifetime})`;
const touch = `UPDATE connections SET expires_at = ${extended("?3")}
  WHERE tenant = ?1 AND id = ?2 AND expires_at > ${now} RETURNING id`;
const renewAll = `UPDATE connections SET expires_at = ${extended("?2")} WHERE holder = ?1 AND expires_at > ${now}`;
const readHeld = `SELECT c.id FROM connections AS c WHERE c.holder = ?1 AND ${isLive}`;

const readEvents = `SELECT event.* FROM json_each(?1) AS wanted
  CROSS JOIN connection_events AS event
  WHERE event.tenant = wanted.key AND event.seq > wanted.value ORDER BY event.seq LIMIT ?2`;
const readConcerned = `SELECT c.* FROM connections AS c
  WHERE c.holder = ?2 AND ${isLive} AND EXISTS (
    SELECT 1 FROM json_each(?1) AS wanted CROSS JOIN connection_events AS event
    WHERE wanted.key = c.tenant AND event.tenant = c.tenant AND event.seq > wanted.value)`;

/** Somebody for whom an event of audience ?2 and ?3 is. */
const isAddressed = `c.tenant = ?1 AND c.expires_at > ${now} AND CASE ?2
  WHEN 'calls' THEN c.hears & 1
  WHEN 'logs' THEN c.hears & 2
  WHEN 'connection' THEN c.id = ?3
  WHEN 'user' THEN c.caller ->> 'userId' = ?3
  WHEN 'client_type' THEN c.client_type = ?3
  WHEN 'session' THEN EXISTS (SELECT 1 FROM json_each(c.subscriptions) WHERE value ->> 'session_id' = ?3)
  WHEN 'group_chat' THEN EXISTS (SELECT 1 FROM json_each(c.subscriptions) WHERE value ->> 'group_chat_id' = ?3)
  ELSE 1 END`;

/** Of a call that is not on record yet only those who see all hear, unless the event says whose it is. */
const insertEvent = `INSERT INTO connection_events
    (tenant, audience, audience_value, type, data, call_id, caller_id, session_id, body, next_at)
  SELECT ?1, ?2, ?3, ?4, ?5, ?6, COALESCE(?7, (SELECT caller_id FROM calls WHERE tenant = ?1 AND id = ?6)), ?8, ?9,
    CASE WHEN EXISTS (SELECT 1 FROM connections AS c WHERE c.holder = '' AND ${isAddressed}) THEN ${now} END
  WHERE EXISTS (SELECT 1 FROM connections AS c WHERE ${isAddressed})`;

/**
 * In order within each tenant, and tenants by turns: whom one has much to tell keeps no other's waiting. Of each only the
 * oldest few are looked at.
 */
const nextDue = `WITH RECURSIVE ${pendingOf("connection_events", "tenant")}
  SELECT seq FROM (
    SELECT event.seq, ROW_NUMBER() OVER (PARTITION BY event.tenant ORDER BY event.seq) AS turn
    FROM pending CROSS JOIN connection_events AS event ON event.seq IN (
      SELECT seq FROM connection_events INDEXED BY connection_events_pending
      WHERE tenant = pending.tenant AND next_at IS NOT NULL AND next_at <= ${now} ORDER BY seq LIMIT ?1))
  ORDER BY turn, seq LIMIT ?1`;

/** What has been tried as often as it may is given up, and nobody's. */
const claimDue = `UPDATE connection_events
  SET next_at = CASE WHEN attempt < ${mostAttempts} THEN ${now} + ?2 END, attempt = attempt + 1
  WHERE seq IN (${nextDue})
  RETURNING *, (
    SELECT json_group_array(json_object('id', c.id, 'caller', json(c.caller), 'client_type', c.client_type,
      'subscriptions', json(c.subscriptions), 'closes_at', c.closes_at,
      'connecting', c.subscriptions = '{}' AND c.created_at > ${now} - ${connectingMs}))
    FROM connections AS c WHERE c.tenant = connection_events.tenant AND c.holder = '' AND ${isLive}) AS listening`;
const settleEvent = "UPDATE connection_events SET next_at = NULL WHERE tenant = ?1 AND seq = ?2 AND attempt = ?3";

/** @param also what has to be the case besides; its parameters follow as ?10 and so on */
export function eventStatement(tenant: string, event: NewEvent, also?: Statement): Statement {
  const args = eventArgs(tenant, event);
  return also === undefined
    ? { sql: insertEvent, args }
    : { sql: `${insertEvent} AND ${also.sql}`, args: [...args, ...also.args] };
}

export function createConnectionRepo(shards: Shards, caps: SettingsCaps, onBrokenRow: OnBrokenRow): ConnectionRepo {
  const reader: ConnectionReader = {
    table: connections,
    tableName: getTableName(connections),
    key: connections.id,
    onBrokenRow,
    toRecord: connectionOf,
  };
  const of = (tenant: string): Database => shards.databaseFor(tenant);
  return {
    issueTicket: async (tenant, { hash, caller, until, lifetimeMs }) => {
      const [, found] = await of(tenant).batch(
        [
          { sql: insertTicket, args: [tenant, hash, JSON.stringify(caller), until, lifetimeMs] },
          { sql: readTicket, args: [tenant, hash] },
        ],
        { repeatable: true },
      );
      return Number(found?.rows[0]?.["expires_at"]);
    },

    connect: async (tenant, connection) => {
      const args = [...openArgs(tenant, connection), JSON.stringify(connection.caller), connection.until];
      const [, found, room] = await of(tenant).batch(
        [
          { sql: insertKnown, args },
          { sql: readConnection, args: [tenant, connection.id] },
          { sql: readRoom, args: [tenant] },
        ],
        { repeatable: true },
      );
      return toConnectionAt(found) ?? (room?.rows[0]?.["has_room"] === 0 ? "full" : undefined);
    },

    connectWithTicket: async (tenant, hash, connection) => {
      const own = [tenant, connection.id, hash];
      const [, , found, explained] = await of(tenant).batch(
        [
          { sql: takeTicket, args: own },
          { sql: insertTicketed, args: [...openArgs(tenant, connection), hash] },
          { sql: readConnection, args: [tenant, connection.id] },
          { sql: explainTicket, args: own },
        ],
        { repeatable: true },
      );
      return toConnectionAt(found) ?? (explained?.rows[0]?.["has_room"] === 0 ? "full" : undefined);
    },

    find: async (id) => {
      const statements = [{ sql: findConnection, args: [id] }];
      const answers = await everyShard(shards, (database) => database.batch(statements, { readonly: true }));
      return answers.flatMap(([found]) => (found?.rows ?? []).map(toConnection))[0];
    },

    findSpeaker: async (id) => {
      const statements = [{ sql: findSpeaker(caps), args: [id] }];
      const answers = await everyShard(shards, (database) => database.batch(statements, { readonly: true }));
      return answers.flatMap(([found]) => (found?.rows ?? []).map(toSpeaker))[0];
    },

    subscribe: async (tenant, id, name, subscription) => {
      const args = [tenant, id, pathOf(name), JSON.stringify(subscription)];
      const found = await change(of(tenant), { sql: putSubscription, args });
      if (found === undefined) return undefined;
      // Looked at rather than counted: a batch sent twice changes nothing the second time.
      return isDeepStrictEqual(found.connection.subscriptions[name], subscription) ? found : "full";
    },

    unsubscribe: (tenant, id, name) => change(of(tenant), { sql: dropSubscription, args: [tenant, id, pathOf(name)] }),

    touch: async (tenant, id, { lifetimeMs, counts }) => {
      const statements = [
        { sql: touch, args: [tenant, id, lifetimeMs] },
        ...(counts ? [openNodesWindow, countMessage].map((sql) => ({ sql, args: [tenant, id] })) : []),
      ];
      const [touched] = await of(tenant).batch(statements, { repeatable: true });
      return touched !== undefined && touched.rows.length > 0;
    },

    remove: async (tenant, id) => {
      const args = [tenant, id];
      const statements = [leaveDevice("tenant = ?1 AND id = ?2"), deleteOwn].map((sql) => ({ sql, args }));
      await of(tenant).batch(statements, { repeatable: true });
    },

    missed: async (tenant, id, limit) => {
      const [found] = await of(tenant).batch([
        { sql: readMissed, args: [tenant, id, limit] },
        { sql: forgetDevice, args: [tenant, id] },
      ]);
      return (found?.rows ?? []).map(toEvent).toReversed();
    },

    ofType: async (tenant, clientType) => {
      const [found] = await of(tenant).batch([{ sql: readOfType, args: [tenant, clientType] }], { readonly: true });
      return readAll(reader, found);
    },

    renew: async (holder, lifetimeMs) => {
      const statements = [
        { sql: renewAll, args: [holder, lifetimeMs] },
        { sql: readHeld, args: [holder] },
      ];
      const answers = await Promise.all(
        shards.all().map((database) => database.batch(statements, { repeatable: true })),
      );
      return answers.flatMap(([, held]) => (held?.rows ?? []).map((row) => String(row["id"])));
    },

    removeHeldBy: async (holder) => {
      const statements = [leaveDevice("holder = ?1 AND holder <> ''"), deleteHeld].map((sql) => ({
        sql,
        args: [holder],
      }));
      await Promise.all(shards.all().map((database) => database.batch(statements, { repeatable: true })));
    },

    publish: async (tenant, events) => {
      if (events.length === 0) return 0;
      const statements = events.map((event) => eventStatement(tenant, event));
      const written = await of(tenant).batch(statements);
      return written.reduce((sum, { changes }) => sum + Math.min(1, changes), 0);
    },

    heldEvents: (holder, after, limit) => heldEvents({ shards, reader }, holder, { after, limit }),

    claim: async ({ limit, leaseMs }) => {
      const statements = [{ sql: claimDue, args: [limit, leaseMs] }];
      const answers = await everyShard(shards, (database) => database.batch(statements));
      const due = answers.flatMap(([found]) => found?.rows ?? []);
      const claimed = due.filter((row) => row["next_at"] !== null).map((row) => toClaimed(reader, row));
      return claimed.toSorted((a, b) => a.event.seq - b.event.seq);
    },

    settle: async (tenant, told) => {
      if (told.length === 0) return;
      const statements = told.map(({ seq, attempt }) => ({ sql: settleEvent, args: [tenant, seq, attempt] }));
      await of(tenant).batch(statements, { repeatable: true });
    },
  };
}

function openArgs(
  tenant: string,
  { id, holder, clientType, lifetimeMs }: Omit<NewConnection, "caller" | "until">,
): SqlValue[] {
  return [tenant, id, holder ?? "", clientType, lifetimeMs];
}

/** Where a subscription is in the JSON of all. */
function pathOf(name: string): string {
  return `$.${JSON.stringify(name)}`;
}

async function change(database: Database, { sql, args }: Statement): Promise<ConnectionAt | undefined> {
  const own = args.slice(0, 2);
  const [, , found] = await database.batch(
    [
      { sql, args },
      { sql: countHearing, args: own },
      { sql: readConnection, args: own },
    ],
    { repeatable: true },
  );
  return toConnectionAt(found);
}

function eventArgs(tenant: string, event: NewEvent): SqlValue[] {
  const { audience, type, data, frame = "", callId, callerId, sessionId } = event;
  const value = "value" in audience ? audience.value : null;
  return [tenant, audience.kind, value, type, frame === "" ? data : null, callId, callerId, sessionId, frame];
}

/** Both in one transaction, so that whoever subscribed before an event happened is among those who are told. */
async function heldEvents(
  { shards, reader }: { readonly shards: Shards; readonly reader: ConnectionReader },
  holder: string,
  { after, limit }: { readonly after: ReadonlyMap<string, number>; readonly limit: number },
): ReturnType<ConnectionRepo["heldEvents"]> {
  const cursors = new Map<Database, Record<string, number>>();
  for (const [tenant, seq] of after) {
    const database = shards.databaseFor(tenant);
    cursors.set(database, { ...cursors.get(database), [tenant]: seq });
  }
  const answers = await Promise.all(
    [...cursors].map(([database, wanted]) => {
      const given = JSON.stringify(wanted);
      const statements = [
        { sql: readEvents, args: [given, limit] },
        { sql: readConcerned, args: [given, holder] },
      ];
      return database.batch(statements, { readonly: true });
    }),
  );
  return {
    events: answers.flatMap(([events]) => (events?.rows ?? []).map(toEvent)),
    connections: answers.flatMap(([, concerned]) => readAll(reader, concerned)),
  };
}

type ConnectionReader = Reader<typeof connections, Connection>;

const toConnection = (row: Row): Connection => connectionOf(decodeRow(connections, row));

function connectionOf(record: InferSelectModel<typeof connections>): Connection {
  const { id, tenant, holder, caller, clientType, subscriptions, closesAt } = record;
  return { id, tenant, holder: holder === "" ? null : holder, caller, clientType, subscriptions, closesAt };
}

function toSpeaker(row: Row): Speaker {
  const { reached } = row;
  const limit = typeof reached === "string" ? limitSchema.parse(JSON.parse(reached)) : undefined;
  return { connection: toConnection(row), ...(limit === undefined ? {} : { reached: limit }) };
}

function toConnectionAt(result: StatementResult | undefined): ConnectionAt | undefined {
  const row = result?.rows[0];
  return row === undefined ? undefined : { connection: toConnection(row), seq: Number(row["newest"]) };
}

function toEvent(row: Row): RealtimeEvent {
  const { tenant, seq, type, audience, audienceValue, callId, callerId, sessionId, decided, body, createdAt } =
    decodeRow(connectionEvents, row);
  return {
    tenant,
    seq,
    type,
    audience: toAudience(audience, audienceValue),
    callId,
    callerId,
    sessionId,
    decided,
    body,
    createdAt,
  };
}

function toAudience(kind: Audience["kind"], value: string | null): Audience {
  if (kind === "calls" || kind === "logs" || kind === "tenant") return { kind };
  return { kind, value: value ?? "" };
}

const listeningSchema = z.array(z.record(z.string(), z.unknown()));

/** Whoever of the listeners cannot be read is not told; the others are. */
function toClaimed(reader: ConnectionReader, row: Row): ClaimedEvent {
  const event = toEvent(row);
  const listening = listeningSchema.parse(JSON.parse(String(row["listening"])));
  return {
    event,
    attempt: Number(row["attempt"]),
    connections: listening.flatMap(({ caller, subscriptions, connecting, ...rest }): readonly ClaimedConnection[] => {
      const texts = { caller: JSON.stringify(caller), subscriptions: JSON.stringify(subscriptions) };
      const stored = { ...rest, tenant: event.tenant, holder: "", ...texts };
      const found = readAll(reader, { rows: [stored], changes: 0 });
      return found.map((connection) => ({ ...connection, isConnecting: connecting === 1 }));
    }),
  };
}
