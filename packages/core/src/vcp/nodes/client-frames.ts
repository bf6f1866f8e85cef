/**
 * Frames that clients of VCP send, and what becomes of them: decisions about calls, commands to a browser, frames of
 * nodes that are no calls (VCP-13, VCP-15). One that is not understood is said to its sender and changes nothing
 * (VCP-24).
 */
import { requireScope } from "../../calls/admit.ts";
import { decideCall } from "../../calls/decide.ts";
import { maySeeCall } from "../../calls/view.ts";
import { hasScope } from "../../callers/caller.ts";
import type { CoreDeps } from "../../core-deps.ts";
import { toGatewayError } from "../../errors/gateway-error.ts";
import { isJsonObject, parseJson, type JsonObject } from "../../json.ts";
import { namesFor } from "../../realtime/audience.ts";
import type { Connection } from "../../realtime/connection.ts";
import { publishFrames } from "../log/frames.ts";
import { logSystemEvent } from "../log/vcp-log.ts";
import { toFrame } from "../../realtime/frames.ts";
import { approvingClients, vcpLogClient, vcpLogKept } from "./client-types.ts";
import { contextOf, malformed, typeOf } from "./frame-context.ts";
import { takeNodeFrame } from "./node-frames.ts";

/** How long a person is said to have; a call that waits does so until it is decided. */
const approvalTtlMs = 86_400_000;
const mostApprovals = 20;
/** Bytes of what a device has missed in one answer of API Gateway's, which has 128 KB. */
const longestReplay = 120_000;
/** Of a page that an observer shows: a frame has its limit. */
const longestMarkdown = 24_000;

export interface Waiting {
  readonly requestId: string;
  readonly sourceClientId: string;
}

/** @returns frames for the sender */
export async function takeFrame(
  deps: CoreDeps,
  connection: Connection,
  frame: JsonObject,
  waiting: readonly Waiting[],
): Promise<JsonObject[]> {
  const { type } = frame;
  const { clientType } = connection;
  try {
    if (typeof type !== "string") throw malformed("it is no JSON object with a text as its 'type'");
    if (clientType === "DistributedServer") return await takeNodeFrame(deps, connection, frame);
    if (type === "tool_approval_response" && clientType !== null && approvingClients.includes(clientType))
      return await decide(deps, connection, frame);
    if (type === "command" && clientType === "ChromeControl") return await command(deps, connection, frame);
    if (clientType === "ChromeObserver") return await observed(deps, connection, frame, waiting);
    throw malformed(`'${type.slice(0, 64)}' is no frame of clients of the type ${clientType ?? "none"}`);
  } catch (thrown) {
    const { code, message } = toGatewayError(thrown);
    const { tenant, caller } = connection;
    deps.log.log("warn", "a frame of a VCP client was refused", { tenant, caller: caller.id, code, reason: message });
    logSystemEvent(deps, tenant, { event: "frame.refused", status: "error", content: message });
    return [{ type: "error", data: { code, message } }];
  }
}

async function decide(deps: CoreDeps, connection: Connection, { data }: JsonObject): Promise<JsonObject[]> {
  const { requestId, approved, reason } = isJsonObject(data) ? data : {};
  const callId = callIdIn(requestId);
  if (callId === undefined || typeof approved !== "boolean")
    throw malformed("'data' must have the 'requestId' of a tool_approval_request and 'approved', true or false");
  await decideCall(deps, await contextOf(deps, connection), {
    callId,
    decision: approved ? "approved" : "rejected",
    ...(typeof reason === "string" && reason !== "" ? { reason: reason.slice(0, 1_000) } : {}),
  });
  return [];
}

/** `approve-<ms>-<…>`: what is behind the time is the call's own id. */
function requestIdOf(callId: string, at: number): string {
  return `approve-${at}-${callId.slice("call_".length)}`;
}

function callIdIn(requestId: unknown): string | undefined {
  const [, id] = typeof requestId === "string" ? (/^approve-\d{1,16}-([0-9a-z]{26})$/.exec(requestId) ?? []) : [];
  return id === undefined ? undefined : `call_${id}`;
}

/** What clients ask a person about the call; nothing where it does not wait, or is not theirs to decide. */
export async function approvalFrames(
  deps: CoreDeps,
  { tenant, caller }: Connection,
  callId: string,
): Promise<JsonObject[]> {
  const call = await deps.repos.calls.get(tenant, callId);
  if (call?.state !== "input_required" || call.approval !== null || !maySeeCall(caller, call)) return [];
  if (call.error?.code === "input_required") return [];
  const args = parseJson(call.inputView) ?? {};
  const maid = isJsonObject(args) ? args["maid"] : undefined;
  const data = {
    requestId: requestIdOf(call.id, call.createdAt),
    toolName: call.tool,
    maid: maid ?? null,
    args,
    timestamp: new Date(call.createdAt).toISOString(),
    approvalTtlMs,
  };
  return [{ type: "tool_approval_request", data }];
}

/** What was told while the device was away, and what still waits for a decision. */
export async function missedFrames(deps: CoreDeps, connection: Connection): Promise<JsonObject[]> {
  const { tenant, clientType, caller } = connection;
  if (clientType !== vcpLogClient) return [];
  const events = await deps.repos.connections.missed(tenant, connection.id, vcpLogKept);
  const frames = events.flatMap((event): JsonObject[] => {
    const names = namesFor(connection, event);
    const frame = names === undefined ? undefined : parseJson(toFrame(event, names));
    return isJsonObject(frame) ? [{ ...frame, _vcpReplay: true, _vcpReplayOriginalAt: event.createdAt }] : [];
  });
  if (!hasScope(caller, "approve")) return fitting(connection, frames);
  const filter = { state: "input_required" } as const;
  const page = await deps.repos.calls.list(tenant, filter, { limit: mostApprovals, order: "asc" });
  const asked = await Promise.all(
    page.data.map(async ({ id, createdAt }) => {
      const own = await approvalFrames(deps, connection, id);
      return own.map((frame) => ({ ...frame, _vcpReplay: true, _vcpReplayOriginalAt: createdAt }));
    }),
  );
  return fitting(connection, [...frames, ...asked.flat()]);
}

/** The last of them, as many as API Gateway carries in one answer; a process that holds the socket sends all. */
function fitting({ holder }: Connection, frames: readonly JsonObject[]): JsonObject[] {
  if (holder !== null) return [...frames];
  let bytes = 0;
  const first = frames.findLastIndex((frame) => {
    bytes += Buffer.byteLength(JSON.stringify(frame)) + 1;
    return bytes > longestReplay;
  });
  return frames.slice(first + 1);
}

/** Goes to the browser of the same caller, else to the tenant's that is there longest. */
async function command(deps: CoreDeps, connection: Connection, { data }: JsonObject): Promise<JsonObject[]> {
  // What a browser does is done in the name of whoever sits there.
  requireScope(connection.caller, "tools");
  if (!isJsonObject(data) || typeof data["requestId"] !== "string") throw malformed("'data.requestId' is missing");
  const observers = await deps.repos.connections.ofType(connection.tenant, "ChromeObserver");
  const observer = observers.find(({ caller }) => caller.id === connection.caller.id) ?? observers[0];
  const sourceClientId = connection.id;
  if (observer !== undefined) {
    const frame = { type: "command", data: { ...data, sourceClientId } };
    if ((await tell(deps, connection, observer.id, frame)) > 0) return [];
  }
  const error = "No active Chrome browser extension found.";
  return [{ type: "command_result", data: { requestId: data["requestId"], status: "error", error } }];
}

async function observed(
  deps: CoreDeps,
  connection: Connection,
  frame: JsonObject,
  waiting: readonly Waiting[],
): Promise<JsonObject[]> {
  const data = isJsonObject(frame["data"]) ? frame["data"] : {};
  switch (typeOf(frame)) {
    case "heartbeat":
      return [{ type: "heartbeat_ack", timestamp: deps.clock.now() }];
    case "command_result": {
      const to = data["sourceClientId"];
      if (typeof to !== "string") throw malformed("'data.sourceClientId' is missing");
      await tell(deps, connection, to, { type: "command_result", data });
      return [];
    }
    case "pageInfoUpdate": {
      const markdown = typeof data["markdown"] === "string" ? data["markdown"].slice(0, longestMarkdown) : "";
      for (const { requestId, sourceClientId } of waiting)
        await tell(deps, connection, sourceClientId, { type: "page_info_update", data: { requestId, markdown } });
      return [];
    }
    case "clientHello":
    case "urlfetch_cookie_sync":
      return [];
    default:
      throw malformed(`'${typeOf(frame)}' is no frame of a browser`);
  }
}

/** Only connections of the tenant are reached: an id of another one names nobody. */
async function tell(deps: CoreDeps, { tenant }: Connection, to: string, frame: JsonObject): Promise<number> {
  return publishFrames(deps, tenant, [{ frame, targetClientType: { connection: to } }]);
}
