/**
 * What a run of a flow has done so far. A place in the run is a row: `orders[3]/notify#2` is the second time that the
 * third item of `orders` came to `notify`. `seq` numbers what happened in the run, for whoever follows it.
 */
import { flowStepStates, stepErrorSchema, storedValueSchema } from "@toolyard/core/ports/flow-runs";
import { index, integer, primaryKey, sqliteTable, text } from "drizzle-orm/sqlite-core";
import { json, tenantColumn, time } from "../columns.ts";

export const flowSteps = sqliteTable(
  "flow_steps",
  {
    tenant: tenantColumn().notNull(),
    /** The call that the run is. */
    run: text("run").notNull(),
    path: text("path").notNull(),
    node: text("node").notNull(),
    kind: text("kind").notNull(),
    state: text("state", { enum: flowStepStates }).notNull(),
    /** Of the step itself, by its node's `retry`. */
    attempt: integer("attempt").notNull(),
    input: json("input", storedValueSchema),
    output: json("output", storedValueSchema),
    error: json("error", stepErrorSchema),
    /** The call that does it. */
    callId: text("call_id"),
    /** The call by which a person is asked what is to be done about it. */
    questionId: text("question_id"),
    /** What a model has said so far. */
    progress: json("progress", storedValueSchema),
    wakeAt: time("wake_at"),
    startedAt: time("started_at").notNull(),
    finishedAt: time("finished_at"),
    startedSeq: integer("started_seq").notNull(),
    seq: integer("seq").notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.tenant, table.run, table.path] }),
    index("flow_steps_seq").on(table.tenant, table.run, table.seq),
  ],
);
