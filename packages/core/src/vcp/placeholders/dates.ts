/**
 * `{{Date}}`, `{{Time}}`, `{{Today}}` and `{{Festival}}` in the tenant's time zone, as the Chinese locale writes
 * them. The lunar calendar is loaded where `{{Festival}}` is used.
 */
export const dateNames = ["Date", "Time", "Today", "Festival"] as const;
export type DateName = (typeof dateNames)[number];

interface Formats {
  readonly date: Intl.DateTimeFormat;
  readonly time: Intl.DateTimeFormat;
  readonly today: Intl.DateTimeFormat;
}

/** Making them costs a millisecond. */
const known = new Map<string, Formats>();
const mostZones = 600;

function formatsOf(timeZone: string): Formats {
  let formats = known.get(timeZone);
  if (formats === undefined) {
    formats = {
      date: new Intl.DateTimeFormat("zh-CN", { timeZone }),
      time: new Intl.DateTimeFormat("zh-CN", {
        timeZone,
        hour: "2-digit",
        minute: "2-digit",
        second: "2-digit",
        hourCycle: "h23",
      }),
      today: new Intl.DateTimeFormat("zh-CN", { timeZone, weekday: "long" }),
    };
    if (known.size < mostZones) known.set(timeZone, formats);
  }
  return formats;
}

/** What the four stand for at a moment (epoch milliseconds). */
export async function dateTexts(
  now: number,
  timeZone: string,
  wanted: ReadonlySet<DateName>,
): Promise<ReadonlyMap<DateName, string>> {
  const { date, time, today } = formatsOf(timeZone);
  const texts = new Map<DateName, string>();
  if (wanted.has("Date")) texts.set("Date", date.format(now));
  if (wanted.has("Time")) texts.set("Time", time.format(now));
  if (wanted.has("Today")) texts.set("Today", today.format(now));
  if (wanted.has("Festival")) texts.set("Festival", await festival(date.formatToParts(now)));
  return texts;
}

async function festival(parts: readonly Intl.DateTimeFormatPart[]): Promise<string> {
  const part = (type: string): number => Number(parts.find((each) => each.type === type)?.value);
  const { lunarDate } = await import("./lunar.ts");
  return lunarDate(part("year"), part("month"), part("day"));
}
