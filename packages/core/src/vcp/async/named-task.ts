/** The task that an asynchronous plugin names in its first answer, and the placeholder for its result. Pure. */
import type { JsonObject } from "../../json.ts";
import { isJsonObject } from "../../json.ts";
import type { TaskName } from "../../ports/vcp-callbacks.ts";
import { isTaskName, placeholderOf } from "./task.ts";

const idFields = ["requestId", "taskId", "task_id"] as const;
const placeholder = /\{\{VCP_ASYNC_RESULT::([\p{L}\p{N}_.-]+)::([A-Za-z0-9_.-]+)\}\}/gu;

/** `requestId`, as the specification has it, or the placeholder that plugins have always put into their text. */
export function namedTask(plugin: string, answer: JsonObject): TaskName | undefined {
  const id = idFields
    .map((field) => answer[field])
    .find((value) => typeof value === "string" || typeof value === "number");
  const named = id === undefined ? taskOfPlaceholder(plugin, answer) : { plugin, taskId: String(id) };
  return named !== undefined && isTaskName(named) ? named : undefined;
}

function taskOfPlaceholder(plugin: string, answer: JsonObject): TaskName | undefined {
  const found = JSON.stringify(answer).matchAll(placeholder);
  for (const [, owner, taskId = ""] of found) if (owner === plugin) return { plugin, taskId };
  return undefined;
}

/** The model has to be told where the result will stand; where the plugin says it already, nothing changes. */
export function withPlaceholder(answer: JsonObject, task: TaskName): JsonObject {
  const text = placeholderOf(task);
  if (JSON.stringify(answer).includes(text)) return answer;
  const { messageForAI, result } = answer;
  if (typeof messageForAI === "string" && messageForAI !== "") {
    return { ...answer, messageForAI: `${messageForAI}\n${text}` };
  }
  if (result === undefined || result === null) return { ...answer, result: { async_result: text } };
  if (isJsonObject(result) && !Array.isArray(result["content"])) {
    return { ...answer, result: { ...result, async_result: text } };
  }
  const words = typeof result === "string" ? result : undefined;
  return { ...answer, messageForAI: words === undefined ? text : `${words}\n${text}` };
}
