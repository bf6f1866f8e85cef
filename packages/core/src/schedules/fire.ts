/**
 * Has schedules fire (VCP-18). Of all that find one due, one puts its firings on record as calls, in the transaction
 * that says when it is due next; the call then runs like any other that is queued, not before its time. A process
 * that dies after that has sent no message, and the sweep does.
 */
import type { Caller } from "../callers/caller.ts";
import { newToolCall, refusedCall } from "../calls/new-call.ts";
import { currentCaller } from "../calls/worker.ts";
import { enqueue, longestHopMs } from "../calls/enqueue.ts";
import { enterLiveSession } from "../calls/own-session.ts";
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError, toGatewayError } from "../errors/gateway-error.ts";
import { isOutage } from "../errors/outage.ts";
import { newId } from "../ids.ts";
import type { JsonObject } from "../json.ts";
import type { NewCall } from "../ports/calls.ts";
import type { DueSchedule, Taking } from "../ports/schedules.ts";
import { randomHex } from "../random-hex.ts";
import { Redactor } from "../secrets/redactor.ts";
import type { TenantConfig } from "../tenant-config.ts";
import { toRfc3339 } from "../time.ts";
import { rejectedBy, type Preparation } from "../tools/prepare.ts";
import { isVcpPlugin } from "../tools/tool.ts";
import { planDue, type Plan } from "./plan.ts";
import { firingAheadMs, firingRoute, type Schedule } from "./schedule.ts";
import { openTask, prepareTask } from "./task.ts";

/** Of one tick, in pieces; the next one goes on. */
const mostPieces = 25;
/** Of one tenant in one piece, which is one batch; those of the schedule that comes to it may go beyond. */
const mostFirings = 400;

interface Found {
  readonly due: readonly DueSchedule[];
  /** The database's clock. */
  readonly now: number;
}

export async function fireDue(deps: CoreDeps, found: Found, limit: number): Promise<void> {
  const failed: string[] = [];
  let piece = found;
  for (let pieces = 1; ; pieces += 1) {
    const { due, now } = piece;
    const byTenant = [...Map.groupBy(due, ({ tenant }) => tenant)];
    const fired = await Promise.all(
      byTenant.map(async ([tenant, own]) => ({ tenant, result: await fireTenant(deps, tenant, { due: own, now }) })),
    );
    failed.push(...fired.filter(({ result }) => result === "failed").map(({ tenant }) => tenant));
    const isMore = due.length >= limit || fired.some(({ result }) => result === "some");
    if (!isMore || pieces >= mostPieces) return;
    piece = await deps.repos.schedules.due({ limit, aheadMs: firingAheadMs, except: failed });
  }
}

/** What keeps one tenant's schedules from firing leaves them due, and the others alone. */
async function fireTenant(deps: CoreDeps, tenant: string, { due, now }: Found): Promise<"all" | "some" | "failed"> {
  try {
    const version = Math.max(...due.map(({ configVersion }) => configVersion));
    const config = await deps.configs.get(tenant, version);
    const callers = new CurrentCallers(deps, config);
    const schedules = due.map(({ schedule }) => schedule);
    const taken = await takeFirings(deps, { config, callers, schedules, now, untilMs: firingAheadMs });
    return taken < due.length ? "some" : "all";
  } catch (thrown) {
    const { code } = toGatewayError(thrown);
    deps.log.log("error", "schedules did not fire and are left to the next tick", { tenant, code, count: due.length });
    return "failed";
  }
}

/**
 * Who made a schedule, as it is now, in the session that it delivers to: that may have been deleted since, and begun
 * anew by somebody else. Each is asked for once.
 */
class CurrentCallers {
  readonly #deps: CoreDeps;
  readonly #config: TenantConfig;
  readonly #found = new Map<string, Promise<Caller | GatewayError>>();

  constructor(deps: CoreDeps, config: TenantConfig) {
    this.#deps = deps;
    this.#config = config;
  }

  of({ caller, deliver }: Schedule): Promise<Caller | GatewayError> {
    const { session_id: sessionId } = deliver;
    if (sessionId === undefined) return this.#ask(caller.id, () => this.#current(caller));
    return this.#ask(JSON.stringify([caller.id, sessionId]), async () => {
      const current = await this.#ask(caller.id, () => this.#current(caller));
      if (current instanceof GatewayError) return current;
      const { tenant } = this.#config;
      const context = { tenant, caller: current, config: this.#config };
      await enterLiveSession(this.#deps, context, sessionId, "deliver.session_id");
      return current;
    });
  }

  #current(caller: Caller): Promise<Caller> {
    return currentCaller(this.#deps, this.#config.tenant, { caller, scope: "tools" });
  }

  #ask(key: string, ask: () => Promise<Caller | GatewayError>): Promise<Caller | GatewayError> {
    const known = this.#found.get(key);
    if (known !== undefined) return known;
    const asked = ask().catch((thrown: unknown) => {
      const error = toGatewayError(thrown);
      if (isOutage(error)) throw error;
      return error;
    });
    this.#found.set(key, asked);
    return asked;
  }
}

interface Taken {
  readonly config: TenantConfig;
  readonly callers: CurrentCallers;
  readonly schedules: readonly Schedule[];
  readonly now: number;
  /** What is due within this goes on record. */
  readonly untilMs: number;
}

interface Firing {
  readonly row: NewCall;
  readonly expectedMs: number;
}

/** Those that make too many firings together are left due. @returns how many were looked at */
async function takeFirings(deps: CoreDeps, { config, callers, schedules, now, untilMs }: Taken): Promise<number> {
  const { tenant } = config;
  const plans = planSome(schedules, now, now + untilMs);
  const takings = await Promise.all(
    plans.map(async ({ schedule, dueAt, plan }) => {
      const caller = await callers.of(schedule);
      const firings = await Promise.all(plan.firings.map((at) => firingAt(deps, config, { schedule, caller, at })));
      const taking: Taking = {
        id: schedule.id,
        dueAt,
        nextAt: plan.nextAt,
        takenAt: plan.firings.at(-1) ?? null,
        missedAt: plan.missedAt,
        callerId: schedule.caller.id,
        firings: firings.map(({ row }) => row),
      };
      return { taking, firings };
    }),
  );
  deps.reach("schedule.planned");
  const queued = new Set(
    await deps.repos.schedules.take(
      tenant,
      takings.map(({ taking }) => taking),
    ),
  );
  deps.reach("schedule.recorded");
  const own = takings.flatMap(({ firings }) => firings).filter(({ row }) => queued.has(row.id));
  await Promise.all(own.map((firing) => send(deps, tenant, { firing, now })));
  deps.reach("schedule.queued");
  return plans.length;
}

interface Planned {
  readonly schedule: Schedule;
  readonly dueAt: number;
  readonly plan: Plan;
}

function planSome(schedules: readonly Schedule[], now: number, until: number): readonly Planned[] {
  const plans: Planned[] = [];
  let count = 0;
  for (const schedule of schedules) {
    const { nextAt: dueAt, misfire } = schedule;
    if (dueAt === null) continue;
    if (count >= mostFirings) break;
    const plan = planDue({ timeline: schedule, misfire, nextAt: dueAt }, now, until);
    plans.push({ schedule, dueAt, plan });
    count += plan.firings.length;
  }
  return plans;
}

async function send(
  deps: CoreDeps,
  tenant: string,
  { firing: { row, expectedMs }, now }: { readonly firing: Firing; readonly now: number },
): Promise<void> {
  const delayMs = Math.min(longestHopMs, Math.max(0, (row.runAt ?? now) - now));
  await enqueue(deps, { tenant, callId: row.id, expectedMs, delayMs });
}

interface FiringRequest {
  readonly schedule: Schedule;
  /** As it is now, or why it may call nothing any more. */
  readonly caller: Caller | GatewayError;
  readonly at: number;
  /** Absent: that of the time. */
  readonly key?: string;
}

/** A row for one firing; a refused one where nothing can be called. */
async function firingAt(deps: CoreDeps, config: TenantConfig, request: FiringRequest): Promise<Firing> {
  const { schedule, caller, at } = request;
  const context = contextOf(config, schedule, caller instanceof GatewayError ? schedule.caller : caller);
  const place = {
    route: firingRoute,
    parentId: schedule.id,
    rootId: null,
    via: [{ kind: "schedule", id: schedule.id }],
  };
  const { preparation, given } = await prepared(deps, context, request);
  if (preparation.kind === "refused") return { row: refusedCall(context, place, preparation, given), expectedMs: 0 };
  const { call } = preparation;
  const args = isVcpPlugin(call.tool)
    ? { ...call.arguments, __vcp_timed_call: timedCall(schedule, at) }
    : call.arguments;
  const row = await newToolCall(
    deps,
    context,
    { ...call, arguments: args },
    {
      ...place,
      state: preparation.kind === "needs_approval" ? "input_required" : "queued",
      async: true,
      slots: 1,
      delivery: schedule.deliver.session_id === undefined ? "none" : "due",
      idempotencyKey: request.key ?? `${schedule.id}/${toRfc3339(at)}`,
      runAt: at,
    },
  );
  return { row, expectedMs: call.timeoutMs * call.maxAttempts };
}

/** Whatever is wrong is said in the record, and the schedule goes on; an outage leaves it due. */
async function prepared(
  deps: CoreDeps,
  context: CallContext,
  { schedule, caller }: FiringRequest,
): Promise<{ readonly preparation: Preparation; readonly given: JsonObject }> {
  try {
    if (caller instanceof GatewayError) throw caller;
    const task = await openTask(deps, context, schedule);
    const { item, preparation } = await prepareTask(deps, context, task);
    return { preparation, given: typeof item.arguments === "string" ? {} : item.arguments };
  } catch (thrown) {
    const error = toGatewayError(thrown);
    if (isOutage(error)) throw error;
    const refused = { id: newId("call"), target: schedule.target, tool: undefined, outcome: rejectedBy(error) };
    return { preparation: { kind: "refused", ...refused }, given: {} };
  }
}

function contextOf(config: TenantConfig, { deliver }: Schedule, caller: Caller): CallContext {
  return {
    tenant: config.tenant,
    caller,
    config,
    requestId: newId("request"),
    traceId: randomHex(16),
    redactor: new Redactor(),
    ...(deliver.session_id === undefined ? {} : { sessionId: deliver.session_id }),
  };
}

/** What plugins of VCP are told of it. */
function timedCall({ id, taskId, createdAt }: Schedule, at: number): JsonObject {
  return {
    taskId: taskId ?? id,
    requestedAt: toRfc3339(createdAt),
    scheduledFor: toRfc3339(at),
    triggeredAt: toRfc3339(at),
    source: "schedule_task",
  };
}

/**
 * What is due soon goes on record at once instead of with the next tick. Never throws: the tick does it as well.
 * @param untilMs how soon
 */
export async function fireSoon(
  deps: CoreDeps,
  config: TenantConfig,
  { schedule, now, untilMs }: { readonly schedule: Schedule; readonly now: number; readonly untilMs: number },
): Promise<void> {
  const callers = new CurrentCallers(deps, config);
  try {
    await takeFirings(deps, { config, callers, schedules: [schedule], now, untilMs });
  } catch (thrown) {
    const { code } = toGatewayError(thrown);
    deps.log.log("warn", "a schedule is left to the tick", { tenant: config.tenant, schedule: schedule.id, code });
  }
}

/** A firing of its own, with the time of now. */
export async function fireNow(
  deps: CoreDeps,
  config: TenantConfig,
  { schedule, idempotencyKey }: { readonly schedule: Schedule; readonly idempotencyKey: string | undefined },
): Promise<{ readonly callId: string; readonly state: string; readonly replayed: boolean }> {
  const { tenant } = config;
  const caller = await new CurrentCallers(deps, config).of(schedule);
  const now = deps.clock.now();
  const key = `${schedule.id}/run/${idempotencyKey ?? newId("request")}`;
  const firing = await firingAt(deps, config, { schedule, caller, at: now, key });
  const [recorded] = await deps.repos.calls.record(tenant, schedule.caller.id, [firing.row]);
  if (recorded?.kind === "existing") {
    return { callId: recorded.call.id, state: recorded.call.state, replayed: true };
  }
  const state = firing.row.end?.state ?? firing.row.state;
  if (state === "queued") await send(deps, tenant, { firing, now });
  return { callId: firing.row.id, state, replayed: false };
}
