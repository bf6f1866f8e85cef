/**
 * What comes of it that API Gateway gives up an answer of which it has heard nothing for a while: the function is not
 * told, and would go on for nobody. Event streams say something all the time (sink.ts), whole answers only at their end.
 */
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

/** A tool call that may come too late is a worker's, and is followed. */
export function queueOver(c: AppContext): { readonly queueOverMs?: number } {
  const { lambda } = hostOf(c);
  return lambda === undefined ? {} : { queueOverMs: lambda.silenceMs };
}
