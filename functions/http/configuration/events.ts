/** What happens by itself: webhooks, subscriptions, schedules; and budgets, which end it. */
import type { Caller } from "@toolyard/core/callers/caller";
import type { Kind, Work } from "@toolyard/core/configuration/kind";
import { toPlain } from "@toolyard/core/configuration/compare";
import { firstEffect, rehearsing } from "@toolyard/core/configuration/rehearse";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { readEveryPage } from "@toolyard/core/every-page";
import type { JsonObject, JsonValue } from "@toolyard/core/json";
import { mostOf } from "@toolyard/core/ports/limits";
import { newScheduleSchema, upcomingFrom, type Schedule } from "@toolyard/core/schedules/schedule";
import { toRfc3339 } from "@toolyard/core/time";
import { formatToolUri, parseToolUri } from "@toolyard/core/tools/uri";
import { webhookEventSchema } from "@toolyard/core/webhooks/webhook";
import * as z from "zod";
import { ask, idIn, joinedName, liveAt, mapSome, objectOf, parseBody, parseBy, textIn, type RouteOf } from "./part.ts";

const eventsInOrder = (events: readonly unknown[]): string[] =>
  webhookEventSchema.options.filter((event) => events.includes(event));

export const webhooks = (route: RouteOf<"createWebhook" | "updateWebhook" | "deleteWebhook">): Kind => ({
  repeats: true,
  identify: (item) => textIn(item, "name"),
  async read({ core, context }) {
    const all = await readEveryPage((page) => core.repos.webhooks.list(context.tenant, page));
    return all.map(({ id, name, url, events, enabled }) =>
      liveAt(id, { name, url, events: eventsInOrder(events), enabled }),
    );
  },
  parse(_work, item) {
    const { events, ...rest } = parseBody(route("createWebhook"), item);
    return { ...rest, events: eventsInOrder(Array.isArray(events) ? events : []) };
  },
  async write(work, { item, before, changed }) {
    if (before === undefined) return idIn(await ask(work, route("createWebhook"), { body: item }));
    await ask(work, route("updateWebhook"), { params: { id: before.id }, body: changed });
    return before.id;
  },
  async remove(work, { id }) {
    await ask(work, route("deleteWebhook"), { params: { id } });
  },
  async room({ core, context }) {
    const all = await readEveryPage((page) => core.repos.webhooks.list(context.tenant, page));
    return { most: mostOf.webhooks, there: all.length, called: "webhooks" };
  },
});

/** A service that the document brings has not named its tools yet, so what is one shows when it is there. */
async function unlessToCome(work: Work, uri: string, check: () => Promise<string>): Promise<string | undefined> {
  try {
    return await check();
  } catch (error) {
    if (error instanceof GatewayError && error.code === "tool_not_found" && isToCome(work, uri)) return undefined;
    throw error;
  }
}

function isToCome({ core, context }: Work, text: string): boolean {
  if (!text.includes("://")) return false;
  const { scheme, service } = parseToolUri(text);
  const found = context.config.services.find((each) => each.scheme === scheme && each.serviceId === service);
  const runtime = core.adapters[scheme]?.services;
  return found?.discovered === null && found.id.startsWith("new ") && runtime?.discovers === true;
}

export const subscriptions = (
  route: RouteOf<"createSubscription" | "updateSubscription" | "deleteSubscription">,
): Kind => ({
  identify: (item) => textIn(item, "name"),
  async read({ core, context }) {
    const all = await readEveryPage((page) => core.repos.subscriptions.list(context.tenant, page));
    return all.map(({ id, name, description, serviceId, topic, target, options, enabled }) =>
      liveAt(id, { name, description, uri: formatToolUri("mq", serviceId, topic), target, options, enabled }),
    );
  },
  parse(_work, item) {
    const parsed = parseBody(route("createSubscription"), item);
    const { scheme, service, tool } = parseToolUri(textIn(parsed, "uri"));
    return { ...parsed, uri: formatToolUri(scheme, service, tool) };
  },
  write: (work, { item, before, changed }) =>
    unlessToCome(work, textIn(objectOf(item)["target"] ?? null, "uri"), async () => {
      if (before === undefined) return idIn(await ask(work, route("createSubscription"), { body: item }));
      await ask(work, route("updateSubscription"), { params: { id: before.id }, body: changed });
      return before.id;
    }),
  async remove(work, { id }) {
    await ask(work, route("deleteSubscription"), { params: { id } });
  },
  async room({ core, context }) {
    const all = await readEveryPage((page) => core.repos.subscriptions.list(context.tenant, page));
    return { most: mostOf.subscriptions, there: all.length, called: "subscriptions" };
  },
});

// Schedules

/** That fire again and again for the tenant: what is somebody's own, or a session's, is left to them. */
function isOfTenant(schedule: Schedule, now: number): boolean {
  const { taskId, timing, deliver, caller } = schedule;
  const isOwn = caller.userId !== undefined || deliver.session_id !== undefined || taskId !== null;
  return timing.kind !== "at" && !isOwn && upcomingFrom(schedule, now).state !== "ended";
}

const scheduleSchema = newScheduleSchema.omit({ at: true, delay_ms: true }).extend({
  deliver: z
    .strictObject({ webhook: z.string().min(1).max(128).optional(), push: z.string().min(1).max(64).optional() })
    .default({}),
});

const timeOf = (at: number | null, field: "start" | "end"): JsonObject =>
  at === null ? {} : { [field]: toRfc3339(at) };

// oxlint-disable-next-line typescript/explicit-function-return-type
const register = () => import("@toolyard/core/schedules/register");

export const schedules = (
  route: RouteOf<"pauseSchedule" | "resumeSchedule" | "createSchedule" | "deleteSchedule">,
): Kind => ({
  repeats: true,
  identify: (item) => {
    const { task } = objectOf(item);
    return textIn(item, "name") || textIn(task ?? null, "uri");
  },
  async read({ core, context }) {
    const { readTask } = await register();
    const all = await readEveryPage((page) => core.repos.schedules.list(context.tenant, page));
    const own = all.filter((schedule) => isOfTenant(schedule, core.clock.now()));
    const hooks = await readEveryPage((page) => core.repos.webhooks.list(context.tenant, page));
    const names = new Map(hooks.map(({ id, name }) => [id, name]));
    const read = await mapSome(own, async (schedule) => {
      const task = await readTask(core, context, schedule);
      const { id, name, given, timeZone, startAt, endAt, misfire, paused, deliver } = schedule;
      if (task === undefined) return [];
      const { webhook, push } = deliver;
      const item = {
        ...(name === null ? {} : { name }),
        [given.field]: given.value,
        time_zone: timeZone,
        ...timeOf(startAt, "start"),
        ...timeOf(endAt, "end"),
        misfire,
        task,
        deliver: { webhook: webhook === undefined ? undefined : (names.get(webhook) ?? webhook), push },
        paused,
      };
      return [liveAt(id, item)];
    });
    return read.flat();
  },
  async parse({ core, context }, item) {
    const parsed = parseBy(scheduleSchema, item);
    const { readTiming } = await import("@toolyard/core/schedules/read-timing");
    const asked = newScheduleSchema.parse({ ...parsed, deliver: {} });
    const { given, timeZone, startAt, endAt } = readTiming(asked, core.clock.now(), context.config.settings.time_zone);
    const { start: _start, end: _end, ...rest } = parsed;
    return {
      ...rest,
      [given.field]: given.value,
      time_zone: timeZone,
      ...timeOf(startAt, "start"),
      ...timeOf(endAt, "end"),
    };
  },
  async write(work, { item, before, changed }) {
    if (before !== undefined && Object.keys(changed).join() === "paused" && isOnlyPaused(before.item, item)) {
      await ask(work, changed["paused"] === true ? route("pauseSchedule") : route("resumeSchedule"), {
        params: { id: before.id },
        body: {},
      });
      return undefined;
    }
    refuseUser(work.context.caller);
    const deliver = delivery(work, objectOf(item)["deliver"]);
    const create = async (by: Work): Promise<string> =>
      idIn(await ask(by, route("createSchedule"), { body: { ...objectOf(item), deliver } }));
    return unlessToCome(work, textIn(objectOf(item)["task"] ?? null, "uri"), async () => {
      // It cannot be changed, so another takes its place, once it is sure that it can.
      if (before !== undefined) {
        await firstEffect(() => create({ ...work, core: rehearsing(work.core) }));
        await ask(work, route("deleteSchedule"), { params: { id: before.id } });
      }
      return create(work);
    });
  },
  async remove(work, { id }) {
    await ask(work, route("deleteSchedule"), { params: { id } });
  },
  async room({ core, context }) {
    const all = await core.repos.schedules.targets(context.tenant);
    return { most: mostOf.schedules, there: all.length, called: "schedules that still fire" };
  },
});

/** What it would make is in no document, so applying would make another one each time. @throws GatewayError `permission_denied` */
function refuseUser({ userId }: Caller): void {
  if (userId === undefined) return;
  const message = `The caller is the user '${userId}', whose schedules are that user's own and stand in no document; take a key that is bound to no user.`;
  throw new GatewayError("permission_denied", message);
}

function isOnlyPaused(before: JsonValue, after: JsonValue): boolean {
  return Object.keys(objectOf(before)).length === Object.keys(objectOf(after)).length;
}

/** With the id of the webhook; without one that the rehearsed document brings. */
function delivery({ idOf }: Work, deliver: JsonValue | undefined): JsonObject {
  const { webhook, ...rest } = objectOf(deliver);
  if (typeof webhook !== "string") return rest;
  try {
    const id = idOf("webhooks", webhook);
    return id === undefined ? rest : { ...rest, webhook: id };
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error;
    throw new GatewayError(error.code, error.message, { ...error.details, param: "deliver.webhook" });
  }
}

// Budgets

const budgetFields = ["name", "limit_tokens", "limit_micros", "enabled"];

export const budgets = (route: RouteOf<"createBudget" | "updateBudget" | "deleteBudget">): Kind => ({
  repeats: true,
  identify: (item) => {
    // As the route fills them in.
    const [scope, of] = [textIn(item, "scope") || "tenant", textIn(item, "scope_id")];
    const name = textIn(item, "name") || "Budget";
    return joinedName([of === "" ? scope : `${scope} ${of}`, textIn(item, "period"), name], "/");
  },
  read: ({ context }) =>
    Promise.resolve(
      context.config.budgets
        .filter(({ scope }) => scope !== "key")
        .map(({ id, name, scope, scopeId, period, limitTokens, limitMicros, enabled }) =>
          liveAt(id, {
            name,
            scope,
            scope_id: scope === "tenant" ? null : scopeId,
            period,
            limit_tokens: limitTokens,
            limit_micros: limitMicros,
            enabled,
          }),
        ),
    ),
  parse(_work, item) {
    const parsed = parseBody(route("createBudget"), item);
    if (parsed["scope"] !== "key") return toPlain(parsed);
    const message = "A budget of a key stands in no document: keys are each tenant's own.";
    throw new GatewayError("invalid_request", message, { param: "scope" });
  },
  async write(work, { item, before, changed }) {
    if (before === undefined) return idIn(await ask(work, route("createBudget"), { body: item }));
    const body = Object.fromEntries(Object.entries(changed).filter(([name]) => budgetFields.includes(name)));
    await ask(work, route("updateBudget"), { params: { id: before.id }, body });
    return before.id;
  },
  async remove(work, { id }) {
    await ask(work, route("deleteBudget"), { params: { id } });
  },
});
