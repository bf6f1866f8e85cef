/**
 * The few formats that are asserted. `format` is an annotation by default in JSON Schema; a check is
 * worth its while only where no back end would take the text, so these are lenient on purpose
 * (a date-time without offset passes).
 */
import ipaddr from "ipaddr.js";

type FormatCheck = (text: string) => boolean;

const formats = {
  date: (text) => isDate(text),
  "date-time": (text) => {
    const [date = "", time = "", more] = text.split(/[Tt ]/);
    return more === undefined && isDate(date) && isTime(time);
  },
  email: (text) => /^[^\s@]{1,128}@[^\s@]{1,253}$/.test(text),
  ipv4: (text) => ipaddr.IPv4.isValidFourPartDecimal(text),
  ipv6: (text) => ipaddr.IPv6.isValid(text) && !text.includes("%"),
  time: (text) => isTime(text),
  uri: (text) => /^[A-Za-z][A-Za-z0-9+.-]*:\S+$/.test(text),
  uuid: (text) => /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(text),
} as const satisfies Record<string, FormatCheck>;

/** Longer than any date, time, address of a host or identifier; the other formats are read in one pass. */
const longestShort = 64;
const anyLength: ReadonlySet<string> = new Set(["email", "uri"]);

export function formatCheck(name: string): FormatCheck | undefined {
  if (!Object.hasOwn(formats, name)) return undefined;
  const check = formats[name as keyof typeof formats];
  return anyLength.has(name) ? check : (text) => text.length <= longestShort && check(text);
}

function isDate(text: string): boolean {
  const [, year = "", month = "", day = ""] = /^(\d{4})-(\d\d)-(\d\d)$/.exec(text) ?? [];
  if (year === "") return false;
  // Day 0 of the next month is the last day of this one.
  const days = new Date(Date.UTC(Number(year), Number(month), 0)).getUTCDate();
  return Number(month) >= 1 && Number(month) <= 12 && Number(day) >= 1 && Number(day) <= days;
}

function isTime(text: string): boolean {
  const match =
    /^([01]\d|2[0-3]):[0-5]\d(?::([0-5]\d|60)(?:\.\d{1,12})?)?(?:[Zz]|[+-](?:[01]\d|2[0-3]):?[0-5]\d)?$/.exec(text);
  return match !== null;
}
