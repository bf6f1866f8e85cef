/**
 * What becomes of a call whose holder went silent: it ends, or it is carried out again where it may be, but not without
 * end, since it may be what its holders die of (decision 0054).
 */
import type { GatewayError } from "../errors/gateway-error.ts";
import type { CallFinish } from "../ports/calls.ts";
import type { Call } from "./call.ts";

/** After so many holders in a row it is carried out no more. */
export const mostInterruptions = 3;

/** Absent: it is carried out again. */
export function endOfInterrupted(call: Call): CallFinish | undefined {
  if (call.kind === "chat") {
    return ended("failed", "chat_interrupted", "The process that answered this chat stopped before it was done.");
  }
  if (call.cancelRequested) return ended("cancelled", "call_cancelled", `'${call.tool}' was cancelled.`);
  if (call.effect === "write" && call.repeat === "never") {
    // What has answered first has to say by itself what came of it.
    const why =
      call.outcome === null ? gone(call) : `'${call.tool}' has answered first and has not said in time what came of it`;
    return ended(
      "unknown",
      "outcome_unknown",
      `${why}; whether it took effect is not known, and it is not sent again by itself.`,
    );
  }
  // Whoever has given it a key comes with it again, and is to find what was asked for.
  const isAwaited = call.async || call.idempotencyKey !== null;
  if (!isAwaited && call.effect === "read" && call.repeat !== "resume") {
    return ended("failed", "call_interrupted", `${gone(call)}; nobody waits for the result any more.`);
  }
  return call.interruptions < mostInterruptions ? undefined : abandoned(call);
}

function gone({ tool }: Call): string {
  return `The process that ran '${tool}' stopped, or lost the database, while the call was under way`;
}

function abandoned({ id, tool, interruptions, outcome, effect, repeat }: Call): CallFinish {
  const why =
    outcome === null
      ? `The process that ran '${tool}' ended or went silent while the call was under way, ${interruptions} times in a row. The call may be the reason: too much memory, more time than a process has, a tool that takes its process with it; the log of those that took it up again names it.`
      : `'${tool}' has answered first and has not said in time what came of it, ${interruptions} times in a row. See what becomes of it where it works.`;
  const details = { interruptions };
  const again = `once the reason is mended, POST /v1/calls/${id}/replay does it once more`;
  // One of the holders may have sent it.
  if (effect === "write" && repeat !== "resume") {
    const message = `${why} Whether it took effect is not known, and it is not sent again by itself; ${again}.`;
    return { state: "unknown", error: { code: "outcome_unknown", message, details } };
  }
  const message = `${why} It is not carried out again by itself; ${again}.`;
  return { state: "failed", error: { code: "call_abandoned", message, details } };
}

/** Of a call whose row cannot be read, so that nobody can carry it out; whoever had it first may have. */
export function endOfUnreadable(effect: Call["effect"]): CallFinish {
  const why = "The record of this call cannot be read, which is a fault of ours; the log says more";
  return effect === "read"
    ? ended("failed", "internal_error", `${why}.`)
    : ended("unknown", "outcome_unknown", `${why}. Whether it took effect is not known.`);
}

/** That a write cannot be run again says nothing about what its first holder did: only a result does. */
export function inDoubt(call: Call, finish: CallFinish): CallFinish {
  if (call.effect !== "write" || call.repeat === "resume") return finish;
  if (finish.state === "completed" || finish.state === "unknown") return finish;
  const why = finish.error?.message ?? finish.state;
  return {
    ...finish,
    ...ended(
      "unknown",
      "outcome_unknown",
      `${gone(call)}, and running it again did not succeed (${why}); whether it took effect is not known.`,
    ),
  };
}

export function ended(
  state: "failed" | "unknown" | "cancelled",
  code: GatewayError["code"],
  message: string,
): CallFinish {
  return { state, error: { code, message } };
}
