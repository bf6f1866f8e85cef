/**
 * VCPLog: what clients of that kind hear of tool calls and of what happens in the tenant's VCP runtime
 * (specification s. 13; VCP-22). The record itself is the call's row (`GET /v1/calls`); this is its stream, in the
 * frames that VCP's clients know. Nothing is made where nobody listens.
 */
import type { CallContext } from "../../context.ts";
import type { AdapterDeps } from "../../deps.ts";
import { isJsonObject, parseJson, type JsonObject, type JsonValue } from "../../json.ts";
import { namedTask } from "../async/named-task.ts";
import { vcpLogClient } from "../nodes/client-types.ts";
import { toPublication } from "./frames.ts";

/** Characters of a content: a frame has its limit, and the whole is with the call. */
const longestContent = 8_000;

export interface ToolCallEntry {
  readonly callId: string;
  readonly tool: string;
  readonly status: "success" | "error";
  /** The result's text, or the error. */
  readonly content: string;
  /** Under which VCP's clients know the work: the plugin's own, else the call's. */
  readonly taskId?: string;
  /** Of the node that has done it. */
  readonly serverId?: string;
  /** Where the call came from, for example `human/tool`. */
  readonly source?: string;
  readonly state?: string;
  readonly durationMs?: number;
}

export interface SystemEntry {
  /** What has happened, for example `node.registered`. */
  readonly event: string;
  readonly status: "success" | "error";
  readonly content: string;
  readonly traceId?: string;
  readonly serverId?: string;
}

type LogDeps = Pick<AdapterDeps, "frames">;

/** The tool call has come to an end. */
export function logToolCall({ frames }: LogDeps, context: CallContext, entry: ToolCallEntry): void {
  const { tenant, caller, traceId, sessionId } = context;
  if (frames?.hearsVcp(tenant) !== true) return;
  const { callId, tool, status, content, serverId, source, state, durationMs } = entry;
  const frame = logFrame(tool, status, content, {
    ...(source === undefined ? {} : { source }),
    details: {
      traceId,
      taskId: entry.taskId ?? taskIdIn(tool, content) ?? callId,
      callId,
      ...(serverId === undefined ? {} : { serverId }),
      ...(sessionId === undefined ? {} : { sessionId }),
      ...(state === undefined ? {} : { state }),
      ...(durationMs === undefined ? {} : { durationMs }),
    },
  });
  const push = { frame, targetClientType: vcpLogClient, callId, callerId: caller.id };
  frames.tell(tenant, toPublication(push));
}

/** Something has happened that is no call: a node, a plugin. */
export function logSystemEvent({ frames }: LogDeps, tenant: string, entry: SystemEntry): void {
  if (frames?.hearsVcp(tenant) !== true) return;
  const { event, status, content, traceId, serverId } = entry;
  const details = {
    event,
    ...(traceId === undefined ? {} : { traceId }),
    ...(serverId === undefined ? {} : { serverId }),
  };
  const frame = logFrame("VCPSystem", status, content, { details });
  frames.tell(tenant, toPublication({ frame, targetClientType: vcpLogClient }));
}

function logFrame(tool: string, status: string, content: string, more: JsonObject): JsonObject {
  const shown = content.length > longestContent ? `${content.slice(0, longestContent)}…` : content;
  return { type: "vcp_log", data: { tool_name: tool, status, content: shown, ...more } };
}

/** An asynchronous plugin names its task in what it says at once: by a field, or by the place of its result. */
function taskIdIn(tool: string, content: string): string | undefined {
  const said: JsonValue | undefined = content.startsWith("{") ? parseJson(content) : undefined;
  return namedTask(tool, isJsonObject(said) ? said : { result: content })?.taskId;
}
