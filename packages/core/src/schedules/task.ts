/**
 * What a schedule calls: a tool by its address, or what a TOOL_REQUEST of VCP asks for. It is looked up anew for every
 * firing, with the permissions, tools and settings of then.
 */
import type { CallContext } from "../context.ts";
import type { AdapterDeps } from "../deps.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { JsonObject } from "../json.ts";
import { loadScheme } from "../tools/catalog.ts";
import { prepareCall, type DispatchItem, type Preparation } from "../tools/prepare.ts";
import { toErrorDetails } from "../tools/outcome.ts";
import type { Schedule, ScheduleTask } from "./schedule.ts";

/** Authenticated with the sealed task, so that it opens in its own row only. */
const taskAad = (id: string): readonly string[] => ["schedule-task", id];

type SealDeps = Pick<AdapterDeps, "sealer">;
type Owner = Pick<CallContext, "tenant" | "config">;

export function sealTask({ sealer }: SealDeps, owner: Owner, id: string, task: ScheduleTask): Promise<string> {
  return sealer.seal(owner.tenant, owner.config.wrappedKey, taskAad(id), JSON.stringify(task));
}

/** @throws GatewayError `credential_unreadable` and the like where it cannot be opened */
export async function openTask(
  { sealer }: SealDeps,
  { tenant, config }: Owner,
  { id, task }: Pick<Schedule, "id" | "task">,
): Promise<ScheduleTask> {
  // Sealed by this code for this row; nobody else can have written it.
  return JSON.parse(await sealer.open(tenant, config.wrappedKey, taskAad(id), task)) as ScheduleTask;
}

/** @throws GatewayError `invalid_request` for a text that is no single request */
export async function prepareTask(
  deps: CoreDeps,
  context: CallContext,
  task: ScheduleTask,
): Promise<{ readonly item: DispatchItem; readonly preparation: Preparation }> {
  const item = "uri" in task ? { target: task.uri, arguments: task.arguments } : await planRequest(deps, context, task);
  await loadScheme(deps.adapters, item.target);
  return { item, preparation: prepareCall(deps.adapters, context, item, { hasReadOutside: false }) };
}

/** @throws GatewayError whatever keeps it from being called now */
export function requireReady(preparation: Preparation): Extract<Preparation, { readonly call: unknown }> {
  if (preparation.kind !== "refused") return preparation;
  const { outcome, tool } = preparation;
  throw new GatewayError(outcome.code, `'task': ${outcome.message}`, {
    ...toErrorDetails(outcome.details),
    param: "task",
    ...(tool === undefined ? {} : { toolName: tool.name }),
  });
}

async function planRequest(
  deps: CoreDeps,
  context: CallContext,
  task: Exclude<ScheduleTask, { readonly uri: unknown }>,
): Promise<DispatchItem> {
  const { planCall } = await import("../vcp/dialect/plan-call.ts");
  const { holdsSeveral, readRequest, requestOf } = await import("../vcp/dialect/read-request.ts");
  const request =
    "tool_call" in task
      ? requestOf(task.tool_call.tool_name, task.tool_call.arguments)
      : readRequest(task.tool_request);
  if (typeof request === "string") throw invalid(`'task.tool_request': ${request}`);
  if ("tool_request" in task && holdsSeveral(task.tool_request)) {
    throw invalid("'task.tool_request' holds several requests; make a schedule for each.");
  }
  const { item } = await planCall(
    deps,
    { ...request, args: withoutContact(request.args) },
    { context, hasSession: context.sessionId !== undefined },
  );
  if (item.found !== undefined)
    throw invalid(`'task.tool_request': '${request.name}' answers at once; nothing is called.`);
  return item;
}

/** The schedule says when. */
function withoutContact(args: JsonObject): JsonObject {
  const { timely_contact: _contact, ...rest } = args;
  return rest;
}

function invalid(message: string): GatewayError {
  return new GatewayError("invalid_request", message, { param: "task.tool_request" });
}
