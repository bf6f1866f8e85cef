/**
 * Writes what a call came to. A process that stood still (a frozen instance, a long pause) may find
 * that another one has taken its call over: then the row is that one's, and only evidence about a call
 * that ended `unknown` still counts (design "The call").
 */
import type { CoreDeps } from "../deps.ts";
import type { CallFinish } from "../ports/repos.ts";
import type { Call } from "./call.ts";

/** @returns `false` where the record tells something else */
export async function recordEnd(
  { repos }: Pick<CoreDeps, "repos">,
  call: Pick<Call, "tenant" | "id" | "attempt" | "repeat">,
  finish: CallFinish,
): Promise<boolean> {
  if (await repos.calls.finish(call.tenant, call.id, call.attempt, finish)) return true;
  return isEvidence(call, finish) && (await repos.calls.resolveUnknown(call.tenant, call.id, finish));
}

/**
 * An answer shows that the call took effect, whoever has asked for it. That it failed for one attempt
 * says something about the call only where no other attempt can have sent it.
 */
function isEvidence({ repeat }: Pick<Call, "repeat">, { state }: CallFinish): boolean {
  return state === "completed" || (state === "failed" && repeat === "never");
}
