/** Times and sizes that more than one resource has to agree on. */
import { isPermanent } from "./settings.ts";

/** Longest run of each function in seconds; what calls it must wait as long. */
export const seconds = {
  /** As long as API Gateway streams an answer. */
  chat: 900,
  /** What a caller waits for runs here. API Gateway ends an answer that says nothing for five minutes; ours come before. */
  api: 330,
  /** API Gateway waits 29 s for an answer to a WebSocket frame. */
  realtime: 29,
  /**
   * Most calls here take a minute at most, but what is sent again (whoever had it died, it had to wait) is sent here
   * without a look at how long it may take, and so is a flow, whose steps may take as long as any call.
   */
  workerShort: 900,
  workerLong: 900,
  tick: 55,
  migrate: 900,
  pluginBox: 900,
  codeBox: 900,
} as const;

/**
 * A message must stay invisible while Lambda still tries to hand it to a function that is busy or
 * throttled; AWS advises six times the function's time.
 */
export function visibilitySeconds(functionSeconds: number): number {
  return 6 * functionSeconds;
}

/** After so many receipts a message is a fault of ours and goes to the dead-letter queue. */
export const maxReceives = 5;

/** At most so many batches at a time: back ends are protected, and one queue cannot use up the account. */
export const maxConcurrency = isPermanent ? { short: 50, long: 20 } : { short: 5, long: 2 };

export const logRetentionDays = isPermanent ? 30 : 7;
