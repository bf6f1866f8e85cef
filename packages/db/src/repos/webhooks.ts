/**
 * Webhooks and their deliveries. Contract: `WebhookRepo`. Events come from triggers on `calls`; here they
 * are read, claimed and settled. A claim is `next_at` moved ahead and `attempt` raised, in one statement.
 */
import { getTableName } from "drizzle-orm";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { PageRequest } from "@toolyard/core/ports/page";
import type { WebhookRepo } from "@toolyard/core/ports/webhooks";
import type {
  ClaimedDelivery,
  DeliveryResult,
  Webhook,
  WebhookChange,
  WebhookDelivery,
} from "@toolyard/core/webhooks/webhook";
import { mostOf } from "@toolyard/core/ports/limits";
import * as z from "zod";
import type { Database, Shards, SqlValue, Statement } from "../database.ts";
import { webhookDeliveries } from "../schema/webhook-deliveries.ts";
import { webhooks } from "../schema/webhooks.ts";
import { readColumn } from "../sql.ts";
import { everyShard } from "./every-shard.ts";
import { countOf, countsOf, now, pendingOf } from "./fragments.ts";
import { raiseConfigVersion, readAll, readFirst, readPage, type OnBrokenRow, type Reader, type Row } from "./rows.ts";

/** Each is looked at as each call ends. */
const mostWebhooks = mostOf.webhooks;

const own = "tenant = ?1 AND id = ?2";
const getWebhook = `SELECT * FROM webhooks WHERE ${own}`;

const insertWebhook = `INSERT INTO webhooks (tenant, id, name, url, events, enabled, sealed)
  SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7 WHERE (SELECT COUNT(*) FROM webhooks WHERE tenant = ?1) < ${mostWebhooks}
  ON CONFLICT DO NOTHING`;

const updateWebhook = `UPDATE webhooks SET name = COALESCE(?3, name), url = COALESCE(?4, url),
  events = COALESCE(?5, events), enabled = COALESCE(?6, enabled),
  disabled_reason = CASE WHEN ?6 IS NULL THEN disabled_reason END, updated_at = ${now}
  WHERE ${own} RETURNING *`;

const hookOfDelivery = `(SELECT webhook_id FROM webhook_deliveries WHERE ${own})`;

/** What is pending is due while its webhook is enabled, and only then. */
const follow = (
  webhook: string,
): string => `UPDATE webhook_deliveries SET next_at = CASE WHEN hook.enabled THEN ${now} END
  FROM webhooks AS hook
  WHERE hook.tenant = ?1 AND hook.id = ${webhook} AND webhook_deliveries.tenant = ?1 AND webhook_id = hook.id
    AND state = 'pending' AND (next_at IS NULL) = hook.enabled`;
const followWebhook = follow("?2");
const followGone = follow(hookOfDelivery);

const rotateSecret = `UPDATE webhooks SET previous_sealed = sealed, previous_until = ${now} + ?4, sealed = ?3,
  updated_at = ${now} WHERE ${own} AND sealed <> ?3`;

/** As the triggers make it. */
const newDeliveryId = `'evt_' || printf('%012x%010x', ${now},
  (SELECT COALESCE(MAX(rowid), 0) FROM webhook_deliveries)) || lower(hex(randomblob(8)))`;

const insertTest = `INSERT INTO webhook_deliveries (id, tenant, webhook_id, type, body, next_at)
  SELECT ${newDeliveryId}, tenant, id, 'webhook.test', json_object('type', 'webhook.test',
    'timestamp', strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), 'data', json_object('webhook_id', id)),
    CASE WHEN enabled THEN ${now} END
  FROM webhooks WHERE ${own} RETURNING *`;

const resend = `UPDATE webhook_deliveries SET state = 'pending', tries = 0,
  next_at = (SELECT CASE WHEN enabled THEN ${now} END FROM webhooks WHERE ${own})
  WHERE tenant = ?1 AND webhook_id = ?2 AND id = ?3 RETURNING *`;

/**
 * Of one webhook and of one tenant a share, with what the claimant has under way, and tenants by turns: who is slow
 * takes neither every claim nor every place. Of each webhook only its oldest few are looked at, since one that hangs may
 * have any number due.
 */
const nextDue = `WITH RECURSIVE ${pendingOf("webhook_deliveries", "webhook_id")}
  SELECT due_row FROM (
    SELECT due_row, due_at,
      ROW_NUMBER() OVER (PARTITION BY tenant ORDER BY place, due_at) + ${countOf("?6", "tenant")} AS turn
    FROM (
      SELECT due.rowid AS due_row, due.next_at AS due_at, due.tenant AS tenant,
        ROW_NUMBER() OVER (PARTITION BY due.webhook_id ORDER BY due.next_at) + ${countOf("?5", "due.webhook_id")} AS place
      FROM pending
      CROSS JOIN webhooks AS hook ON hook.id = pending.webhook_id AND hook.enabled
      CROSS JOIN tenants AS t ON t.id = hook.tenant AND t.status = 'active'
      CROSS JOIN webhook_deliveries AS due ON due.rowid IN (
        SELECT rowid FROM webhook_deliveries
        WHERE webhook_id = pending.webhook_id AND next_at IS NOT NULL AND next_at <= ${now} ORDER BY next_at LIMIT ?3)
      WHERE ${countOf("?5", "hook.id")} < ?3 AND ${countOf("?6", "hook.tenant")} < ?4)
    WHERE place <= ?3)
  WHERE turn <= ?4
  ORDER BY turn, due_at LIMIT ?1`;

const claimDue = `UPDATE webhook_deliveries SET next_at = ${now} + ?2, attempt = attempt + 1, tries = tries + 1,
    attempted_at = ${now}
  WHERE rowid IN (${nextDue})
  RETURNING *, (
    SELECT json_object('url', hook.url, 'sealed', hook.sealed, 'wrappedKey', t.wrapped_key,
      'previous', CASE WHEN hook.previous_until > ${now} THEN hook.previous_sealed END)
    FROM webhooks AS hook JOIN tenants AS t ON t.id = hook.tenant
    WHERE hook.id = webhook_deliveries.webhook_id) AS endpoint`;

const endpointSchema = z.object({
  url: z.string(),
  sealed: z.string(),
  wrappedKey: z.string(),
  previous: z.string().nullable(),
});

/** Its webhook may have been disabled since it was claimed. */
const settleDelivery = `UPDATE webhook_deliveries SET state = ?4, last_status = ?6, last_error = ?7, tries = tries - ?8,
    next_at = (SELECT ${now} + ?5 FROM webhooks AS hook WHERE hook.tenant = ?1 AND hook.id = webhook_id AND hook.enabled)
  WHERE ${own} AND attempt = ?3 AND state = 'pending'`;

const disableGone = `UPDATE webhooks SET enabled = 0, disabled_reason = 'The receiver answered 410 (gone).', updated_at = ${now}
  WHERE tenant = ?1 AND changes() > 0 AND id = ${hookOfDelivery}`;

export function createWebhookRepo(shards: Shards, onBrokenRow: OnBrokenRow): WebhookRepo {
  const hooks: Reader<typeof webhooks, Webhook> = {
    table: webhooks,
    tableName: getTableName(webhooks),
    key: webhooks.id,
    onBrokenRow,
    toRecord: ({ tenant: _tenant, ...webhook }) => webhook,
  };
  const told = deliveryReader(onBrokenRow, (delivery) => delivery);
  const claimed = deliveryReader(onBrokenRow, toClaimed);
  const of = (tenant: string): Database => shards.databaseFor(tenant);
  return {
    create: async (tenant, { id, name, url, events, enabled, sealed }) => {
      const args = [tenant, id, name, url, JSON.stringify(events), enabled ? 1 : 0, sealed];
      const [, , found] = await of(tenant).batch(
        [{ sql: insertWebhook, args }, raiseConfigVersion(tenant), { sql: getWebhook, args: [tenant, id] }],
        { repeatable: true },
      );
      const created = readFirst(hooks, found);
      if (created !== undefined) return created;
      throw new GatewayError("conflict", `A tenant has at most ${mostWebhooks} webhooks; delete one first.`);
    },

    get: async (tenant, id) => {
      const [found] = await of(tenant).batch([{ sql: getWebhook, args: [tenant, id] }], { readonly: true });
      return readFirst(hooks, found);
    },

    list: async (tenant, page) => {
      const [found] = await of(tenant).batch([selectPage("webhooks", [["tenant", tenant]], page)], { readonly: true });
      return readPage(hooks, found, page);
    },

    update: async (tenant, id, change) => {
      const [updated] = await of(tenant).batch(
        [
          { sql: updateWebhook, args: [tenant, id, ...changeArgs(change)] },
          raiseConfigVersion(tenant),
          { sql: followWebhook, args: [tenant, id] },
        ],
        { repeatable: true },
      );
      return readFirst(hooks, updated);
    },

    delete: async (tenant, id) => {
      const [deleted] = await of(tenant).batch([
        { sql: `DELETE FROM webhooks WHERE ${own}`, args: [tenant, id] },
        raiseConfigVersion(tenant),
        { sql: "DELETE FROM webhook_deliveries WHERE tenant = ?1 AND webhook_id = ?2", args: [tenant, id] },
      ]);
      return (deleted?.changes ?? 0) > 0;
    },

    rotate: async (tenant, id, { sealed, overlapMs }) => {
      const [, , found] = await of(tenant).batch(
        [
          { sql: rotateSecret, args: [tenant, id, sealed, overlapMs] },
          raiseConfigVersion(tenant),
          { sql: getWebhook, args: [tenant, id] },
        ],
        { repeatable: true },
      );
      return readFirst(hooks, found);
    },

    addTest: async (tenant, id) => {
      const [written] = await of(tenant).batch([{ sql: insertTest, args: [tenant, id] }]);
      return readFirst(told, written);
    },

    deliveries: async (tenant, id, page, state) => {
      const where: readonly Equal[] = [
        ["tenant", tenant],
        ["webhook_id", id],
        ...(state === undefined ? [] : [["state", state] as const]),
      ];
      const [webhook, found] = await of(tenant).batch(
        [{ sql: getWebhook, args: [tenant, id] }, selectPage("webhook_deliveries", where, page)],
        { readonly: true },
      );
      return webhook?.rows.length === 0 ? undefined : readPage(told, found, page);
    },

    resend: async (tenant, id, delivery) => {
      const [changed] = await of(tenant).batch([{ sql: resend, args: [tenant, id, delivery] }], { repeatable: true });
      return readFirst(told, changed);
    },

    claim: ({ limit, leaseMs, shares, underWay }) => {
      const counts = [underWay.map(({ webhookId }) => webhookId), underWay.map(({ tenant }) => tenant)].map(countsOf);
      return claim(shards, claimed, [limit, leaseMs, shares.webhook, shares.tenant, ...counts]);
    },

    settle: async (tenant, id, attempt, result) => {
      const settled = { sql: settleDelivery, args: [tenant, id, attempt, ...resultArgs(result)] };
      const gone = [
        { sql: disableGone, args: [tenant, id] },
        raiseConfigVersion(tenant),
        { sql: followGone, args: [tenant, id] },
      ];
      await of(tenant).batch(result.next === "gone" ? [settled, ...gone] : [settled], { repeatable: true });
    },
  };
}

async function claim(
  shards: Shards,
  reader: Reader<typeof webhookDeliveries, ClaimedDelivery>,
  args: readonly SqlValue[],
): Promise<readonly ClaimedDelivery[]> {
  const answers = await everyShard(shards, (database) => database.batch([{ sql: claimDue, args }]));
  return answers.flatMap(([claimed]) => readAll(reader, claimed));
}

function deliveryReader<R>(
  onBrokenRow: OnBrokenRow,
  toRecord: (delivery: WebhookDelivery, row: Row) => R,
): Reader<typeof webhookDeliveries, R> {
  const tableName = getTableName(webhookDeliveries);
  return { table: webhookDeliveries, tableName, key: webhookDeliveries.id, onBrokenRow, toRecord };
}

function toClaimed(delivery: WebhookDelivery, row: Row): ClaimedDelivery {
  const endpoint = readColumn("endpoint", () => endpointSchema.parse(JSON.parse(String(row["endpoint"]))));
  const { url, sealed, previous, wrappedKey } = endpoint;
  return { delivery, url, wrappedKey, sealed: previous === null ? [sealed] : [sealed, previous] };
}

/** A column and what it must be. */
type Equal = readonly [column: string, value: string];

/** @param table its name; never from outside, like the names of columns */
function selectPage(table: string, where: readonly Equal[], { limit, order, after }: PageRequest): Statement {
  const equal = where.map(([column]) => `${column} = ?`).join(" AND ");
  const beyond = after === undefined ? "" : `AND id ${order === "asc" ? ">" : "<"} ?`;
  return {
    sql: `SELECT * FROM ${table} WHERE ${equal} ${beyond} ORDER BY id ${order === "asc" ? "ASC" : "DESC"} LIMIT ?`,
    args: [...where.map(([, value]) => value), ...(after === undefined ? [] : [after]), limit + 1],
  };
}

function changeArgs({ name, url, events, enabled }: WebhookChange): SqlValue[] {
  return [
    name ?? null,
    url ?? null,
    events === undefined ? null : JSON.stringify(events),
    enabled === undefined ? null : Number(enabled),
  ];
}

function resultArgs({ next, status, error }: DeliveryResult): SqlValue[] {
  const state = typeof next === "object" ? "pending" : next === "delivered" ? "delivered" : "failed";
  const [delayMs, uncounted] = typeof next === "object" ? [next.delayMs, next.uncounted === true ? 1 : 0] : [null, 0];
  return [state, delayMs, status, error, uncounted];
}
