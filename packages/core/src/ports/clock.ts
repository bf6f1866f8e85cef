/** Time as the core sees it. Leases use the database's own clock, never this one. */
export interface Clock {
  /** Epoch milliseconds. */
  now(): number;
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}
