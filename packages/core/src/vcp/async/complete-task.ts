/**
 * A result that is stored becomes known (VCP-5, VCP-12): its row says so, connected clients are told in the same
 * breath, and the call ends where it is the result that ends it. By whoever took the callback; where that one
 * died, by the plugin's next try or by the tick.
 */
import type { CoreDeps } from "../../core-deps.ts";
import { isJsonObject, parseJsonExactly } from "../../json.ts";
import type { TaskName, VcpTask } from "../../ports/vcp-callbacks.ts";
import type { NewEvent } from "../../realtime/connection.ts";
import { toNewEvent } from "../../realtime/publish.ts";
import type { TenantConfig } from "../../tenant-config.ts";
import { distributedToolsOf } from "../nodes/distributed-tools.ts";
import { vcpPluginsOf } from "../plugins/plugin.ts";
import { publicationOf } from "../push/web-socket-push.ts";
import { endCall, logUnused } from "./end-call.ts";

export interface StoredResult {
  readonly task: TaskName & Pick<VcpTask, "callId">;
  /** The callback's body as it is kept: redacted JSON. */
  readonly text: string;
}

/** Doing it again changes nothing. @returns `undefined` where there is no such task any more */
export async function completeTask(
  deps: CoreDeps,
  config: TenantConfig,
  { task, text }: StoredResult,
): Promise<VcpTask | undefined> {
  const { tenant } = config;
  const completed = await deps.repos.vcpCallbacks.complete(tenant, task, eventOf(config, { task, text }));
  if (completed === undefined) return undefined;
  deps.reach("callback.completed");
  if (completed.told) await deps.tellNow();
  if (completed.ends) {
    // The row knows of the result: should this fail, the tick ends the call with it.
    await endCall(deps, config, { task: completed.task, text }).catch((thrown: unknown) => {
      logUnused(deps, tenant, completed.task, thrown);
    });
  }
  return completed.task;
}

/** What the manifest wants clients to be told. */
function eventOf(config: TenantConfig, { task, text }: StoredResult): NewEvent | undefined {
  const own = vcpPluginsOf(config).get(task.plugin);
  const push = own === undefined ? distributedToolsOf(config).get(task.plugin)?.push : own.manifest.webSocketPush;
  const result = parseJsonExactly(text);
  if (push === undefined || !isJsonObject(result)) return undefined;
  const { plugin, callId } = task;
  const publication = publicationOf(push, { plugin, callId, result, from: "callback" });
  return publication === undefined ? undefined : toNewEvent(publication);
}
