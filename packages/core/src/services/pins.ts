/**
 * Definitions of discovered tools are pinned: what a model was told of a tool yesterday, and what a person
 * has seen of it, is not to become something else overnight (tool poisoning, "rug pull"). A definition that
 * differs from the accepted one keeps its tool from being listed and called until somebody accepts it.
 */
import { createHash } from "node:crypto";
import { canonicalJson } from "../json.ts";
import type { Pinning } from "./scheme.ts";
import type { DefinitionPin, Discovered, DiscoveredTool } from "./service.ts";

/** The parts of a definition that models read, or that something follows from. */
const parts = [
  "title",
  "description",
  "parameters",
  "outputSchema",
  "hints",
] as const satisfies readonly (keyof DiscoveredTool)[];

/** Pins of tools that are gone are kept for so many in all. */
const mostPins = 2_000;

const pinned = new WeakMap<DiscoveredTool, DefinitionPin>();

export function pinOf(tool: DiscoveredTool): DefinitionPin {
  const known = pinned.get(tool);
  if (known !== undefined) return known;
  const pin = Object.fromEntries(parts.map((part) => [part, hashOf(tool[part] ?? null)]));
  pinned.set(tool, pin);
  return pin;
}

/** Names one definition, for whoever accepts it. */
export function definitionHash(tool: DiscoveredTool): string {
  return hashOf(pinOf(tool));
}

function hashOf(value: unknown): string {
  return createHash("sha256").update(canonicalJson(value), "utf8").digest("hex").slice(0, 32);
}

export type Quarantine = { readonly reason: "new" } | { readonly reason: "changed"; readonly parts: readonly string[] };

/** Why a tool may not be used; undefined: it may. */
export function quarantineOf(
  { pins = {} }: Discovered,
  tool: DiscoveredTool,
  pinning: Pinning,
): Quarantine | undefined {
  if (pinning === "off") return undefined;
  const accepted = Object.hasOwn(pins, tool.id) ? pins[tool.id] : undefined;
  if (accepted === undefined) return { reason: "new" };
  const changed = changedParts(accepted, pinOf(tool));
  return changed.length === 0 ? undefined : { reason: "changed", parts: changed };
}

function changedParts(accepted: DefinitionPin, now: DefinitionPin): readonly string[] {
  return parts.filter((part) => accepted[part] !== now[part]);
}

export interface FreshTools {
  readonly tools: readonly DiscoveredTool[];
  readonly warnings: readonly string[];
  readonly at: number;
}

/** What is stored after a back end was asked: what is seen for the first time is accepted, unless all is to be. */
export function withPins(before: Discovered | null, fresh: FreshTools, pinning: Pinning): Discovered {
  const known = before?.pins ?? {};
  const acceptsNew = pinning !== "all" || before === null || before.pins === undefined;
  const added = fresh.tools.filter(({ id }) => acceptsNew && (pinning === "off" || !Object.hasOwn(known, id)));
  const pins = { ...known, ...Object.fromEntries(added.map((tool) => [tool.id, pinOf(tool)])) };
  const present = new Set(fresh.tools.map(({ id }) => id));
  const entries = Object.entries(pins).sort(([a], [b]) => Number(present.has(b)) - Number(present.has(a)));
  return {
    tools: [...fresh.tools],
    at: fresh.at,
    ...(fresh.warnings.length === 0 ? {} : { warnings: [...fresh.warnings] }),
    pins: Object.fromEntries(entries.slice(0, mostPins)),
  };
}

/** Do both say the same, whenever they were asked? */
export function saysTheSame(one: Discovered, two: Discovered): boolean {
  return canonicalJson({ ...one, at: 0 }) === canonicalJson({ ...two, at: 0 });
}
