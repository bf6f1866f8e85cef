/** Tools of one service for people and pickers: those configured, or those its back end named (MCP-2). */
import type { CallContext } from "../context.ts";
import { currentConfig } from "../current-config.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { InvocationContext } from "../tools/tool-call.ts";
import type { Tool } from "../tools/tool.ts";
import { formatToolUri } from "../tools/uri.ts";
import { keepTools, withAccepted, type Acceptance } from "./discovery.ts";
import { definitionHash, quarantineOf, type Quarantine } from "./pins.ts";
import { requireService, runtimeOf } from "./register.ts";
import type { ServiceRuntime } from "./scheme.ts";
import type { DiscoveredTool, ToolService } from "./service.ts";
import { withFieldsToSee } from "./unreached.ts";

export interface ListedServiceTools {
  readonly service: ToolService;
  /** Those that can be called, or could if the service were enabled. */
  readonly tools: readonly Tool[];
  readonly quarantined: readonly QuarantinedTool[];
}

/** A tool that waits until somebody accepts its definition. */
export interface QuarantinedTool {
  readonly tool: Tool;
  readonly quarantine: Quarantine;
  /** Names the definition, for whoever accepts it. */
  readonly hash: string;
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
  if (!refresh && service.discovered !== null) return toListed(runtime, service);
  return toListed(runtime, await discover(deps, context, { runtime, service }));
}

function toListed(runtime: ServiceRuntime, service: ToolService): ListedServiceTools {
  const tools = runtime.toolsOf(service);
  const pinning = runtime.pinning(service);
  const { discovered } = service;
  const quarantined = (discovered?.tools ?? []).flatMap((definition): readonly QuarantinedTool[] => {
    const quarantine = discovered === null ? undefined : quarantineOf(discovered, definition, pinning);
    const uri = formatToolUri(service.scheme, service.serviceId, definition.id);
    const tool = tools.find((each) => each.uri === uri);
    if (quarantine === undefined || tool === undefined) return [];
    return [{ tool, quarantine, hash: definitionHash(definition) }];
  });
  return { service, tools: tools.filter((tool) => tool.quarantined !== true), quarantined };
}

/**
 * What a new or changed service's back end has, so that its tools can be offered at once. It may not be there
 * yet: then whoever lists its tools asks again, or the first call does.
 * @returns why its tools are not known
 */
export async function discoverIfPossible(
  deps: Pick<CoreDeps, "adapters" | "repos" | "configs" | "clock">,
  given: CallContext,
  service: ToolService,
  withinMs: number = atOnceMs,
): Promise<string | undefined> {
  const runtime = runtimeOf(deps.adapters, service.scheme);
  if (!runtime.discovers || !service.enabled) return undefined;
  // With the credentials that came with the change.
  const context = { ...given, config: (await currentConfig(deps, given.tenant)) ?? given.config };
  try {
    const found = await probing(context, { runtime, service, withinMs }, async (probe) =>
      runtime.discover(service, probe),
    );
    if (found !== undefined)
      await keepTools(deps, context.tenant, { service, found: { ...found, pinning: runtime.pinning(service) } });
    return undefined;
  } catch (error) {
    if (error instanceof GatewayError) return context.redactor.redact(error.message);
    throw error;
  }
}

/** Milliseconds that creating or changing a service waits for its back end: programs may take some to start. */
const atOnceMs = 10_000;

/**
 * Lets definitions that somebody has looked at take the place of those accepted before.
 * @throws GatewayError `not_found`; `invalid_request` for a tool that is not there; `version_conflict` where a
 * definition is another by now
 */
export async function acceptTools(
  deps: Pick<CoreDeps, "adapters" | "repos">,
  context: CallContext,
  { id, tools }: { readonly id: string; readonly tools: readonly Acceptance[] },
): Promise<ListedServiceTools> {
  const service = await requireService(deps, context.tenant, id);
  const { discovered } = service;
  const accepted = tools.map((acceptance) => definitionOf(service, acceptance));
  if (discovered === null || accepted.length === 0) return toListed(runtimeOf(deps.adapters, service.scheme), service);
  const now = withAccepted(discovered, accepted);
  await deps.repos.services.saveDiscovered(context.tenant, id, service.version, now);
  return toListed(runtimeOf(deps.adapters, service.scheme), { ...service, discovered: now });
}

function definitionOf({ discovered }: ToolService, { id, hash }: Acceptance): DiscoveredTool {
  const definition = discovered?.tools.find((tool) => tool.id === id);
  const name = id.slice(0, 200);
  if (definition === undefined) {
    throw new GatewayError("invalid_request", `The service has no tool '${name}' to accept.`, { param: "tools" });
  }
  if (definitionHash(definition) === hash) return definition;
  throw new GatewayError(
    "version_conflict",
    `The definition of '${name}' is not the one with this hash; look at it again, and accept what it is now.`,
    { param: "tools" },
  );
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
  const named = await probing(context, { runtime, service }, async (probe) => runtime.discover(service, probe));
  if (named === undefined) return service;
  return keepTools(deps, context.tenant, {
    service,
    found: { ...named, pinning: runtime.pinning(service), isAsked: true },
  });
}

/** What is left of the time for somebody who does not hear that it is over. */
const deafMs = 500;

/**
 * Work on a back end that is no call, in so many milliseconds. It is for whoever configures the service, so its errors
 * name the fields to look at.
 * @throws GatewayError `tool_timeout` where they are over
 */
export async function probing<Found>(
  context: CallContext,
  { runtime, service, withinMs = probeTimeoutMs }: Asked & { readonly withinMs?: number },
  work: (probe: InvocationContext) => Promise<Found>,
): Promise<Found> {
  const signal = AbortSignal.timeout(withinMs);
  const tooSlow = (cause?: unknown): GatewayError =>
    new GatewayError("tool_timeout", `The service did not answer within ${withinMs} ms.`, { cause });
  const { promise: late, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(tooSlow()), withinMs + deafMs);
  const working = work({ ...context, signal });
  try {
    return await Promise.race([working, late]);
  } catch (error) {
    const thrown = signal.aborted ? tooSlow(error) : withoutSecrets(context, error);
    throw thrown instanceof GatewayError ? withFieldsToSee(runtime, service, thrown) : thrown;
  } finally {
    clearTimeout(timer);
    working.catch(() => undefined);
  }
}

/** A back end may repeat what it was sent. */
function withoutSecrets({ redactor }: CallContext, thrown: unknown): unknown {
  if (!(thrown instanceof GatewayError)) return thrown;
  const { code, message, details } = thrown;
  const { extra } = details;
  return new GatewayError(code, redactor.redact(message), {
    ...details,
    ...(extra === undefined ? {} : { extra: redactor.redactObject({ ...extra }) }),
  });
}
