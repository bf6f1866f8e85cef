/**
 * Runs a static plugin for its value (VCP specification s. 3.3; VCP-20). Of all instances one does, under a lease;
 * a value that was fine stays where a run gives none, and says why.
 */
import { createHash } from "node:crypto";
import type { CoreDeps } from "../../core-deps.ts";
import { nextFiring } from "../../cron.ts";
import { toGatewayError } from "../../errors/gateway-error.ts";
import type { PluginExit } from "../../ports/plugin-runner.ts";
import { tenantKey } from "../../ports/blob-store.ts";
import type { Refreshed, StoredStaticValue } from "../../ports/vcp-static-values.ts";
import { Redactor } from "../../secrets/redactor.ts";
import type { TenantConfig } from "../../tenant-config.ts";
import { quote } from "../plugins/outcome.ts";
import { longestRunMs } from "../plugins/plugin-types.ts";
import { runPlugin } from "../plugins/run.ts";
import { askForRefresh, pluginSource } from "./source-message.ts";
import { isEager, isStale, staticPluginsOf, type StaticPlugin } from "./static-plugin.ts";

/** Characters of a value that lie in its row; what is longer is a blob. */
const longestInRow = 16_384;
const longestOutput = 1_048_576;
/** Beside the run itself. */
const leaseSlackMs = 30_000;

/** What an empty output comes to where there is no value from before. */
export const nothingSaid = "data currently unavailable";

/** Carries out one message. Doing it again finds the value fresh. */
export async function refreshSource(deps: CoreDeps, tenant: string, source: string): Promise<void> {
  const row = await deps.repos.tenants.get(tenant);
  if (row === undefined || row.status !== "active") return;
  const config = await deps.configs.get(tenant, row.configVersion);
  const plugin = staticPluginsOf(config).find(({ name }) => pluginSource(name) === source);
  if (plugin === undefined) return forget(deps, tenant, source);
  const claimed = await claim(deps, config, plugin);
  if (claimed === undefined) return;
  const result = await runForValue(deps, config, plugin);
  await store(deps, config, { plugin, result });
}

/** The plugin is gone, or switched off. */
async function forget({ repos, blobs }: CoreDeps, tenant: string, source: string): Promise<void> {
  const { values } = await repos.vcpStaticValues.list(tenant);
  await repos.vcpStaticValues.remove(tenant, source);
  for (const value of values) {
    if (value.source === source && value.blobKey !== null) await blobs.delete(value.blobKey);
  }
}

async function claim(
  { repos }: CoreDeps,
  { tenant, settings }: TenantConfig,
  plugin: StaticPlugin,
): Promise<StoredStaticValue | undefined> {
  const source = pluginSource(plugin.name);
  const { values, now } = await repos.vcpStaticValues.list(tenant);
  const stored = values.find((value) => value.source === source);
  if (!isStale(plugin, stored, { now, timeZone: settings.time_zone })) return undefined;
  return repos.vcpStaticValues.claim(tenant, {
    source,
    version: plugin.version,
    leaseMs: limitOf(plugin) + leaseSlackMs,
    // Unless somebody has refreshed it since it was looked at.
    freshSince: (stored?.refreshedAt ?? 0) + 1,
  });
}

function limitOf({ plugin }: StaticPlugin): number {
  return Math.min(plugin.manifest.timeoutMs, longestRunMs);
}

type ValueResult = { readonly text: string } | { readonly error: string };

async function runForValue(deps: CoreDeps, config: TenantConfig, plugin: StaticPlugin): Promise<ValueResult> {
  const redactor = new Redactor();
  try {
    const exit = await runPlugin(deps, { tenant: config.tenant, config, redactor }, plugin.plugin, {
      stdin: "",
      timeoutMs: limitOf(plugin),
      maxOutputBytes: longestOutput,
    });
    const result = valueOf(exit, limitOf(plugin), redactor);
    return "text" in result ? { text: redactor.redact(result.text) } : { error: redactor.redact(result.error) };
  } catch (thrown) {
    const error = toGatewayError(thrown);
    if (error.code === "internal_error") throw thrown;
    return { error: redactor.redact(error.message) };
  }
}

/** Pure. Whatever it prints is the value; one that is stopped at its time limit has said what it had to say. */
export function valueOf(
  { ended, exitCode, stdout, stderr }: PluginExit,
  limitMs: number,
  redactor: Redactor,
): ValueResult {
  const text = stdout.trim();
  switch (ended) {
    case "exit":
      if (exitCode === 0) return text === "" ? { error: nothingSaid } : { text };
      return { error: `it exited with code ${exitCode}${complaintOf(stderr, redactor)}` };
    case "timeout":
      return text === "" ? { error: `it said nothing within ${limitMs} ms${complaintOf(stderr, redactor)}` } : { text };
    case "output":
      return { error: `it printed more than ${longestOutput} bytes` };
    case "spawn":
      return { error: `it could not be started${complaintOf(stderr, redactor)}` };
    case "aborted":
      return { error: "it was stopped" };
    default:
      return ended satisfies never;
  }
}

function complaintOf(stderr: string, redactor: Redactor): string {
  const text = quote(stderr, redactor);
  return text === "" ? "" : `: ${text}`;
}

async function store(
  deps: CoreDeps,
  config: TenantConfig,
  { plugin, result }: { readonly plugin: StaticPlugin; readonly result: ValueResult },
): Promise<void> {
  const { tenant } = config;
  const refreshed: Refreshed = {
    source: pluginSource(plugin.name),
    version: plugin.version,
    error: "error" in result ? result.error : null,
    nextAt: nextAt(deps, config, plugin),
    ...("text" in result ? { value: await place(deps, tenant, { plugin, text: result.text }) } : {}),
  };
  if ("error" in result) {
    deps.log.log("warn", "a static plugin gave no value", { tenant, plugin: plugin.name, reason: result.error });
  }
  const replaced = await deps.repos.vcpStaticValues.store(tenant, refreshed);
  if (replaced !== undefined) await deps.blobs.delete(replaced);
}

async function place(
  { blobs }: CoreDeps,
  tenant: string,
  { plugin, text }: { readonly plugin: StaticPlugin; readonly text: string },
): Promise<Pick<StoredStaticValue, "value" | "blobKey">> {
  if (text.length <= longestInRow) return { value: text, blobKey: null };
  const hash = createHash("sha256").update(text).digest("hex");
  const blobKey = tenantKey(tenant, "vcp-static", plugin.name, hash);
  await blobs.put(blobKey, Buffer.from(text, "utf8"), { mediaType: "text/plain; charset=utf-8" });
  return { value: null, blobKey };
}

function nextAt({ clock }: CoreDeps, { settings }: TenantConfig, { plugin }: StaticPlugin): number | null {
  const { refreshIntervalCron: cron } = plugin.manifest;
  if (cron === undefined || !isEager(plugin)) return null;
  return nextFiring(cron, clock.now(), { timeZone: settings.time_zone }) ?? null;
}

/** Of the tick: eager plugins whose time has come are given to workers. */
export async function refreshDue(deps: CoreDeps, limit: number): Promise<void> {
  const offerAgainMs = longestRunMs + leaseSlackMs;
  for (const { tenant, source } of await deps.repos.vcpStaticValues.due({ limit, offerAgainMs })) {
    await askForRefresh(deps, { tenant, source, expectedMs: longestRunMs });
  }
}
