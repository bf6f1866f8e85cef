/** Schedules: tool calls for later, once or again and again (VCP-18; docs/schedules.md). */
import { describedBy } from "@toolyard/core/described-by";
import { isJsonObject, type JsonObject } from "@toolyard/core/json";
import {
  deliverSchema,
  newScheduleSchema,
  upcomingFrom,
  type Schedule,
  type ScheduleTask,
} from "@toolyard/core/schedules/schedule";
import { misfirePolicies } from "@toolyard/core/schedules/plan";
import { nextFirings } from "@toolyard/core/schedules/timeline";
import { hasScope } from "@toolyard/core/callers/caller";
import { toRfc3339 } from "@toolyard/core/time";
import * as z from "zod";
import { defineRoute, type IsolatedRequest, type IsolationDriver } from "../define-route.ts";
import { toInvalidRequest } from "../errors.ts";
import { readIdempotencyKey, replayHeaders } from "../idempotency-key.ts";
import { listSchema, pageQuery, toList, toPageRequest } from "../list.ts";
import { emptyBody, idOf, idParams, timeSchema } from "./shared.ts";

const tags = ["schedules"];
const shownFirings = 5;

const fields = {
  id: z.string().meta({ example: "sched_01jdnhz2v4x8mfkq3w7c5r9gta" }),
  object: z.literal("schedule"),
  name: z.string().nullable(),
  task_id: z.string().nullable().meta({ description: "That a client of VCP has given it." }),
  state: z.enum(["active", "paused", "ended"]),
  given: z
    .strictObject({ field: z.enum(["at", "delay_ms", "cron", "rate"]), value: z.string() })
    .meta({ description: "When it fires, as it was written." }),
  expressions: z
    .array(z.string())
    .meta({ description: "The same as EventBridge writes it; it fires at the times of any." }),
  time_zone: z.string(),
  start: timeSchema.nullable(),
  end: timeSchema.nullable(),
  misfire: z.enum(misfirePolicies),
  target: z.string().meta({ description: "URI of the tool." }),
  deliver: deliverSchema,
  next: z.array(timeSchema).meta({ description: `The next ${shownFirings} firings; none while it is paused.` }),
  fired: z.int().meta({ description: "Firings on record, with one that is due within the next minute or two." }),
  last_firing: z
    .strictObject({ call_id: z.string(), state: z.string(), ended_at: timeSchema })
    .nullable()
    .meta({ description: "The last one that has ended. All are listed by GET /v1/calls?parent_id={id}." }),
  last_error: z
    .strictObject({ code: z.string(), message: z.string() })
    .nullable()
    .meta({ description: "Of that one." }),
  last_missed_at: timeSchema.nullable().meta({ description: "The latest time at which nothing could fire it." }),
  caller_id: z.string(),
  created_at: timeSchema,
  updated_at: timeSchema,
};
const scheduleSchema = z.strictObject(fields);
const withTaskSchema = z
  .strictObject({
    ...fields,
    task: z
      .record(z.string(), z.json())
      .nullable()
      .meta({ description: "What it calls; null: it cannot be read any more." }),
  })
  .meta({ id: "ScheduledTask" });

function viewSchedule(schedule: Schedule, now: number): z.output<typeof scheduleSchema> {
  const { id, name, taskId, given, timeZone, misfire, target, deliver, fired, lastError, caller } = schedule;
  const { state } = upcomingFrom(schedule, now);
  return {
    id,
    object: "schedule",
    name,
    task_id: taskId,
    state,
    given: { ...given },
    expressions: [...expressionsOf(schedule)],
    time_zone: timeZone,
    start: timeOf(schedule.startAt),
    end: timeOf(schedule.endAt),
    misfire,
    target,
    deliver,
    next: state === "active" ? nextFirings(schedule, now, shownFirings).map(toRfc3339) : [],
    fired,
    last_firing: lastFiringOf(schedule),
    last_error: lastError === null ? null : { ...lastError },
    last_missed_at: timeOf(schedule.missedAt),
    caller_id: caller.id,
    created_at: toRfc3339(schedule.createdAt),
    updated_at: toRfc3339(schedule.updatedAt),
  };
}

function lastFiringOf({ lastCallId, lastState, lastEndedAt }: Schedule): z.output<typeof fields.last_firing> {
  if (lastCallId === null || lastState === null || lastEndedAt === null) return null;
  return { call_id: lastCallId, state: lastState, ended_at: toRfc3339(lastEndedAt) };
}

function expressionsOf({ timing }: Schedule): readonly string[] {
  switch (timing.kind) {
    case "at":
      return [`at(${toRfc3339(timing.at).slice(0, 19)})`];
    case "rate":
      return [rateOf(timing.every_ms)];
    case "cron":
      return timing.expressions;
    default:
      return timing satisfies never;
  }
}

const units = [
  ["day", 86_400_000],
  ["hour", 3_600_000],
  ["minute", 60_000],
] as const;

function rateOf(everyMs: number): string {
  const [unit, ms] = units.find(([, each]) => everyMs % each === 0) ?? units[2];
  const count = everyMs / ms;
  return `rate(${count} ${unit}${count === 1 ? "" : "s"})`;
}

function timeOf(at: number | null): string | null {
  return at === null ? null : toRfc3339(at);
}

function withTask(schedule: Schedule, task: ScheduleTask | undefined, now: number): z.output<typeof withTaskSchema> {
  return { ...viewSchedule(schedule, now), task: task === undefined ? null : { ...task } };
}

// oxlint-disable-next-line typescript/explicit-function-return-type
const register = () => import("@toolyard/core/schedules/register");

/** A schedule of the owner that does not fire meanwhile, for the isolation suite. */
async function arrangeSchedule(owner: IsolationDriver): Promise<string> {
  const task = { uri: "native://list_files", arguments: {} };
  const deliver = { session_id: `s-${Math.random().toString(36).slice(2)}` };
  return String((await owner.send("post", "/v1/schedule_task", { rate: "30 days", task, deliver }))["id"]);
}

const arrangeObject = async (owner: IsolationDriver): Promise<IsolatedRequest> => ({
  params: { id: await arrangeSchedule(owner) },
});

const upstreamBody = z.looseObject({
  schedule_time: z.string(),
  task_id: z.string(),
  tool_call: z.looseObject({ tool_name: z.string(), arguments: z.record(z.string(), z.json()).optional() }),
});
const upstreamAnswer = z.looseObject({ status: z.enum(["success", "error"]) });
const refusals = Object.fromEntries(
  [400, 403, 404, 409].map((status) => [
    status,
    { description: "As VCP answers, or as everywhere", schema: z.looseObject({}) },
  ]),
);

export const createSchedule = defineRoute({
  method: "post",
  path: "/v1/schedule_task",
  summary: "Call a tool later, once or again and again",
  description:
    "`at`, `delay_ms`, `cron` or `rate` says when. Each firing is a call of whoever made the schedule, with the permissions of then. A body with `schedule_time`, `task_id` and `tool_call` is taken as VCP has it, and answered so.",
  tags,
  scope: "tools",
  request: {
    // Which of the two it is decides how it is read, and what an error looks like.
    body: z
      .custom<JsonObject>(isJsonObject, "Invalid input: expected object")
      .meta(describedBy(() => z.union([newScheduleSchema, upstreamBody]))),
    toolArguments: ["task", "tool_call"],
    refusesRepeats: true,
  },
  responses: {
    200: { description: "As VCP answers", schema: upstreamAnswer },
    201: { description: "The schedule", schema: withTaskSchema },
    ...refusals,
  },
  isolation: { kind: "nothing-owned", reason: "Makes a schedule of the caller's own tenant." },
  async handler(c, { core, context, body }) {
    const { isUpstream, scheduleUpstream } = await import("@toolyard/core/schedules/upstream");
    if (isUpstream(body)) {
      const answer = await scheduleUpstream(core, context, body);
      return c.json(answer.body, answer.status);
    }
    const parsed = newScheduleSchema.safeParse(body);
    if (!parsed.success) throw toInvalidRequest(parsed.error, "body");
    const { createSchedule: create } = await register();
    const schedule = await create(core, context, parsed.data);
    return c.json(withTask(schedule, parsed.data.task, core.clock.now()), 201);
  },
});

export const listSchedules = defineRoute({
  method: "get",
  path: "/v1/schedule_task",
  summary: "List schedules",
  description: "One's own; with the scope 'manage' those of the tenant. What has ended is shown for 30 days.",
  tags,
  scope: "tools",
  list: true,
  request: { query: pageQuery },
  responses: { 200: { description: "A page of schedules", schema: listSchema(scheduleSchema) } },
  isolation: { kind: "list", arrange: arrangeSchedule },
  async handler(c, { core, tenant, caller, query }) {
    const callerId = hasScope(caller, "manage") ? undefined : caller.id;
    const page = await core.repos.schedules.list(tenant, toPageRequest(query), callerId);
    const now = core.clock.now();
    return c.json(toList(page, (schedule) => viewSchedule(schedule, now), idOf));
  },
});

export const getSchedule = defineRoute({
  method: "get",
  path: "/v1/schedule_task/{id}",
  summary: "One schedule, with its next firings and what the last one came to",
  tags,
  scope: "tools",
  request: { params: idParams },
  responses: { 200: { description: "The schedule", schema: withTaskSchema } },
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { core, context, params }) {
    const { readTask, requireSchedule } = await register();
    const schedule = await requireSchedule(core, context, params.id);
    return c.json(withTask(schedule, await readTask(core, context, schedule), core.clock.now()));
  },
});

export const deleteSchedule = defineRoute({
  method: "delete",
  path: "/v1/schedule_task/{id}",
  summary: "Delete a schedule",
  description:
    "It fires no more; a firing that waits for its time or for approval is called off, one that runs goes on.",
  tags,
  scope: "tools",
  request: { params: idParams },
  responses: { 204: { description: "The schedule is gone" } },
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { core, context, params }) {
    const { deleteSchedule: remove } = await register();
    await remove(core, context, params.id);
    return c.body(null, 204);
  },
});

function changeRoute(
  verb: "pause" | "resume",
  { summary, description }: { readonly summary: string; readonly description: string },
): ReturnType<typeof defineRoute> {
  return defineRoute({
    method: "post",
    path: `/v1/schedule_task/{id}/${verb}`,
    summary,
    description,
    tags,
    scope: "tools",
    request: { params: idParams, body: emptyBody },
    responses: { 200: { description: "The schedule as it is now", schema: scheduleSchema } },
    isolation: { kind: "object", arrange: arrangeObject },
    async handler(c, { core, context, params }) {
      const { pauseSchedule: pause, resumeSchedule: resume } = await register();
      const schedule = await (verb === "pause" ? pause : resume)(core, context, params.id);
      return c.json(viewSchedule(schedule, core.clock.now()));
    },
  });
}

export const pauseSchedule = changeRoute("pause", {
  summary: "Have a schedule wait",
  description: "As deletion, but it can be resumed.",
});
export const resumeSchedule = changeRoute("resume", {
  summary: "Have a schedule go on",
  description: "With its next time from now; what would have fired meanwhile is left out.",
});

export const runSchedule = defineRoute({
  method: "post",
  path: "/v1/schedule_task/{id}/run",
  summary: "Have a schedule fire now",
  description:
    "A firing of its own, beside those that it has anyway; a paused schedule and one that has ended can be run, too.",
  tags,
  scope: "tools",
  request: {
    params: idParams,
    body: emptyBody,
    headers: { "idempotency-key": "The same firing is named again for 24 hours." },
  },
  responses: {
    202: {
      description: "The firing; follow GET /v1/calls/{call_id}",
      schema: z.strictObject({ schedule_id: z.string(), call_id: z.string(), state: z.string() }),
    },
  },
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { core, context, params }) {
    const { runSchedule: run } = await register();
    const idempotencyKey = readIdempotencyKey(c);
    const { callId, state, replayed } = await run(core, context, { id: params.id, idempotencyKey });
    return c.json({ schedule_id: params.id, call_id: callId, state }, 202, replayHeaders(replayed));
  },
});
