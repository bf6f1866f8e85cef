/** Makes schedules, finds those that a caller may see, and does to them what people may. */
import { longestHopMs } from "../calls/enqueue.ts";
import { enterLiveSession } from "../calls/own-session.ts";
import { hasScope } from "../callers/caller.ts";
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { newId } from "../ids.ts";
import { toRfc3339 } from "../time.ts";
import { fireNow, fireSoon } from "./fire.ts";
import { readTiming } from "./read-timing.ts";
import { firingAheadMs, maySeeSchedule, type Delivery, type NewScheduleRequest, type Schedule } from "./schedule.ts";
import { openTask, prepareTask, requireReady, sealTask } from "./task.ts";
import { nextFiring } from "./timeline.ts";

export interface NewScheduleOptions {
  /** Of a client of VCP. */
  readonly taskId?: string;
}

/**
 * @throws GatewayError `invalid_request` for whatever would never fire, `session_not_found`, `session_expired`, `conflict`, and
 * whatever keeps the tool from being called now
 */
export async function createSchedule(
  deps: CoreDeps,
  context: CallContext,
  request: NewScheduleRequest,
  { taskId }: NewScheduleOptions = {},
): Promise<Schedule> {
  const { tenant, caller, config } = context;
  const now = deps.clock.now();
  const timing = readTiming(request, now, config.settings.time_zone);
  const deliver = request.deliver ?? {};
  await requireWebhook(deps, context, deliver);
  const { session_id: sessionId } = deliver;
  const then: CallContext = sessionId === undefined ? context : { ...context, sessionId };
  const { call } = requireReady((await prepareTask(deps, then, request.task)).preparation);
  if (sessionId !== undefined) await enterLiveSession(deps, context, sessionId, "deliver.session_id");
  const id = newId("schedule");
  const created = await deps.repos.schedules.create(tenant, {
    ...timing,
    id,
    name: request.name ?? null,
    taskId: taskId ?? null,
    misfire: request.misfire,
    target: call.tool.uri,
    task: await sealTask(deps, context, id, request.task),
    deliver,
    caller,
    paused: request.paused,
  });
  return soon(deps, context, created);
}

/** What is due before a tick is sure to have looked. */
async function soon(deps: CoreDeps, { tenant, config }: CallContext, schedule: Schedule): Promise<Schedule> {
  const now = deps.clock.now();
  // What fires once can go to the queue as it is; what fires again is looked at by the tick anyway.
  const untilMs = schedule.timing.kind === "at" ? longestHopMs : firingAheadMs;
  if (schedule.paused || schedule.nextAt === null || schedule.nextAt > now + untilMs) return schedule;
  await fireSoon(deps, config, { schedule, now, untilMs });
  return (await deps.repos.schedules.get(tenant, schedule.id)) ?? schedule;
}

async function requireWebhook({ repos }: CoreDeps, { tenant }: CallContext, { webhook }: Delivery): Promise<void> {
  if (webhook !== undefined && (await repos.webhooks.get(tenant, webhook)) === undefined) {
    throw new GatewayError("invalid_request", `'deliver.webhook': there is no webhook '${webhook}'.`, {
      param: "deliver.webhook",
    });
  }
}

/** @throws GatewayError `not_found`, the same for a missing, a foreign and a hidden one */
export async function requireSchedule(
  { repos }: Pick<CoreDeps, "repos">,
  { tenant, caller }: Pick<CallContext, "tenant" | "caller">,
  id: string,
): Promise<Schedule> {
  const schedule = await repos.schedules.get(tenant, id);
  if (schedule === undefined || !maySeeSchedule(caller, schedule)) throw missing(id);
  return schedule;
}

/** What it calls, for people. Undefined: it cannot be opened any more. */
export async function readTask(
  deps: CoreDeps,
  context: CallContext,
  schedule: Schedule,
): Promise<Awaited<ReturnType<typeof openTask>> | undefined> {
  try {
    return await openTask(deps, context, schedule);
  } catch (error) {
    if (error instanceof GatewayError && error.code !== "database_unavailable") return undefined;
    throw error;
  }
}

/** Without reading it: also of one that cannot be read. @throws GatewayError `not_found` */
export async function deleteSchedule(deps: CoreDeps, { tenant, caller }: CallContext, id: string): Promise<void> {
  const owner = hasScope(caller, "manage") ? undefined : caller.id;
  if (!(await deps.repos.schedules.delete(tenant, id, owner))) throw missing(id);
}

export async function pauseSchedule(deps: CoreDeps, context: CallContext, id: string): Promise<Schedule> {
  await requireSchedule(deps, context, id);
  return found(await deps.repos.schedules.pause(context.tenant, id), id);
}

/**
 * What would have fired meanwhile is not made up for: that it does not fire is what it was paused for.
 * @throws GatewayError `conflict` for what would never fire again
 */
export async function resumeSchedule(deps: CoreDeps, context: CallContext, id: string): Promise<Schedule> {
  const schedule = await requireSchedule(deps, context, id);
  if (!schedule.paused) return schedule;
  const nextAt = nextFiring(schedule, deps.clock.now());
  if (nextAt === undefined) {
    const last = schedule.nextAt === null ? "" : ` Its time was ${toRfc3339(schedule.nextAt)}.`;
    throw new GatewayError(
      "conflict",
      `Schedule '${id}' has no time left at which it could fire.${last} Run it with POST /v1/schedule_task/${id}/run, or make another.`,
      { param: "id" },
    );
  }
  return soon(deps, context, found(await deps.repos.schedules.resume(context.tenant, id, nextAt), id));
}

/** @throws GatewayError `not_found` */
export async function runSchedule(
  deps: CoreDeps,
  context: CallContext,
  { id, idempotencyKey }: { readonly id: string; readonly idempotencyKey: string | undefined },
): ReturnType<typeof fireNow> {
  return fireNow(deps, context.config, { schedule: await requireSchedule(deps, context, id), idempotencyKey });
}

function found(schedule: Schedule | undefined, id: string): Schedule {
  if (schedule === undefined) throw missing(id);
  return schedule;
}

function missing(id: string): GatewayError {
  return new GatewayError("not_found", `There is no schedule '${id}'.`, { param: "id" });
}
