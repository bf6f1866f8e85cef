/** What we use of the library, which comes without types. */
declare module "chinese-lunar-calendar" {
  /** @throws Error for a date that is none, or before 1901 or after 2100 */
  export function getLunar(
    year: number,
    month: number,
    day: number,
  ): {
    /** `丙午年` */
    readonly lunarYear: string;
    readonly zodiac: string;
    readonly lunarDate: number;
    /** `十月廿九` */
    readonly dateStr: string;
    readonly solarTerm: string | null;
  };
}
