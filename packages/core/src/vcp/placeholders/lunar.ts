/** The date in the Chinese calendar, with the solar term that begins on it: `丙午马年十月廿九 大雪`. */
import { getLunar } from "chinese-lunar-calendar";

/** Years that the calendar's tables have. */
const first = 1901;
const last = 2100;

/** By the date in the Gregorian calendar; empty where the tables end. */
export function lunarDate(year: number, month: number, day: number): string {
  if (year < first || year > last) return "";
  const { lunarYear, zodiac, lunarDate: lunarDay, dateStr, solarTerm } = getLunar(year, month, day);
  // The library writes the 30th as it writes the 20th.
  const date = lunarDay === 30 ? dateStr.replace(/廿十$/, "三十") : dateStr;
  return `${lunarYear.replace(/年$/, "")}${zodiac}年${date}${solarTerm === null ? "" : ` ${solarTerm}`}`;
}
