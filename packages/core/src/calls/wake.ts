/**
 * Calls that wait for something (`Parked`) and how they hear of it. That a call of theirs has ended the database
 * tells them by itself, whichever statement ends it (migration `flow_runs`); the message only spares the tick's delay.
 */
import type { CoreDeps } from "../core-deps.ts";
import { idPrefixes } from "../ids.ts";
import type { Call } from "./call.ts";
import { enqueue } from "./enqueue.ts";

type WakeDeps = Pick<CoreDeps, "repos" | "queue" | "log">;

/** Has a call that waits look again. `false`: it has ended. */
export async function wakeCall(deps: WakeDeps, tenant: string, callId: string): Promise<boolean> {
  if (!(await deps.repos.calls.wake(tenant, callId))) return false;
  await enqueue(deps, { tenant, callId, expectedMs: 0 });
  return true;
}

/** After the end of a call: whoever waits for it is awake already, and is only sent for. Never throws. */
export async function tellParent(
  deps: Pick<CoreDeps, "queue" | "log">,
  { tenant, parentId }: { readonly tenant: string; readonly parentId?: string | null },
): Promise<void> {
  if (typeof parentId !== "string" || isChat(parentId)) return;
  await enqueue(deps, { tenant, callId: parentId, expectedMs: 0 });
}

/** Chats never wait so: their calls' results go to the session's next one. */
export function isChat(callId: Call["id"]): boolean {
  return callId.startsWith(`${idPrefixes.chat}_`);
}
