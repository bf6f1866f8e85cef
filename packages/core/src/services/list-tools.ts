/** Tools of one service for people and pickers: those configured, or those its back end named (MCP-2). */
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../deps.ts";
import type { InvocationContext } from "../tools/adapter.ts";
import type { Tool } from "../tools/tool.ts";
import { keepTools } from "./discovery.ts";
import { requireService, runtimeOf } from "./register.ts";
import type { ServiceRuntime } from "./runtime.ts";
import type { ToolService } from "./service.ts";

export interface ListedServiceTools {
  readonly service: ToolService;
  readonly tools: readonly Tool[];
}

/** Milliseconds that a back end has to name its tools, or to answer a test. */
export const probeTimeoutMs = 15_000;

/**
 * @param refresh ask the back end although its answer is known
 * @throws GatewayError `not_found`; what discovering throws
 */
export async function listServiceTools(
  deps: Pick<CoreDeps, "adapters" | "repos" | "clock">,
  context: CallContext,
  { id, refresh }: { readonly id: string; readonly refresh: boolean },
): Promise<ListedServiceTools> {
  const service = await requireService(deps, context.tenant, id);
  const runtime = runtimeOf(deps.adapters, service.scheme);
  if (!refresh && service.discovered !== null) return { service, tools: runtime.toolsOf(service) };
  const found = await discover(deps, context, { runtime, service });
  return { service: found, tools: runtime.toolsOf(found) };
}

interface Asked {
  readonly runtime: ServiceRuntime;
  readonly service: ToolService;
}

async function discover(
  deps: Pick<CoreDeps, "repos" | "clock">,
  context: CallContext,
  { runtime, service }: Asked,
): Promise<ToolService> {
  const asking = runtime.discover(service, toProbing(context));
  if (asking === undefined) return service;
  const found = { ...(await asking), pinning: runtime.pinning(service), isAsked: true };
  return keepTools(deps, context.tenant, { service, found });
}

/** For work on a back end that is no call. */
export function toProbing(context: CallContext): InvocationContext {
  return { ...context, signal: AbortSignal.timeout(probeTimeoutMs) };
}
