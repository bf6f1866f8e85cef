/**
 * Gives calls to nodes. A node asks before it begins (`node.accept`), so that a call which was taken back is
 * never begun, and one that was never accepted was never sent. From then on only a result says what became of it.
 */
import { GatewayError, toGatewayError } from "../errors/gateway-error.ts";
import { isOutage } from "../errors/outage.ts";
import { newId } from "../ids.ts";
import { withDelivery } from "../errors/delivery.ts";
import type { InvocationContext, ToolReply } from "../tools/tool-call.ts";
import { keepInput } from "./input.ts";
import type { NodeRun } from "./node.ts";
import { parseNodeResult, settleRun, toReply } from "./results.ts";
import type { NodeDeps, NodeWork } from "./work.ts";

/** At most this long a waiting process does not look whether the node is still there. */
const longestLookMs = 5_000;

/** @throws GatewayError of `notConnected` */
export async function offerRun(
  deps: NodeDeps,
  work: NodeWork,
  context: InvocationContext,
  { handedOver }: { readonly handedOver: boolean },
): Promise<NodeRun> {
  const id = newId("nodeRun");
  const { tenant } = context;
  const run = await deps.repos.nodes.offer(tenant, {
    id,
    callId: work.callId,
    attempt: work.attempt,
    tool: work.tool,
    toolHash: work.toolHash,
    node: work.node,
    handedOver,
    input: await keepInput(deps, context, id, work),
    leaseMs: deps.timing.leaseMs,
  });
  if (run === undefined) throw work.notConnected();
  await deps.tellNow();
  return run;
}

/** Gives the call to a node and waits for what comes of it. */
export async function runOnNode(deps: NodeDeps, work: NodeWork, context: InvocationContext): Promise<ToolReply> {
  const run = await offerRun(deps, work, context, { handedOver: false });
  context.onSent?.();
  try {
    return await waitForResult(deps, context, run);
  } catch (thrown) {
    if (!context.signal.aborted) throw thrown;
    throw await takeBack(deps, context, run);
  }
}

async function waitForResult(
  deps: NodeDeps,
  { tenant, signal }: InvocationContext,
  given: NodeRun,
): Promise<ToolReply> {
  const graceMs = deps.timing.heartbeatMs;
  let away = 0;
  for (let run = given; ;) {
    const timeoutMs = Math.max(50, Math.min(longestLookMs, graceMs / 2, run.leaseUntil - run.now));
    const result = await deps.answers.wait(tenant, run.id, { timeoutMs, signal });
    if (result !== undefined) return takeResult(deps, tenant, { ...run, state: "ended", result });
    const seen = await deps.repos.nodes.run(tenant, run.id);
    if (seen === undefined) throw lostContact(run);
    if (seen.state === "ended" || seen.state === "withdrawn") return takeResult(deps, tenant, seen);
    away = seen.connected ? 0 : away + timeoutMs;
    if (away > graceMs || seen.leaseUntil <= seen.now) return giveUp(deps, tenant, seen);
    run = seen;
  }
}

/** Its node is gone, or does nothing: what it has not begun it never will. */
async function giveUp(deps: NodeDeps, tenant: string, seen: NodeRun): Promise<ToolReply> {
  const run = (await deps.repos.nodes.withdraw(tenant, seen.id)) ?? seen;
  if (run.state === "ended" || run.state === "withdrawn") return takeResult(deps, tenant, run);
  await deps.tellNow();
  throw lostContact(run);
}

async function takeResult(deps: NodeDeps, tenant: string, run: NodeRun): Promise<ToolReply> {
  try {
    if (run.result === null) throw neverBegun(run);
    const reply = await toReply(deps, tenant, run, parseNodeResult(run.result));
    await clearAway(deps, tenant, run);
    return reply;
  } catch (thrown) {
    // The result stays, and the tick reads it when that can be done again.
    if (thrown instanceof GatewayError && isOutage(thrown)) throw withDelivery(thrown, "uncertain");
    await clearAway(deps, tenant, run);
    throw thrown;
  }
}

/** What cannot be cleared away now is the tick's to clear away, and takes no result from who waits for it. */
async function clearAway(deps: NodeDeps, tenant: string, run: NodeRun): Promise<void> {
  try {
    await settleRun(deps, tenant, run);
  } catch (thrown) {
    const { code } = toGatewayError(thrown);
    deps.log.log("warn", "a node's result was not cleared away and will be later", {
      tenant,
      call_id: run.callId,
      code,
    });
  }
}

function neverBegun({ node, tool }: NodeRun): GatewayError {
  return withDelivery(
    new GatewayError("tool_unreachable", `Node '${node}' went away before it began '${tool}'; try again.`, {
      toolName: tool,
    }),
    "not_sent",
  );
}

function lostContact({ node, tool }: NodeRun): GatewayError {
  return withDelivery(
    new GatewayError("tool_unreachable", `Node '${node}' went away while it worked on '${tool}'.`, { toolName: tool }),
    "uncertain",
  );
}

/** The call was cancelled, or its time is over: the node is told to stop. */
async function takeBack(deps: NodeDeps, { tenant }: InvocationContext, { id, tool }: NodeRun): Promise<GatewayError> {
  const run = await deps.repos.nodes.withdraw(tenant, id);
  await deps.tellNow();
  const delivery = run?.state === "withdrawn" ? "not_sent" : "uncertain";
  return withDelivery(new GatewayError("call_cancelled", `'${tool}' was given up.`), delivery);
}
