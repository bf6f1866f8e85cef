/**
 * What an import would do: each operation of the source against the plugins that earlier imports of the
 * same document made. A plugin is found again by document and operation, so it keeps its name, its id and
 * what was decided here about it (who may use it, whether it is on), whatever the document says now.
 */
import { definitionOf, registerPlugin, under } from "../blind/register.ts";
import { authSlots, placeOf } from "../blind/auth-mapping.ts";
import { authConfigSchema, type PluginDefinition } from "../blind/definition.ts";
import type { PluginRecord } from "../blind/plugin.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../json.ts";
import type { Egress } from "../ports/egress.ts";
import type { NewPlugin } from "../ports/plugins.ts";
import { noAuth, type Candidate, type CandidateAuth, type ReadSource, type Skipped } from "./candidate.ts";
import { changedFields } from "./compare.ts";
import { configToJson } from "./credentials.ts";
import { assignNames } from "./names.ts";
import type { Pace } from "../pace.ts";

export interface PlannedPlugin {
  readonly label: string;
  readonly plugin: NewPlugin;
  readonly definition: PluginDefinition;
  readonly existing: PluginRecord | undefined;
  /** Empty where nothing changes. */
  readonly changedFields: readonly string[];
  readonly auth: CandidateAuth;
  readonly warnings: readonly string[];
}

export interface ImportPlan {
  readonly planned: readonly PlannedPlugin[];
  readonly skipped: readonly Skipped[];
  /** Plugins of the document whose operation is gone. */
  readonly missing: readonly PluginRecord[];
  /** They are to be deleted. */
  readonly removesMissing: boolean;
}

export interface PlanOptions {
  /** All plugins of the tenant. */
  readonly plugins: readonly PluginRecord[];
  /** Is this the name of something that is no plugin of the tenant? */
  readonly isReserved: (name: string) => boolean;
  readonly egress: Pick<Egress, "checkUrl">;
  readonly pace: Pace;
  /** Names are what they are, and a faulty definition ends the import. */
  readonly isExact: boolean;
  /** Authentication that was set up here stays where the source says nothing about it. */
  readonly keepsAuth: boolean;
  readonly removeMissing: boolean;
}

/** @throws GatewayError for a faulty definition of an exact source */
export async function planImport(source: ReadSource, options: PlanOptions): Promise<ImportPlan> {
  const { plugins, isReserved, isExact, keepsAuth, pace } = options;
  const { id } = source.document;
  const byName = new Map(plugins.map((record) => [record.name, record]));
  const byKey = new Map(
    plugins.flatMap((record) =>
      id !== "" && sourceOf(record)?.document === id ? [[sourceOf(record)?.operation ?? "", record] as const] : [],
    ),
  );
  const existingOf = ({ key, wish }: Candidate): PluginRecord | undefined =>
    isExact ? byName.get(wish) : byKey.get(key);
  const names = assignNames(source.candidates, {
    known: isExact
      ? new Map(source.candidates.map(({ key }) => [key, key]))
      : new Map([...byKey].map(([key, record]) => [key, record.name])),
    isTaken: (name) => byName.has(name) || isReserved(name),
  });
  const planned: PlannedPlugin[] = [];
  const skipped: Skipped[] = [...source.skipped];
  for (const [index, candidate] of source.candidates.entries()) {
    await pace.turn();
    const name = names.get(candidate.key) ?? candidate.wish;
    if (isExact && isReserved(name)) throw nameTaken(name, index);
    const existing = existingOf(candidate);
    if (isExact && existing !== undefined && existing.type !== "HTTP") throw nameTaken(name, index);
    const kept = isExact || existing === undefined ? undefined : { before: definitionOf(existing), keepsAuth };
    const asked = kept === undefined ? candidate : withSetUpAuth(candidate, kept);
    const definition = complete(asked, { name, document: id, kept });
    try {
      const warnings = [...candidate.warnings, ...warningsOfName(candidate, name, existing)];
      planned.push({ ...compare(asked, { definition, existing, egress: options.egress }), warnings });
    } catch (error) {
      if (!(error instanceof GatewayError)) throw error;
      if (isExact) throw under(`definitions.${index}`, error);
      skipped.push({ key: candidate.key, label: candidate.label, reason: error.message });
    }
  }
  return {
    planned,
    skipped,
    missing: [...byKey].flatMap(([key, record]) => (source.present.has(key) ? [] : [record])),
    // A document without operations is more likely the wrong one.
    removesMissing: options.removeMissing && source.present.size > 0,
  };
}

export function sourceOf({
  executionConfig,
}: PluginRecord): { readonly document: string; readonly operation: string } | undefined {
  return "execution" in executionConfig ? executionConfig.source : undefined;
}

interface Completion {
  readonly name: string;
  readonly document: string;
  readonly kept: KeptDefinition | undefined;
}

interface KeptDefinition {
  readonly before: PluginDefinition;
  readonly keepsAuth: boolean;
}

/** With its name, its source, and what was decided here about the plugin that it replaces. */
function complete(candidate: Candidate, { name, document, kept }: Completion): JsonObject {
  const { definition, key } = candidate;
  const source = document === "" ? {} : { source: { document, operation: key } };
  return { ...(kept === undefined ? definition : withKeptFields(kept, definition)), name, ...source };
}

/** What was guessed gives way to what was set up here for the same places. */
function withSetUpAuth(candidate: Candidate, { before, keepsAuth }: KeptDefinition): Candidate {
  const { definition, auth } = candidate;
  const guessed = auth.isGuess === true ? authConfigSchema.safeParse(definition["auth_config"]).data : undefined;
  if (!keepsAuth || guessed === undefined || before.auth_config === undefined || !isSameOrigin(before, definition))
    return candidate;
  const places = new Set(authSlots(before.auth_config).map(placeOf));
  if (!authSlots(guessed).every((slot) => places.has(placeOf(slot)))) return candidate;
  const { auth_config: _guessed, ...rest } = definition;
  return { ...candidate, definition: rest, auth: noAuth };
}

/** Fields that no document sets: once set by hand they stay. */
const keptKeys = ["icon_url", "sensitive", "roles"] as const;
const keptExecutionKeys = ["headers", "idempotency_header", "effect", "timeout_ms", "max_attempts"] as const;

function withKeptFields({ before, keepsAuth }: KeptDefinition, definition: JsonObject): JsonObject {
  const fields = keptKeys.flatMap((key) => (before[key] === undefined ? [] : [[key, before[key]] as const]));
  const executionFields = keptExecutionKeys.flatMap((key) =>
    before.execution[key] === undefined ? [] : [[key, before.execution[key]] as const],
  );
  const execution = isJsonObject(definition["execution"]) ? definition["execution"] : {};
  const setUp = keepsAuth && isSameOrigin(before, definition) ? before.auth_config : undefined;
  return {
    ...(Object.fromEntries(fields) as JsonObject),
    ...(setUp === undefined ? {} : { auth_config: configToJson(setUp) }),
    ...definition,
    execution: { ...(Object.fromEntries(executionFields) as JsonObject), ...execution },
  };
}

/** A credential stays with its origin. */
function isSameOrigin(before: PluginDefinition, { execution }: JsonObject): boolean {
  return originOf(before.execution.base_url) === originOf(isJsonObject(execution) ? execution["base_url"] : undefined);
}

function originOf(address: JsonValue | undefined): string | undefined {
  return typeof address === "string" ? URL.parse(address)?.origin : undefined;
}

interface Comparison {
  readonly definition: JsonObject;
  readonly existing: PluginRecord | undefined;
  readonly egress: Pick<Egress, "checkUrl">;
}

function compare(candidate: Candidate, { definition, existing, egress }: Comparison): Omit<PlannedPlugin, "warnings"> {
  const plugin = registerPlugin(definition, {
    egress,
    enabled: existing?.enabled ?? true,
    row: { replaces: existing },
  });
  const after = definitionOf({ ...plugin, pluginId: 0, createdAt: 0, updatedAt: 0 });
  const isChanged = existing !== undefined && existing.hash !== plugin.hash;
  return {
    label: candidate.label,
    plugin,
    definition: after,
    existing,
    changedFields: isChanged ? changedFields(toJson(definitionOf(existing)), toJson(after)) : [],
    auth: candidate.auth,
  };
}

function warningsOfName({ wish, isNamed }: Candidate, name: string, existing: PluginRecord | undefined): string[] {
  if (isNamed !== true || name === wish) return [];
  return existing === undefined
    ? [`The name '${wish}' cannot be had; the tool is called '${name}'.`]
    : [`The tool was imported as '${name}' before and keeps that name.`];
}

/** Without the fields that are undefined. */
function toJson(definition: PluginDefinition): JsonValue {
  return JSON.parse(JSON.stringify(definition)) as JsonValue;
}

function nameTaken(name: string, index: number): GatewayError {
  return new GatewayError("conflict", `'${name}' is the name of a tool of another kind; take another name.`, {
    param: `definitions.${index}.name`,
  });
}
