/**
 * `subscriptions/listen`: a stream of news for as long as the client listens (2026-07-28). What is new is found in
 * the database, so that it does not matter which instance has changed it. Only processes that stay can hold such
 * a stream; elsewhere nothing is subscribed to and the stream ends at once.
 */
import { createHash } from "node:crypto";
import { isJsonObject, type JsonObject } from "../json.ts";
import { encodeNotice, type RpcRequest } from "../mcp/json-rpc.ts";
import { metaKeys } from "../mcp/revisions.ts";
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

export async function listen(exchange: Exchange, { id, params }: RpcRequest): Promise<MethodReply> {
  const admitted = await admitExchange(exchange);
  const { send, resident } = exchange;
  if (send === undefined) throw invalidRequest("A subscription needs 'Accept: text/event-stream'.");
  const wanted = readFilter(admitted, params);
  const tell = (method: string, told: JsonObject): void =>
    send(encodeNotice({ method, params: { ...told, _meta: { [metaKeys.subscription]: id } } }));
  const taskIds = resident === undefined ? [] : await ownTasks(admitted, wanted.taskIds);
  const isTold = resident !== undefined && wanted.toolsListChanged;
  tell("notifications/subscriptions/acknowledged", {
    notifications: {
      ...(isTold ? { toolsListChanged: true } : {}),
      ...(taskIds.length === 0 ? {} : { taskIds: [...taskIds] }),
    },
  });
  if (resident !== undefined && (isTold || taskIds.length > 0)) {
    await follow(admitted, { tell, taskIds, isTold, isDraining: resident.isDraining });
  }
  return { result: { _meta: { [metaKeys.subscription]: id } }, ...admitted.told };
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
  let known = digestOf(exchange);
  const states = new Map<string, string>();
  let current = exchange;
  for (let look = 1; !signal.aborted && !isDraining(); look += 1) {
    await deps.clock.sleep(lookMs, signal).catch(() => undefined);
    if (signal.aborted) return;
    if (look % looksPerTasks === 0) for (const id of taskIds) await tellTask(current, id, { states, tell });
    // What this instance has seen of a change is known at once, what others have is looked for.
    const isSeen = deps.configs.peek(current.context.tenant)?.version !== current.context.config.version;
    if (!isSeen && look % looksPerAdmission !== 0) continue;
    current = await admitExchange(exchange, { isCounted: false });
    const digest = digestOf(current);
    if (isTold && digest !== known) tell("notifications/tools/list_changed", {});
    known = digest;
  }
}

async function tellTask(
  exchange: AdmittedExchange,
  id: string,
  { states, tell }: { readonly states: Map<string, string>; readonly tell: Following["tell"] },
): Promise<void> {
  const call = await ownCall(exchange, id);
  if (call === undefined || states.get(id) === call.state) return;
  states.set(id, call.state);
  tell("notifications/tasks", await describeTask(exchange, call));
}

function digestOf(exchange: AdmittedExchange): string {
  return createHash("sha256")
    .update(JSON.stringify(describeTools(exchange)))
    .digest("base64");
}
