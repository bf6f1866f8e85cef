/** `POST /v1/schedule_task` as clients of VCP send it: one call at one time, with upstream's bodies. */
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { isJsonObject, type JsonObject } from "../json.ts";
import { toRfc3339 } from "../time.ts";
import { readTime } from "../vcp/dialect/timed-call.ts";
import { createSchedule } from "./register.ts";

const ownFields = ["schedule_time", "task_id", "tool_call"];

export function isUpstream(body: JsonObject): boolean {
  return ownFields.some((field) => body[field] !== undefined);
}

export interface UpstreamAnswer {
  readonly status: 200 | 400 | 403 | 404 | 409;
  readonly body: JsonObject;
}

/** @throws GatewayError what is no fault of the request */
export async function scheduleUpstream(
  deps: CoreDeps,
  context: CallContext,
  body: JsonObject,
): Promise<UpstreamAnswer> {
  const { schedule_time: time, task_id: taskId, tool_call: call } = body;
  const { tool_name: name, arguments: args = {} } = isJsonObject(call) ? call : {};
  const isWhole =
    typeof time === "string" &&
    time !== "" &&
    typeof taskId === "string" &&
    taskId !== "" &&
    typeof name === "string" &&
    name !== "" &&
    isJsonObject(args);
  if (!isWhole) return refused("请求无效，缺少 'schedule_time', 'task_id', 或有效的 'tool_call' 对象。");
  if (taskId.length > 256) return refused("'task_id' 最多 256 个字符。");
  const at = readTime(time, context.config.settings.time_zone);
  if (at === undefined) return refused("无效的 'schedule_time' 时间格式。");
  if (at <= deps.clock.now()) return refused("schedule_time 不能是过去的时间。");
  const { timely_contact: _contact, ...rest } = args;
  try {
    const { id } = await createSchedule(
      deps,
      context,
      {
        at: toRfc3339(at),
        misfire: "once",
        task: { tool_call: { tool_name: name, arguments: rest } },
        paused: false,
      },
      { taskId },
    );
    const details = { taskId, scheduledTime: toRfc3339(at), scheduleId: id };
    return { status: 200, body: { status: "success", message: "任务已成功调度。", details } };
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error;
    const { http } = error.spec;
    if (http !== 400 && http !== 403 && http !== 404 && http !== 409) throw error;
    return { status: http, body: { status: "error", error: error.message } };
  }
}

function refused(error: string): UpstreamAnswer {
  return { status: 400, body: { status: "error", error } };
}
