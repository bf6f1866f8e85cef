/**
 * A schedule: a tool call for later, once or again and again (VCP specification s. 10; VCP-18). It is a row that the
 * tick looks at (tick.ts); each firing is a call of whoever made it, so record, approval, limits and results are
 * those of any call.
 */
import * as z from "zod";
import { hasScope, type Caller } from "../callers/caller.ts";
import type { CallState } from "../calls/call.ts";
import { sessionIdSchema } from "../chat/schema.ts";
import { isJsonObject, type JsonObject } from "../json.ts";
import { misfirePolicies, type Misfire } from "./plan.ts";
import type { Timeline } from "./timeline.ts";

/** Of firings: as it stands in the record. */
export const firingRoute = "schedule.firing";

/** How far ahead firings go on record: longer than from one tick to the next, so that none is late. */
export const firingAheadMs = 90_000;

const jsonObject = z.custom<JsonObject>(isJsonObject, "Invalid input: expected object");

export const taskSchema = z.union([
  z.strictObject({
    uri: z.string().min(1).max(2_048).meta({ description: "Tool URI, or a tool's name.", example: "api://crm/sync" }),
    arguments: jsonObject.default({}).meta({ type: "object", additionalProperties: true }),
  }),
  z.strictObject({
    tool_request: z.string().min(1).max(1_048_576).meta({ description: "One TOOL_REQUEST block of VCP." }),
  }),
  z.strictObject({
    tool_call: z
      .strictObject({
        tool_name: z.string().min(1).max(2_048),
        arguments: jsonObject.default({}).meta({ type: "object", additionalProperties: true }),
      })
      .meta({ description: "The same, read already." }),
  }),
]);
/** As it was given, and as it is kept, sealed. */
export type ScheduleTask = z.output<typeof taskSchema>;

const sessionUse = "The tool works in this session, whose next request is given the result.";

export const deliverSchema = z.strictObject({
  webhook: z
    .string()
    .min(1)
    .max(64)
    .optional()
    .meta({ description: "Id of a webhook that is told of every end, whatever else it wants to hear of." }),
  push: z
    .string()
    .min(1)
    .max(64)
    .optional()
    .meta({ description: "Clients of this type that are connected hear the result." }),
  session_id: z.string().min(1).max(128).optional().meta({ description: sessionUse }),
});
export type Delivery = z.output<typeof deliverSchema>;

const zoneField = z.string().min(1).max(64);
const timeField = z.string().min(1).max(64);

/** What whoever makes one may say. */
export const newScheduleSchema = z.strictObject({
  name: z.string().trim().min(1).max(128).optional().meta({ description: "For people." }),
  at: timeField.optional().meta({
    description:
      "Once: RFC 3339 with an offset, or without one, on the clock of `time_zone`; EventBridge's `at(…)` as well.",
    example: "2026-12-24T18:00:00",
  }),
  delay_ms: z.int().min(0).max(315_360_000_000).optional().meta({ description: "Once, so long from now." }),
  cron: z.string().min(1).max(256).optional().meta({
    description: "Five fields as crontab(5) has them, or EventBridge's `cron(…)` of six.",
    example: "0 9 * * 1-5",
  }),
  rate: z
    .string()
    .min(1)
    .max(64)
    .optional()
    .meta({ description: "`5 minutes`, or EventBridge's `rate(5 minutes)`.", example: "5 minutes" }),
  time_zone: zoneField
    .optional()
    .meta({ description: "Whose clock is meant; absent: the setting `time_zone`.", example: "Europe/Berlin" }),
  start: timeField.optional().meta({ description: "With `cron` or `rate`: nothing before. A rate fires then first." }),
  end: timeField.optional().meta({ description: "With `cron` or `rate`: nothing after." }),
  misfire: z.enum(misfirePolicies).default("once").meta({
    description:
      "What becomes of firings that were missed by two minutes, since everything was down: none, one for all of them, or each, the latest 100.",
  }),
  task: taskSchema,
  deliver: deliverSchema
    // As requests name it; what is stored is read however it is.
    .extend({ session_id: sessionIdSchema.optional().meta({ description: sessionUse }) })
    .optional()
    .meta({ description: "Where results go beside the record." }),
  paused: z.boolean().default(false),
});
export type NewScheduleRequest = z.output<typeof newScheduleSchema>;

export interface Schedule extends Timeline {
  /** `sched_…`; the parent of its firings. */
  readonly id: string;
  readonly name: string | null;
  /** Of a client of VCP; unique within the tenant. */
  readonly taskId: string | null;
  /** As it was given, for people. */
  readonly given: { readonly field: "at" | "delay_ms" | "cron" | "rate"; readonly value: string };
  readonly misfire: Misfire;
  /** URI or name of the tool: what may be shown and looked for. */
  readonly target: string;
  /** JWE of `ScheduleTask`. */
  readonly task: string;
  readonly deliver: Delivery;
  /** Who made it, as it was then. */
  readonly caller: Caller;
  readonly paused: boolean;
  /** When it is due next; null: never again. */
  readonly nextAt: number | null;
  /** The latest time that a firing is on record for; it may lie ahead. */
  readonly takenAt: number | null;
  readonly missedAt: number | null;
  /** Firings on record so far. */
  readonly fired: number;
  /** The last firing that has ended. */
  readonly lastCallId: string | null;
  readonly lastState: CallState | null;
  readonly lastError: { readonly code: string; readonly message: string } | null;
  readonly lastEndedAt: number | null;
  readonly createdAt: number;
  readonly updatedAt: number;
}

/** One's own; with the scope `manage` those of the tenant. */
export function maySeeSchedule(caller: Caller, schedule: Pick<Schedule, "caller">): boolean {
  return schedule.caller.id === caller.id || hasScope(caller, "manage");
}

/** What is still to come: what is on record already for a time ahead, and what is due after it. */
export function upcomingFrom(
  { paused, nextAt, takenAt }: Pick<Schedule, "paused" | "nextAt" | "takenAt">,
  now: number,
): { readonly state: "active" | "paused" | "ended"; readonly taken: readonly number[] } {
  if (paused && nextAt !== null) return { state: "paused", taken: [] };
  const taken = takenAt !== null && takenAt > now ? [takenAt] : [];
  return { state: nextAt === null && taken.length === 0 ? "ended" : "active", taken };
}
