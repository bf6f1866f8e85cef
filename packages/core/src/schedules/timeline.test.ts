import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { parseExpression, type CronExpression } from "./expression.ts";
import { planDue } from "./plan.ts";
import { nextFiring, nextFirings, type Timeline, type Timing } from "./timeline.ts";
import { instantsOf, wallAt } from "./zone.ts";

const at = (text: string): number => Date.parse(text);
const line = (timing: Timing, more: Partial<Timeline> = {}): Timeline => ({
  timing,
  timeZone: "UTC",
  startAt: null,
  endAt: null,
  ...more,
});
const cron = (timeZone: string, ...expressions: string[]): Timeline =>
  line({ kind: "cron", expressions }, { timeZone });
const times = (timeline: Timeline, after: string, count = 3): string[] =>
  nextFirings(timeline, at(after), count).map((time) => new Date(time).toISOString().slice(0, 16));

describe(`clocks that are put forward or back ${verifies("VCP-18")}`, () => {
  test.for<readonly [string, string, string, string, readonly string[]]>([
    // 02:30 does not exist on March 29.
    [
      "Berlin, forward",
      "Europe/Berlin",
      "30 2",
      "2026-03-27T12:00Z",
      ["2026-03-28T01:30", "2026-03-30T00:30", "2026-03-31T00:30"],
    ],
    // 02:30 comes twice on October 25.
    [
      "Berlin, back",
      "Europe/Berlin",
      "30 2",
      "2026-10-24T12:00Z",
      ["2026-10-25T00:30", "2026-10-26T01:30", "2026-10-27T01:30"],
    ],
    [
      "New York, forward",
      "America/New_York",
      "15 2",
      "2026-03-07T00:00Z",
      ["2026-03-07T07:15", "2026-03-09T06:15", "2026-03-10T06:15"],
    ],
    [
      "New York, back",
      "America/New_York",
      "0 1",
      "2026-10-31T12:00Z",
      ["2026-11-01T05:00", "2026-11-02T06:00", "2026-11-03T06:00"],
    ],
    // Half an hour only.
    [
      "Lord Howe, forward",
      "Australia/Lord_Howe",
      "15 2",
      "2026-10-02T20:00Z",
      ["2026-10-04T15:15", "2026-10-05T15:15", "2026-10-06T15:15"],
    ],
    // The day itself is skipped.
    [
      "Apia, over the date line",
      "Pacific/Apia",
      "0 12",
      "2011-12-28T00:00Z",
      ["2011-12-28T22:00", "2011-12-29T22:00", "2011-12-30T22:00"],
    ],
    [
      "Shanghai, never",
      "Asia/Shanghai",
      "30 2",
      "2026-03-27T12:00Z",
      ["2026-03-27T18:30", "2026-03-28T18:30", "2026-03-29T18:30"],
    ],
  ])("%s", ([, zone, minuteAndHour, after, expected]) => {
    expect(times(cron(zone, `cron(${minuteAndHour} * * ? *)`), after)).toEqual(expected);
  });

  test("an hour that comes twice is fired once, and a day of a rate has 24 hours", () => {
    const hour = nextFirings(cron("Europe/Berlin", "cron(0/15 2 * * ? *)"), at("2026-10-24T22:00Z"), 8);
    const minutes = [0, 15, 30, 45];
    const [once, dayAfter] = [at("2026-10-25T00:00Z"), at("2026-10-26T01:00Z")];
    expect(hour).toEqual([once, dayAfter].flatMap((from) => minutes.map((minute) => from + minute * 60_000)));
    const rate = line(
      { kind: "rate", every_ms: 86_400_000, first: at("2026-10-24T00:30Z") },
      { timeZone: "Europe/Berlin" },
    );
    expect(times(rate, "2026-10-23T00:00Z")).toEqual(["2026-10-24T00:30", "2026-10-25T00:30", "2026-10-26T00:30"]);
  });
});

/** Minute by minute: does the wall's clock show a time of the expression, and for the first time? */
function oracle(expressions: readonly CronExpression[], timeZone: string, from: number, until: number): number[] {
  const shown = new Set<number>();
  const found: number[] = [];
  const format = new Intl.DateTimeFormat("en-GB", {
    timeZone,
    hourCycle: "h23",
    weekday: "short",
    year: "numeric",
    month: "2-digit",
    day: "2-digit",
    hour: "2-digit",
    minute: "2-digit",
  });
  const weekdays = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
  let part: Record<string, string> = {};
  for (let minute = from - 86_400_000; minute <= until; minute += 60_000) {
    // The clock is read every quarter of an hour, and counts on from there.
    if (minute % 900_000 === 0) {
      part = Object.fromEntries(format.formatToParts(minute).map(({ type, value }) => [type, value]));
    } else {
      part = { ...part, minute: String(Number(part["minute"]) + 1) };
    }
    const day = Number(part["day"]);
    const wall = Date.UTC(
      Number(part["year"]),
      Number(part["month"]) - 1,
      day,
      Number(part["hour"]),
      Number(part["minute"]),
    );
    if (shown.has(wall)) continue;
    shown.add(wall);
    if (minute <= from) continue;
    const weekday = weekdays.indexOf(part["weekday"] ?? "");
    const isThen = expressions.some((each) => {
      if (!each.minutes.includes(Number(part["minute"])) || !each.hours.includes(Number(part["hour"]))) return false;
      if (!each.months.has(Number(part["month"])) || !each.years.has(Number(part["year"]))) return false;
      const rule = each.days;
      if (rule.kind === "days_of_month") return rule.days.has(day);
      if (rule.kind === "days_of_week") return rule.days.has(weekday);
      if (rule.kind === "nth_day_of_week")
        return rule.day === weekday && day > (rule.nth - 1) * 7 && day <= rule.nth * 7;
      return rule.kind === "every_day";
    });
    if (isThen) found.push(minute);
  }
  return found;
}

/** Ticks once a minute, as the schedule's row would see it. */
function simulate(timeline: Timeline, { from, until }: { readonly from: number; readonly until: number }): number[] {
  const fired: number[] = [];
  let nextAt: number | null = nextFiring(timeline, from) ?? null;
  for (let now = from; now <= until; now += 60_000) {
    if (nextAt === null || nextAt > now + 90_000) continue;
    const plan = planDue({ timeline, misfire: "skip", nextAt }, now, now + 90_000);
    expect(plan.missedAt).toBeNull();
    for (const time of plan.firings) expect(Math.abs(time - now)).toBeLessThanOrEqual(90_000);
    fired.push(...plan.firings);
    nextAt = plan.nextAt;
  }
  return fired.filter((time) => time <= until);
}

describe(`17 days against a clock that is looked at every minute ${verifies("VCP-18")}`, () => {
  const span = 17 * 86_400_000;
  test.for<readonly [string, string, readonly string[]]>([
    ["Europe/Berlin", "2026-03-15T00:00Z", ["cron(0/5 * * * ? *)"]],
    ["Europe/Berlin", "2026-10-10T00:00Z", ["cron(0/20 1-3 ? * MON,SUN *)"]],
    ["America/New_York", "2026-10-20T00:00Z", ["cron(30 1 * * ? *)", "cron(30 1 ? * 6 *)"]],
    ["America/St_Johns", "2026-02-25T00:00Z", ["cron(15,45 0-4 1-15 * ? *)"]],
    ["Australia/Lord_Howe", "2026-03-25T00:00Z", ["cron(0/10 1-2 * * ? *)"]],
    ["Asia/Kathmandu", "2026-11-27T08:00Z", ["cron(0 0 13 * ? *)", "cron(0 0 ? * 6 *)"]],
    ["Asia/Shanghai", "2026-11-27T08:00Z", ["cron(7 9 ? * THU#2 *)", "cron(0/30 23 ? DEC * 2026)"]],
  ])("%s, from %s: %s", ([zone, start, expressions]) => {
    const [from, until] = [at(start), at(start) + span];
    const parsed = expressions.map((text) => parseExpression(text, "cron") as CronExpression);
    const expected = oracle(parsed, zone, from, until);
    expect(expected.length).toBeGreaterThan(0);
    expect(simulate(cron(zone, ...expressions), { from, until })).toEqual(expected);
  });

  test("a rate, every seven hours", () => {
    const [from, until] = [at("2026-11-27T08:00Z"), at("2026-12-27T08:00Z")];
    const first = from + 25_200_000;
    const expected = [];
    for (let time = first; time <= until; time += 25_200_000) expected.push(time);
    expect(simulate(line({ kind: "rate", every_ms: 25_200_000, first }), { from, until })).toEqual(expected);
  });
});

describe(`a time far away ${verifies("VCP-18")}`, () => {
  const now = at("2026-12-01T00:00:00Z");
  test.for<readonly [string, Timeline, string]>([
    ["24.8 days", line({ kind: "at", at: at("2026-12-25T20:31:23Z") }), "2026-12-25T20:31"],
    ["a second more than a timer takes", line({ kind: "at", at: at("2026-12-25T20:31:24Z") }), "2026-12-25T20:31"],
    ["three months", line({ kind: "at", at: at("2027-03-01T00:00:00Z") }), "2027-03-01T00:00"],
    ["every 30 days", line({ kind: "rate", every_ms: 2_592_000_000, first: now + 2_592_000_000 }), "2026-12-31T00:00"],
    ["the first of the month, Shanghai", cron("Asia/Shanghai", "cron(0 0 1 * ? *)"), "2026-12-31T16:00"],
  ])("%s fires at its time and not before", ([, timeline, expected]) => {
    expect(times(timeline, "2026-12-01T00:00:00Z", 1)).toEqual([expected]);
    const fired = simulate(timeline, { from: now, until: at("2027-03-02T00:00:00Z") });
    expect(new Date(fired[0] ?? 0).toISOString().slice(0, 16)).toBe(expected);
    expect(fired).toHaveLength(timeline.timing.kind === "at" ? 1 : 3);
  });

  test("what never comes is no time, and is found out soon", () => {
    expect(nextFiring(cron("UTC", "cron(0 0 30 2 ? *)"), now)).toBeUndefined();
    expect(nextFiring(cron("UTC", "cron(0 0 * * ? 2020)"), now)).toBeUndefined();
    expect(times(cron("UTC", "cron(0 0 29 2 ? *)"), "2096-03-01T00:00Z", 1)).toEqual(["2104-02-29T00:00"]);
  });

  test("the nearest weekday stays in its month", () => {
    // August 1, 2026 is a Saturday, November 29 a Sunday, February has no 30th.
    expect(times(cron("UTC", "cron(0 0 1W AUG ? *)"), "2026-07-01T00:00Z", 1)).toEqual(["2026-08-03T00:00"]);
    expect(times(cron("UTC", "cron(0 0 29W NOV ? *)"), "2026-11-01T00:00Z", 1)).toEqual(["2026-11-30T00:00"]);
    expect(times(cron("UTC", "cron(0 0 31W MAY ? *)"), "2026-05-01T00:00Z", 1)).toEqual(["2026-05-29T00:00"]);
    expect(nextFiring(cron("UTC", "cron(0 0 30W FEB ? *)"), now)).toBeUndefined();
  });
});

describe(`a start and an end ${verifies("VCP-18")}`, () => {
  test("both belong to it", () => {
    const daily: Timing = { kind: "cron", expressions: ["cron(0 9 * * ? *)"] };
    const span = { startAt: at("2026-12-05T09:00Z"), endAt: at("2026-12-07T09:00Z") };
    expect(times(line(daily, span), "2026-11-27T08:00Z", 9)).toEqual([
      "2026-12-05T09:00",
      "2026-12-06T09:00",
      "2026-12-07T09:00",
    ]);
  });
});

describe(`firings that were missed ${verifies("VCP-18")}`, () => {
  const hourly = cron("UTC", "cron(0 * * * ? *)");
  const now = at("2026-12-03T10:30:00Z");
  const due = { timeline: hourly, nextAt: at("2026-12-01T00:00:00Z") };
  const plan = (misfire: "skip" | "once" | "all") => planDue({ ...due, misfire }, now, now + 90_000);

  test("are left out, made up for by one, or by each", () => {
    const missedAt = at("2026-12-03T10:00:00Z");
    const nextAt = at("2026-12-03T11:00:00Z");
    expect(plan("skip")).toEqual({ firings: [], nextAt, missedAt });
    expect(plan("once")).toEqual({ firings: [missedAt], nextAt, missedAt });
    const all = plan("all");
    expect(all.firings).toHaveLength(59);
    expect(all.firings[0]).toBe(due.nextAt);
    expect(all).toMatchObject({ nextAt, missedAt });
  });

  test("are made up for by a hundred at most, the latest, after years as well", () => {
    const minutely = cron("UTC", "cron(* * * * ? *)");
    const { firings } = planDue({ timeline: minutely, misfire: "all", nextAt: at("2020-01-01T00:00Z") }, now, now);
    // Those of the last two minutes are late only.
    const missed = firings.filter((time) => time < now - 120_000);
    expect(missed).toHaveLength(100);
    expect(missed.at(-1)).toBe(now - 180_000);
    expect(firings.slice(100)).toEqual([now - 120_000, now - 60_000, now]);
  });

  test("once, of one that is never again", () => {
    const single = line({ kind: "at", at: at("2026-12-01T00:00Z") });
    const planned = planDue({ timeline: single, misfire: "once", nextAt: at("2026-12-01T00:00Z") }, now, now);
    expect(planned).toEqual({ firings: [at("2026-12-01T00:00Z")], nextAt: null, missedAt: at("2026-12-01T00:00Z") });
  });

  test("a little late is late, not missed", () => {
    const nextAt = at("2026-12-03T10:29:00Z");
    const planned = planDue({ timeline: cron("UTC", "cron(29 10 * * ? *)"), misfire: "skip", nextAt }, now, now);
    expect(planned).toEqual({ firings: [nextAt], nextAt: at("2026-12-04T10:29:00Z"), missedAt: null });
  });
});

describe("walls and instants", () => {
  test("are each other's reverse, but where clocks are changed", () => {
    for (const zone of ["UTC", "Europe/Berlin", "America/St_Johns", "Pacific/Chatham"]) {
      for (let hour = 0; hour < 24 * 366; hour += 7) {
        const time = at("2026-01-01T00:30Z") + hour * 3_600_000;
        expect(instantsOf(wallAt(time, zone), zone)).toContain(time);
      }
    }
    expect(instantsOf(Date.UTC(2026, 2, 29, 2, 30), "Europe/Berlin")).toEqual([]);
    expect(instantsOf(Date.UTC(2026, 9, 25, 2, 30), "Europe/Berlin")).toHaveLength(2);
  });
});
