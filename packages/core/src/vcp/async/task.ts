/**
 * Task ids of asynchronous VCP plugins and where their results lie (VCP specification s. 5):
 * `{tenant}/VCPAsyncResults/{pluginName}-{taskId}.json`.
 */
import { namedKey, tenantKey } from "../../ports/blob-store.ts";
import type { TaskName } from "../../ports/vcp-callbacks.ts";

/** As a manifest names it (vcp/plugins/manifest.ts). */
const pluginPattern = /^[\p{L}\p{N}_-][\p{L}\p{N}_.-]{0,63}$/u;
const taskIdPattern = /^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}$/;

function isTaskId(text: string): boolean {
  return taskIdPattern.test(text);
}

export function isTaskName({ plugin, taskId }: TaskName): boolean {
  return pluginPattern.test(plugin) && isTaskId(taskId);
}

/** @param name one that `isTaskName` */
export function resultKey(tenant: string, { plugin, taskId }: TaskName): string {
  const [folder, file] = ["VCPAsyncResults", `${plugin}-${taskId}.json`];
  // Blob stores take names in other scripts encoded only.
  return /^[\w.-]+$/.test(file) ? namedKey(tenant, folder, file) : tenantKey(tenant, folder, file);
}

/** What stands for the result in a conversation until it is there. */
export function placeholderOf({ plugin, taskId }: TaskName): string {
  return `{{VCP_ASYNC_RESULT::${plugin}::${taskId}}}`;
}
