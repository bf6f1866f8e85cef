/**
 * What comes of it that API Gateway gives up an answer of which it has heard nothing for a while: the function is not
 * told, and would go on for nobody. Event streams say something all the time (sink.ts), whole answers only at their end.
 */
import type { Clock } from "@toolyard/core/ports/clock";
import { hostOf, type AppContext } from "./app-env.ts";

/** Of a regional REST API. */
export const longestSilenceMs = 300_000;
/** For what is said instead to get out. */
const marginMs = 10_000;

/** A whole answer that would come too late ends with an error that its client hears. */
export function wholeAnswerLimit(c: AppContext): { readonly wholeLimitMs?: number } {
  const { lambda } = hostOf(c);
  return lambda === undefined ? {} : { wholeLimitMs: lambda.silenceMs - marginMs };
}

/** A tool call that may come too late is a worker's, and is followed; further tries have to end in time as well. */
export function toolCallLimits(
  c: AppContext,
  clock: Clock,
): { readonly queueOverMs?: number; readonly endsAt?: number } {
  const { lambda } = hostOf(c);
  if (lambda === undefined) return {};
  const { silenceMs, remainingMs } = lambda;
  return { queueOverMs: silenceMs, endsAt: clock.now() + Math.min(silenceMs, remainingMs()) - marginMs };
}
