/**
 * Asking a back end for its tools, and keeping what it says for every instance (MCP-2). Kept is what may
 * have changed only: each write makes all instances read the tenant's configuration again.
 */
import type { CoreDeps } from "../core-deps.ts";
import { pinOf, saysTheSame, withPins } from "./pins.ts";
import type { DiscoveredTools, Pinning, ServiceTool } from "./scheme.ts";
import { discoveredToolSchema, type Discovered, type DiscoveredTool, type ToolService } from "./service.ts";

type DiscoveryDeps = Pick<CoreDeps, "repos" | "clock">;

export interface Found extends DiscoveredTools {
  readonly pinning: Pinning;
  /** Somebody wants to see that the back end was asked: kept although nothing has changed. */
  readonly isAsked?: boolean;
}

/** The service as it is with these tools, which are kept nowhere. */
export function withTools(
  service: ToolService,
  { tools, warnings, pinning }: Found,
  at: number,
): ToolService & { readonly discovered: Discovered } {
  const fresh = { tools: tools.map(toDiscovered), warnings, at };
  return { ...service, discovered: withPins(service.discovered, fresh, pinning) };
}

/** @returns the service with what is known of its tools now */
export async function keepTools(
  { repos, clock }: DiscoveryDeps,
  tenant: string,
  { service, found }: { readonly service: ToolService; readonly found: Found },
): Promise<ToolService> {
  const { discovered } = withTools(service, found, clock.now());
  if (found.isAsked !== true && service.discovered !== null && saysTheSame(service.discovered, discovered))
    return service;
  await repos.services.saveDiscovered(tenant, service.id, service.version, discovered);
  return { ...service, discovered };
}

/** What of a tool is kept. */
function toDiscovered(tool: ServiceTool): DiscoveredTool {
  const { id, title, description, parameters, outputSchema, effect, repeat, hints } = tool;
  const kept = Object.entries({ id, title, description, parameters, outputSchema, effect, repeat, hints });
  // Absent is not undefined: both are to have one hash.
  return discoveredToolSchema.parse(Object.fromEntries(kept.filter(([, value]) => value !== undefined)));
}

/** A tool that somebody has looked at. */
export interface Acceptance {
  readonly id: string;
  /** Of the definition that was looked at. */
  readonly hash: string;
}

/** The same with these definitions accepted. */
export function withAccepted(discovered: Discovered, tools: readonly DiscoveredTool[]): Discovered {
  return {
    ...discovered,
    pins: { ...discovered.pins, ...Object.fromEntries(tools.map((tool) => [tool.id, pinOf(tool)])) },
  };
}
