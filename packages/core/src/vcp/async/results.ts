/**
 * Results of asynchronous plugins as they are read in a conversation: the text that takes the place of
 * `{{VCP_ASYNC_RESULT::Plugin::TaskId}}` (VCP specification s. 5; VCP-11). Whoever asked for the call sees it;
 * to everybody else the task does not exist.
 */
import type { CallContext } from "../../context.ts";
import { isOfSession } from "../../calls/own-session.ts";
import type { AdapterDeps } from "../../deps.ts";
import { toGatewayError } from "../../errors/gateway-error.ts";
import { isJsonObject, parseJsonExactly, type JsonObject, type JsonValue } from "../../json.ts";
import { readAll } from "../../ports/blob-store.ts";
import type { TaskName, VcpTask } from "../../ports/vcp-callbacks.ts";
import { isTaskName, resultKey } from "./task.ts";

export type ResultDeps = Pick<AdapterDeps, "repos" | "blobs" | "log">;
export type ResultReader = Pick<CallContext, "tenant" | "caller" | "sessionId">;

/** Never throws: a result that cannot be read is said to be so. */
export async function readAsyncText(
  deps: ResultDeps,
  context: ResultReader,
  plugin: string,
  taskId: string,
): Promise<string> {
  const name = { plugin, taskId };
  try {
    const result = await readOwnResult(deps, context, name);
    return result === undefined ? pendingText(name) : textOfResult(name, result);
  } catch (thrown) {
    const { code } = toGatewayError(thrown);
    deps.log.log("error", "a result of a plugin cannot be read", {
      tenant: context.tenant,
      plugin,
      task: taskId,
      code,
    });
    return `[获取任务 ${plugin} (ID: ${taskId}) 结果时出错]`;
  }
}

export function pendingText({ plugin, taskId }: TaskName): string {
  return `[任务 ${plugin} (ID: ${taskId}) 结果待更新...]`;
}

/** Undefined: there is none yet, or it is not this caller's. */
async function readOwnResult(deps: ResultDeps, context: ResultReader, name: TaskName): Promise<string | undefined> {
  if (!isTaskName(name)) return undefined;
  const task = await deps.repos.vcpCallbacks.task(context.tenant, name);
  // What is stored counts, also where whoever stored it died before it could say so.
  if (task === undefined || !(await isOwn(deps, context, task))) return undefined;
  return readResult(deps, context.tenant, name);
}

/** The body of the callback, to the byte. */
export async function readResult(
  { blobs }: Pick<AdapterDeps, "blobs">,
  tenant: string,
  name: TaskName,
): Promise<string | undefined> {
  const blob = await blobs.get(resultKey(tenant, name));
  return blob === undefined ? undefined : Buffer.from(await readAll(blob.body)).toString("utf8");
}

/** The caller or the user who asked for the call, or its session. */
async function isOwn({ repos }: ResultDeps, context: ResultReader, task: VcpTask): Promise<boolean> {
  const { caller, tenant } = context;
  const isAsker = task.userId === null ? task.callerId === caller.id : task.userId === caller.userId;
  if (isAsker || task.sessionId === null || task.sessionId !== context.sessionId) return isAsker;
  const call = await repos.calls.get(tenant, task.callId);
  return call !== undefined && isOfSession({ repos }, context, call);
}

/** Pure: the words are upstream's, which knows `Failed` alone. */
export function textOfResult(name: TaskName, text: string): string {
  const whole = parseJsonExactly(text);
  const { plugin, taskId } = name;
  if (whole === undefined) return `[获取任务 ${plugin} (ID: ${taskId}) 结果时出错]`;
  if (!isJsonObject(whole)) return `[任务 ${plugin} (ID: ${taskId}) 已完成]`;
  const { message, status } = whole;
  if (isTruthy(message)) return typeof message === "string" ? message : JSON.stringify(message);
  if (status === "Succeed") {
    return `任务 ${plugin} (ID: ${taskId}) 已成功完成。详情: ${firstOf(whole, ["data", "result"])}`;
  }
  if (hasFailed(whole)) return `任务 ${plugin} (ID: ${taskId}) 处理失败。原因: ${reasonOf(whole)}`;
  return `[任务 ${plugin} (ID: ${taskId}) 已完成]`;
}

/** Whether its call has failed by it: upstream's `Failed`, and what plugins write for it. */
export function hasFailed({ status }: JsonObject): boolean {
  return typeof status === "string" && ["failed", "error", "failure"].includes(status.toLowerCase());
}

function reasonOf(whole: JsonObject): string {
  const { reason } = whole;
  if (isTruthy(reason)) return typeof reason === "string" ? reason : JSON.stringify(reason);
  return firstOf(whole, ["data", "error"]);
}

/** JSON of the first field that says something, else of all. */
function firstOf(whole: JsonObject, fields: readonly string[]): string {
  const found = fields.map((field) => whole[field]).find(isTruthy);
  return JSON.stringify(found ?? whole);
}

function isTruthy(value: JsonValue | undefined): value is JsonValue {
  return value !== undefined && value !== null && value !== "" && value !== false && value !== 0;
}
