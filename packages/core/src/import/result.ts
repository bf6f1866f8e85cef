/** What an import did, or would do, for whoever asked for it. */
import type { PluginDefinition } from "../blind/definition.ts";
import type { CallContext } from "../context.ts";
import type { ReadSource, SourceDocument } from "./candidate.ts";
import type { WantedCredential } from "./credentials.ts";
import type { Confirmation } from "./origins.ts";
import type { ImportPlan, PlannedPlugin } from "./plan.ts";
import type { ImportRequest } from "./request.ts";

export type ImportAction = "added" | "changed" | "unchanged" | "skipped" | "removed" | "missing";

export interface ImportedOperation {
  readonly operation: string;
  readonly action: ImportAction;
  readonly name: string | null;
  readonly pluginId: number | null;
  readonly hash: string | null;
  readonly changedFields: readonly string[];
  readonly definition: PluginDefinition | null;
  readonly schemes: readonly string[];
  readonly alternativeSchemes: readonly (readonly string[])[];
  readonly warnings: readonly string[];
  /** Why it was skipped. */
  readonly reason: string | null;
}

export interface NeededCredential extends WantedCredential {
  readonly isStored: boolean;
}

export interface ImportResult {
  readonly document: SourceDocument | null;
  readonly dryRun: boolean;
  readonly operations: readonly ImportedOperation[];
  readonly credentials: readonly NeededCredential[];
  /** Names of credentials whose values stood in the source. */
  readonly credentialsFound: readonly string[];
  readonly confirmations: readonly Confirmation[];
  readonly warnings: readonly string[];
}

export interface ResultParts {
  readonly source: ReadSource;
  readonly plan: ImportPlan;
  readonly request: ImportRequest;
  readonly context: CallContext;
  /** Of new plugins, by name. */
  readonly ids: ReadonlyMap<string, number>;
  readonly confirmations: readonly Confirmation[];
  readonly found: readonly string[];
  /** Names of credentials that were stored just now. */
  readonly storedNow: readonly string[];
}

export function toResult({
  source,
  plan,
  request,
  context,
  ids,
  confirmations,
  found,
  storedNow,
}: ResultParts): ImportResult {
  const stored = new Set([...context.config.credentials.map(({ name }) => name), ...storedNow]);
  return {
    document: source.document.id === "" ? null : source.document,
    dryRun: request.dry_run,
    operations: [
      ...plan.planned.map((planned) => toOperation(planned, ids)),
      ...plan.skipped.map(({ label, reason }): ImportedOperation => ({
        ...emptyOperation,
        operation: label,
        action: "skipped",
        reason,
      })),
      ...plan.missing.map((record): ImportedOperation => ({
        ...emptyOperation,
        operation: operationOf(record),
        action: plan.removesMissing ? "removed" : "missing",
        name: record.name,
        pluginId: record.pluginId,
        hash: record.hash,
      })),
    ],
    credentials: collectCredentials(plan.planned).map((wanted) => ({ ...wanted, isStored: stored.has(wanted.name) })),
    credentialsFound: found,
    confirmations,
    warnings: source.warnings,
  };
}

/** A row of an import with nothing to say but its label and what became of it. */
export const emptyOperation = {
  name: null,
  pluginId: null,
  hash: null,
  changedFields: [],
  definition: null,
  schemes: [],
  alternativeSchemes: [],
  warnings: [],
  reason: null,
} as const;

function toOperation(planned: PlannedPlugin, ids: ReadonlyMap<string, number>): ImportedOperation {
  const { label, plugin, definition, existing, auth, warnings } = planned;
  const isUnchanged = existing?.hash === plugin.hash;
  return {
    operation: label,
    action: existing === undefined ? "added" : isUnchanged ? "unchanged" : "changed",
    name: plugin.name,
    pluginId: existing?.pluginId ?? ids.get(plugin.name) ?? null,
    hash: plugin.hash,
    changedFields: planned.changedFields,
    definition,
    schemes: auth.schemes,
    alternativeSchemes: auth.alternatives,
    warnings,
    reason: null,
  };
}

function operationOf({ executionConfig }: ImportPlan["missing"][number]): string {
  return "execution" in executionConfig ? (executionConfig.source?.operation ?? "") : "";
}

/** Each name once; the scopes that operations ask for together are the scopes to store. */
function collectCredentials(planned: readonly PlannedPlugin[]): readonly WantedCredential[] {
  const found = new Map<string, WantedCredential>();
  for (const wanted of planned.flatMap(({ auth }) => auth.credentials)) {
    const known = found.get(wanted.name);
    found.set(wanted.name, known === undefined ? wanted : withAllWords(known, wanted));
  }
  return [...found.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
}

function withAllWords(known: WantedCredential, wanted: WantedCredential): WantedCredential {
  const words = [known, wanted].flatMap(({ suggestedValue }) => suggestedValue?.split(" ") ?? []);
  return words.length === 0 ? known : { ...known, suggestedValue: [...new Set(words)].join(" ") };
}
