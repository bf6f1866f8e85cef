/** A run as an event stream: what has happened since, then what happens, until it ends (FLOWRUN-1). */
import { admitAgain } from "@toolyard/core/calls/admit";
import type { Call } from "@toolyard/core/calls/call";
import type { Presented } from "@toolyard/core/callers/authenticate";
import type { CallContext } from "@toolyard/core/context";
import type { CoreDeps } from "@toolyard/core/core-deps";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { isOutage } from "@toolyard/core/errors/outage";
import { hostOf, headerOf, type AppContext } from "./app-env.ts";
import { answerThroughSink, eventStreamHeaders } from "./sink.ts";

/** Reads while nothing happens become rarer. */
const firstWaitMs = 50;
const longestWaitMs = 500;
/** Between two looks at whether the events may still be told. */
const provenMs = 5_000;
/** Left of an invocation when the stream ends, to be gone on with by another one. */
const marginMs = 5_000;

export interface Following {
  readonly core: CoreDeps;
  readonly context: CallContext;
  readonly presented: Presented;
  readonly call: Pick<Call, "id" | "traceId" | "toolHash">;
  /** Runs once where the client leaves before the run has ended. */
  readonly onLeave?: () => Promise<void>;
}

export async function answerRunEvents(
  c: AppContext,
  { core, context, presented, call, onLeave }: Following,
): Promise<Response> {
  const [{ WorkflowEncoder }, { readRunEvents }, { readDefinition }] = await Promise.all([
    import("@toolyard/core/flows/workflow-events"),
    import("@toolyard/core/flows/run/follow"),
    import("@toolyard/core/flows/find-flow"),
  ]);
  // A deleted flow's runs are still told, with less about their nodes.
  const definition =
    call.toolHash === null
      ? undefined
      : await readDefinition(core, context.tenant, call.toolHash).catch(() => undefined);
  const encoder = new WorkflowEncoder(call, definition);
  const { lambda } = hostOf(c);
  return answerThroughSink(c, async (sink) => {
    const left = new AbortController();
    let isOver = false;
    sink.onClose((why) => {
      left.abort(why);
      // Where it is the process that must end, whoever follows asks another one to go on from here.
      if (!isOver && why === undefined) void onLeave?.();
    });
    let after = readLastEventId(c);
    let waitMs = firstWaitMs;
    let provenAt = core.clock.now();
    while (!sink.closed && !left.signal.aborted) {
      if (core.clock.now() - provenAt >= provenMs) {
        // A run may wait for days. Whoever comes back is told why it has ended.
        if (!(await mayFollow(core, presented))) return;
        provenAt = core.clock.now();
      }
      const events = await readRunEvents(core, context, call.id, after);
      if (!sink.headSent) sink.head(200, eventStreamHeaders);
      const last = events.at(-1);
      after = last?.id ?? after;
      isOver = last?.type === "run-ended";
      for (const text of encoder.encode(events)) {
        const room = sink.write(text);
        if (room !== undefined) await room;
      }
      if (isOver || (lambda?.remainingMs() ?? Number.POSITIVE_INFINITY) < marginMs) return;
      waitMs = events.length > 0 ? firstWaitMs : Math.min(waitMs * 1.5, longestWaitMs);
      await core.clock.sleep(waitMs, left.signal).catch(() => undefined);
    }
  });
}

async function mayFollow(core: CoreDeps, presented: Presented): Promise<boolean> {
  try {
    await admitAgain(core, presented, { scope: null });
    return true;
  } catch (thrown) {
    if (thrown instanceof GatewayError && !isOutage(thrown)) return false;
    throw thrown;
  }
}

/** 0 where the client has seen nothing, or says something that is none of ours. */
function readLastEventId(c: AppContext): number {
  const given = headerOf(c, "last-event-id") ?? "";
  return /^\d{1,15}$/.test(given) ? Number(given) : 0;
}
