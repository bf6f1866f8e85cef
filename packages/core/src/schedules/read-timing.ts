/** From what was asked for to when it fires. Every refusal names the field and says what would be right. Pure. */
import { GatewayError } from "../errors/gateway-error.ts";
import { isTimeZone } from "../tenants/settings.ts";
import { fromRfc3339, toRfc3339 } from "../time.ts";
import { parseExpression } from "./expression.ts";
import { fromUnixCron } from "./from-unix.ts";
import type { NewScheduleRequest, Schedule } from "./schedule.ts";
import { nextFiring, type Timeline, type Timing } from "./timeline.ts";
import { instantsOf } from "./zone.ts";

type Asked = Pick<NewScheduleRequest, "at" | "delay_ms" | "cron" | "rate" | "time_zone" | "start" | "end">;

export interface ReadTiming extends Timeline {
  readonly given: Schedule["given"];
  readonly nextAt: number;
}

const ways = ["at", "delay_ms", "cron", "rate"] as const;

/** @throws GatewayError `invalid_request` */
export function readTiming(asked: Asked, now: number, ownZone: string): ReadTiming {
  const timeZone = zoneOf(asked.time_zone, ownZone);
  const given = givenOf(asked);
  const isOnce = given.field === "at" || given.field === "delay_ms";
  const startAt = boundOf(asked, "start", { isOnce, timeZone });
  const endAt = boundOf(asked, "end", { isOnce, timeZone });
  if (endAt !== null && endAt < Math.max(now, startAt ?? now)) {
    throw invalid("end", `'end' is ${toRfc3339(endAt)}, which is ${endAt < now ? "past" : "before 'start'"}.`);
  }
  const timing = timingOf(given, { now, startAt, timeZone });
  const timeline: Timeline = { timing, timeZone, startAt, endAt };
  const nextAt = timing.kind === "at" ? timing.at : nextFiring(timeline, now);
  if (nextAt === undefined) {
    const bound = endAt === null ? "" : " before 'end'";
    throw invalid(given.field, `'${given.field}' is '${given.value}', which never comes${bound}; nothing would fire.`);
  }
  return { ...timeline, given, nextAt };
}

function zoneOf(given: string | undefined, own: string): string {
  if (given === undefined) return own;
  if (isTimeZone(given)) return given;
  throw invalid(
    "time_zone",
    `'time_zone' is '${given}', which is no time zone; write a name like 'Asia/Shanghai' or 'UTC'.`,
  );
}

function givenOf(asked: Asked): Schedule["given"] {
  const named = ways.filter((way) => asked[way] !== undefined);
  const [field] = named;
  if (field === undefined || named.length > 1) {
    const have = field === undefined ? "none is there" : `'${named.join("' and '")}' are there`;
    throw invalid(named[1] ?? "at", `Exactly one of 'at', 'delay_ms', 'cron' and 'rate' says when; ${have}.`);
  }
  return { field, value: String(asked[field]) };
}

function boundOf(
  asked: Asked,
  field: "start" | "end",
  { isOnce, timeZone }: { readonly isOnce: boolean; readonly timeZone: string },
): number | null {
  const text = asked[field];
  if (text === undefined) return null;
  if (isOnce) throw invalid(field, `'${field}' is for 'cron' and 'rate'; what fires once has its time alone.`);
  return readTime(text, field, timeZone);
}

function timingOf(
  { field, value }: Schedule["given"],
  { now, startAt, timeZone }: { readonly now: number; readonly startAt: number | null; readonly timeZone: string },
): Timing {
  switch (field) {
    case "delay_ms":
      return { kind: "at", at: now + Number(value) };
    case "at":
      return { kind: "at", at: requireFuture(readTime(value, "at", timeZone), now) };
    case "rate": {
      const { everyMs } = readRate(value);
      return { kind: "rate", every_ms: everyMs, first: startAt ?? now + everyMs };
    }
    case "cron":
      return { kind: "cron", expressions: [...readCron(value)] };
    default:
      return field satisfies never;
  }
}

function requireFuture(at: number, now: number): number {
  if (at > now) return at;
  throw invalid(
    "at",
    `'at' is ${toRfc3339(at)}, which is past: it is ${toRfc3339(now)}. Nothing is scheduled for the past ('misfire' is for times that pass once a schedule is there); call the tool now with POST /v1/tools/invoke, or give a later time.`,
  );
}

function readRate(text: string): { readonly everyMs: number } {
  const expression = parseExpression(text.includes("(") ? text : `rate(${text})`, "rate");
  if (expression.kind === "rate") return expression;
  throw invalid("rate", `'rate' is '${text}'; that belongs into '${expression.kind}'.`);
}

function readCron(text: string): readonly string[] {
  if (!text.includes("(")) return fromUnixCron(text, "cron");
  const expression = parseExpression(text, "cron");
  if (expression.kind === "cron") return [text];
  throw invalid("cron", `'cron' is '${text}'; that belongs into '${expression.kind}'.`);
}

const local = /^(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d)(:\d\d)?$/;

/** @throws GatewayError `invalid_request` naming `field` */
function readTime(text: string, field: string, timeZone: string): number {
  const exact = fromRfc3339(text);
  if (exact !== undefined) return exact;
  const [, date, minutes, seconds = ":00"] = local.exec(text) ?? [];
  if (date === undefined && !text.startsWith("at(")) {
    throw invalid(
      field,
      `'${field}' is '${text}'; write a time as '2026-12-24T18:00:00', on the clock of 'time_zone', or with an offset, as '2026-12-24T18:00:00+08:00'.`,
    );
  }
  const expression = parseExpression(date === undefined ? text : `at(${date}T${minutes}${seconds})`, field);
  if (expression.kind !== "at")
    throw invalid(field, `'${field}' is '${text}'; that belongs into '${expression.kind}'.`);
  const [at] = instantsOf(expression.wall, timeZone);
  if (at !== undefined) return at;
  throw invalid(
    field,
    `'${field}' is '${text}', which no clock in ${timeZone} shows: they are put forward over it. Write another time, or one with an offset.`,
  );
}

function invalid(param: string, message: string): GatewayError {
  return new GatewayError("invalid_request", message, { param });
}
