/**
 * The call record (design "The call"): audit entry, idempotency key, async task, approval and reservation
 * of slots in one row. Indexes are partial where they can be, so that a plain chat pays for few of them.
 */
import { sql } from "drizzle-orm";
import { index, integer, primaryKey, sqliteTable, text, uniqueIndex } from "drizzle-orm/sqlite-core";
import type { CallCost } from "@toolyard/core/budgets/cost";
import { callStates, type CallError, type CallState } from "@toolyard/core/calls/call";
import { isErrorCode } from "@toolyard/core/errors/catalog";
import type { JsonValue } from "@toolyard/core/json";
import * as z from "zod";
import { flag, json, tenantColumn, time } from "../columns.ts";

const jsonValueSchema: z.ZodType<JsonValue> = z.json();

const callerChainSchema = z.array(z.object({ kind: z.string(), id: z.string() }));

const callErrorSchema: z.ZodType<CallError> = z.object({
  // A code of newer code than ours must not make the row unreadable.
  code: z.string().transform((code) => (isErrorCode(code) ? code : "internal_error")),
  message: z.string(),
  details: z.record(z.string(), jsonValueSchema).exactOptional(),
});

const usageSchema = z
  .object({ prompt_tokens: z.number(), completion_tokens: z.number(), total_tokens: z.number() })
  .catchall(jsonValueSchema);

const costSchema: z.ZodType<CallCost> = z.object({
  tokens: z.number(),
  micros: z.number(),
  prompt_tokens: z.number(),
  completion_tokens: z.number(),
  cached_tokens: z.number(),
  context_tokens: z.number(),
  context_micros: z.number(),
  estimated: z.boolean(),
});

const approvalSchema = z.object({
  by: z.string(),
  at: z.number(),
  decision: z.enum(["approved", "rejected"]),
  reason: z.string().exactOptional(),
});

/** States as SQL text for conditions of partial indexes; a state is never a value from outside. */
const stateIs = (state: CallState) => sql.raw(`state = '${state}'`);

/** What has something to give to a request that comes again; those that still run are in `calls_running`. */
export const mattersToRepetition = `idempotency_key IS NULL AND parent_id IS NULL AND state <> 'running'
  AND (state <> 'completed' OR outcome_media_type IS NOT NULL)`;

/** Since when a queued call could have run: an expression of the index `calls_due`, to be asked for in these words. */
export const dueSince = "CASE WHEN run_at IS NULL THEN created_at ELSE run_at END";

/** Of these, what a repetition that does not call itself one belongs to: it broke, and may have written something. */
export const brokeAfterWrite = `state IN ('failed', 'cancelled')
  AND (error ->> '$.details.write_started' = 1 OR error ->> '$.code' = 'chat_interrupted')`;

export const calls = sqliteTable(
  "calls",
  {
    tenant: tenantColumn().notNull(),
    id: text("id").notNull(),
    kind: text("kind", { enum: ["chat", "tool"] }).notNull(),
    parentId: text("parent_id"),
    rootId: text("root_id"),
    sessionId: text("session_id"),
    uri: text("uri").notNull(),
    tool: text("tool").notNull(),
    toolHash: text("tool_hash"),
    effect: text("effect", { enum: ["read", "write"] }).notNull(),
    repeat: text("repeat", { enum: ["never", "natural", "key", "resume"] }).notNull(),
    state: text("state", { enum: callStates }).notNull(),
    /** Claims so far; fences every later write of an older claimant. */
    attempt: integer("attempt").notNull(),
    leaseUntil: time("lease_until"),
    runAt: time("run_at"),
    deadline: time("deadline"),
    async: flag("async").notNull(),
    callerId: text("caller_id").notNull(),
    userId: text("user_id"),
    callerChain: json("caller_chain", callerChainSchema).notNull(),
    route: text("route").notNull(),
    idempotencyKey: text("idempotency_key"),
    inputHash: text("input_hash").notNull(),
    input: text("input"),
    inputView: text("input_view").notNull(),
    effectKey: text("effect_key"),
    outcomeText: text("outcome_text"),
    outcomeMediaType: text("outcome_media_type"),
    outcomeBytes: integer("outcome_bytes"),
    outcomeBlobKey: text("outcome_blob_key"),
    error: json("error", callErrorSchema),
    usage: json("usage", usageSchema),
    /** Read by the meter as the row ends. */
    cost: json("cost", costSchema),
    reservedTokens: integer("reserved_tokens").notNull().default(0),
    reservedMicros: integer("reserved_micros").notNull().default(0),
    slots: integer("slots").notNull(),
    cancelRequested: flag("cancel_requested").notNull().default(false),
    approval: json("approval", approvalSchema),
    delivery: text("delivery", { enum: ["none", "due", "delivered"] }).notNull(),
    requestId: text("request_id").notNull(),
    traceId: text("trace_id").notNull(),
    createdAt: time("created_at").notNull(),
    startedAt: time("started_at"),
    finishedAt: time("finished_at"),
    /** When a message about the row was last sent; the sweep sets it ahead, so that it repeats no more than once a minute. */
    sentAt: time("sent_at").notNull(),
    /** Names the batch that last changed the state, so that a batch sent twice knows its own work. */
    writeToken: text("write_token"),
    /** Claimants in a row that have gone silent over it; the claim in force took the row from the last one. The column was a flag. */
    interruptions: integer("taken_over").notNull().default(0),
    /** How often something that it waits for has come about since it was taken; what it has not seen it must not wait for. */
    woken: integer("woken").notNull().default(0),
    /** The archive into which it is being written, past its retention. */
    archiveId: text("archive_id"),
  },
  (table) => [
    primaryKey({ columns: [table.tenant, table.id] }),
    uniqueIndex("calls_idempotency_key")
      .on(table.tenant, table.callerId, table.route, table.idempotencyKey)
      .where(sql`idempotency_key is not null`),
    uniqueIndex("calls_effect_key")
      .on(table.tenant, table.rootId, table.effectKey)
      .where(sql`effect_key is not null`),
    index("calls_tenant_created").on(table.tenant, table.createdAt, table.id),
    index("calls_session")
      .on(table.tenant, table.sessionId, table.delivery)
      .where(sql`session_id is not null`),
    index("calls_parent")
      .on(table.tenant, table.parentId)
      .where(sql`parent_id is not null`),
    index("calls_caller").on(table.tenant, table.callerId, table.createdAt, table.id),
    index("calls_request").on(table.tenant, table.requestId),
    // Covers the count of running chats, held slots and reservations that every admission makes.
    index("calls_running")
      .on(
        table.tenant,
        table.leaseUntil,
        table.kind,
        table.callerId,
        table.slots,
        table.userId,
        table.reservedTokens,
        table.reservedMicros,
      )
      .where(stateIs("running")),
    index("calls_waiting").on(table.tenant, table.createdAt, table.id).where(stateIs("input_required")),
    index("calls_queued").on(table.sentAt).where(stateIs("queued")),
    // The line that a tenant's calls stand in while they wait for a slot.
    index("calls_due").on(table.tenant, sql.raw(dueSince)).where(stateIs("queued")),
    // For requests that are repeated without a key. What has nothing to give to a repetition stays out: a
    // hash goes to any page of the index, so that each plain chat would dirty one more.
    index("calls_retry")
      .on(table.tenant, table.callerId, table.inputHash, table.createdAt)
      .where(sql.raw(mattersToRepetition)),
    index("calls_keyed")
      .on(table.createdAt)
      .where(sql`idempotency_key is not null`),
    // What of a subscription has not ended holds its messages back. An expression, since SQLite compares a plain
    // `route = …` with what statements ask for by parameter, and prepares those anew with every value.
    index("calls_of_subscriptions")
      .on(table.tenant, table.callerId, table.idempotencyKey)
      .where(sql`route || '' = 'mq.subscription' and state in ('queued', 'running', 'input_required')`),
    index("calls_archived")
      .on(table.tenant, table.archiveId)
      .where(sql`archive_id is not null`),
    index("calls_sealed")
      .on(table.finishedAt)
      .where(sql`input is not null and finished_at is not null`),
  ],
);
