/**
 * `subscriptions/listen`: a stream of news for as long as the client listens (2026-07-28). What is new is found in
 * the database, so that it does not matter which instance has changed it. Only processes that stay can hold such
 * a stream; elsewhere nothing is subscribed to and the stream ends at once.
 */
import { createHash } from "node:crypto";
import { endStates } from "../calls/call.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { canonicalJson, isJsonObject, type JsonObject } from "../json.ts";
import { encodeNotice, type RpcId, type RpcRequest } from "../mcp/json-rpc.ts";
import { metaKeys } from "../mcp/revisions.ts";
import type { TenantConfig } from "../tenant-config.ts";
import { admitExchange } from "./admit-exchange.ts";
import { ownCall } from "./calls.ts";
import type { AdmittedExchange, Exchange, MethodReply } from "./exchange.ts";
import { invalidParams, invalidRequest } from "./fault.ts";
import { describeTools } from "./list-tools.ts";
import { describeTask, requireTasks } from "./tasks.ts";

const lookMs = 500;
/** Looks between two at the tasks. */
const looksPerTasks = 2;
/** Looks between two of whether the caller may still listen and what its tools are. */
const looksPerAdmission = 10;
const mostTasks = 20;
/** Streams of one caller at one instance: each asks the database for as long as it is held. */
const mostStreams = 20;
const tryAgainMs = 60_000;

/** @throws GatewayError `concurrency_limited` where the caller holds as many streams here already */
export async function listen(exchange: Exchange, { id, params }: RpcRequest): Promise<MethodReply> {
  const admitted = await admitExchange(exchange);
  const { send, resident } = exchange;
  if (send === undefined) throw invalidRequest("A subscription needs 'Accept: text/event-stream'.");
  const wanted = readFilter(admitted, params);
  const leave = resident === undefined ? undefined : takeStream(admitted);
  try {
    await serveStream({ exchange: admitted, send }, id, wanted);
  } finally {
    leave?.();
  }
  return { result: { _meta: { [metaKeys.subscription]: id } }, ...admitted.told };
}

interface Stream {
  readonly exchange: AdmittedExchange;
  readonly send: NonNullable<Exchange["send"]>;
}

async function serveStream({ exchange, send }: Stream, id: RpcId, wanted: Filter): Promise<void> {
  const { resident } = exchange;
  const tell = (method: string, told: JsonObject): void =>
    send(encodeNotice({ method, params: { ...told, _meta: { [metaKeys.subscription]: id } } }));
  const taskIds = resident === undefined ? [] : await ownTasks(exchange, wanted.taskIds);
  const isTold = resident !== undefined && wanted.toolsListChanged;
  tell("notifications/subscriptions/acknowledged", {
    notifications: {
      ...(isTold ? { toolsListChanged: true } : {}),
      ...(taskIds.length === 0 ? {} : { taskIds: [...taskIds] }),
    },
  });
  if (resident !== undefined && (isTold || taskIds.length > 0)) {
    await follow(exchange, { tell, taskIds, isTold, isDraining: resident.isDraining });
  }
}

/** By tenant and caller, how many streams are held. */
const held = new WeakMap<CoreDeps, Map<string, number>>();

/** @returns gives it back */
function takeStream({ deps, context: { tenant, caller } }: AdmittedExchange): () => void {
  const counts = held.get(deps) ?? new Map<string, number>();
  held.set(deps, counts);
  const key = `${tenant} ${caller.id}`;
  const before = counts.get(key) ?? 0;
  if (before >= mostStreams) {
    throw new GatewayError(
      "concurrency_limited",
      `This caller holds ${mostStreams} streams of 'subscriptions/listen' here already, which is the most; end one of them, or do without news.`,
      { retryAfterMs: tryAgainMs, extra: { scope: "streams", limit: mostStreams } },
    );
  }
  counts.set(key, before + 1);
  return () => {
    const left = (counts.get(key) ?? 1) - 1;
    if (left === 0) counts.delete(key);
    else counts.set(key, left);
  };
}

interface Filter {
  readonly toolsListChanged: boolean;
  readonly taskIds: readonly string[];
}

function readFilter(exchange: AdmittedExchange, { notifications }: JsonObject): Filter {
  if (!isJsonObject(notifications)) throw invalidParams("'params.notifications' must be an object.");
  const { toolsListChanged, taskIds } = notifications;
  if (taskIds !== undefined) requireTasks(exchange);
  const ids = Array.isArray(taskIds) ? taskIds.filter((task) => typeof task === "string") : [];
  return { toolsListChanged: toolsListChanged === true, taskIds: ids.slice(0, mostTasks) };
}

async function ownTasks(exchange: AdmittedExchange, ids: readonly string[]): Promise<readonly string[]> {
  const found = await Promise.all(ids.map((id) => ownCall(exchange, id)));
  return found.flatMap((call) => (call === undefined ? [] : [call.id]));
}

interface Following {
  readonly tell: (method: string, params: JsonObject) => void;
  readonly taskIds: readonly string[];
  readonly isTold: boolean;
  readonly isDraining: () => boolean;
}

/** Until the client leaves, the process stops, or the caller may no longer. */
async function follow(exchange: AdmittedExchange, { tell, taskIds, isTold, isDraining }: Following): Promise<void> {
  const { deps, signal } = exchange;
  let known = isTold ? digestOf(exchange) : undefined;
  const going = new Map<string, string | undefined>(taskIds.map((id) => [id, undefined]));
  let current = exchange;
  for (let look = 1; !signal.aborted && !isDraining(); look += 1) {
    await deps.clock.sleep(lookMs, signal).catch(() => undefined);
    if (signal.aborted) return;
    if (look % looksPerTasks === 0) for (const id of going.keys()) await tellTask(current, id, { going, tell });
    // What this instance has seen of a change is known at once, what others have is looked for.
    const isSeen = deps.configs.peek(current.context.tenant)?.version !== current.context.config.version;
    if (!isSeen && look % looksPerAdmission !== 0) continue;
    current = await admitExchange(exchange, { isAgain: true });
    if (!isTold) continue;
    const digest = digestOf(current);
    if (digest !== known) tell("notifications/tools/list_changed", {});
    known = digest;
  }
}

async function tellTask(
  exchange: AdmittedExchange,
  id: string,
  { going, tell }: { readonly going: Map<string, string | undefined>; readonly tell: Following["tell"] },
): Promise<void> {
  const call = await ownCall(exchange, id);
  if (call === undefined) return;
  // It may ask something else by now.
  const seen = call.state === "input_required" ? `${call.state} ${call.attempt}` : call.state;
  if (going.get(id) === seen) return;
  going.set(id, seen);
  // One that has ended is told of once, and nobody asks about it again.
  if (endStates.includes(call.state)) going.delete(id);
  tell("notifications/tasks", await describeTask(exchange, call));
}

const digests = new WeakMap<TenantConfig, Map<string, string>>();

/**
 * What the caller's list is. Describing it takes the thread for as long as it is large, so that is done once for each
 * state of the tenant's configuration, of which callers are a part, however many streams of the caller look. Streams
 * are of one revision alone, so that the client makes no difference.
 */
function digestOf(exchange: AdmittedExchange): string {
  const { context, toolset = "" } = exchange;
  const known = digests.get(context.config) ?? new Map<string, string>();
  digests.set(context.config, known);
  const key = `${toolset} ${canonicalJson(context.caller)}`;
  let digest = known.get(key);
  if (digest === undefined) {
    digest = createHash("sha256")
      .update(JSON.stringify(describeTools(exchange)))
      .digest("base64");
    known.set(key, digest);
  }
  return digest;
}
