/** A scenario of the suite, and what is said of us there. */

export interface ConformanceRow {
  readonly scenario: string;
  /** Revisions that it is run at. */
  readonly revisions: readonly string[];
  /** The whole scenario is about what we do not have: why. */
  readonly notApplicable?: string;
  /** Checks of it that fail, by id: why that is right. */
  readonly exceptions?: Readonly<Record<string, string>>;
}
