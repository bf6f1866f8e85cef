/** Variables of a tenant for unit tests, in the order of their definition. */
import { createHash } from "node:crypto";
import type { CallContext } from "@toolyard/core/context";
import type { VariableEntry, VariableKind, VariableOptions } from "@toolyard/core/vcp/placeholders/variable";
import type { PlaceholderSources } from "@toolyard/core/vcp/placeholders/sources";
import { callContext } from "./call-context.ts";

export type VariableLine = readonly [kind: VariableKind, name: string, content: string, options?: VariableOptions];

export function variables(...lines: readonly VariableLine[]): readonly VariableEntry[] {
  return lines.map(([kind, name, content, options = {}], at) => ({
    id: `var_${kind}_${name}`,
    kind,
    name,
    options,
    position: at + 1,
    hash: createHash("sha256").update(content).digest("hex"),
    bytes: Buffer.byteLength(content),
    content,
    version: 1,
    createdAt: 0,
    updatedAt: 0,
  }));
}

export function contextWith(
  entries: readonly VariableEntry[],
  settings: Readonly<Record<string, unknown>> = {},
): CallContext {
  const context = callContext({ settings });
  return { ...context, config: { ...context.config, variables: entries } };
}

/** Nothing but what a test says. */
export function sources(change: {
  readonly values?: Readonly<Record<string, string>>;
  readonly results?: Readonly<Record<string, string>>;
  readonly tools?: Awaited<ReturnType<PlaceholderSources["toolTexts"]>>;
}): PlaceholderSources {
  return {
    staticValues: () => Promise.resolve(new Map(Object.entries(change.values ?? {}))),
    asyncText: (plugin, taskId) =>
      Promise.resolve(change.results?.[`${plugin}-${taskId}`] ?? `[任务 ${plugin} (ID: ${taskId}) 结果待更新...]`),
    toolTexts: () => Promise.resolve(change.tools ?? []),
  };
}
