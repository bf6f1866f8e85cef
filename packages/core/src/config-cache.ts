/**
 * Tenant snapshots in memory, one per tenant, keyed by the version that `admit` returned. A change
 * anywhere raises the version, so the next request on any instance loads the new snapshot.
 */
import { GatewayError } from "./errors/gateway-error.ts";
import type { PluginRecord } from "./blind/plugin.ts";
import type { Caller } from "./callers/caller.ts";
import type { ToolService } from "./services/service.ts";
import type { ConfigRepo } from "./ports/repos.ts";
import type { TenantConfig } from "./tenant-config.ts";

/** Snapshots kept; the least recently used tenant goes first. */
const capacity = 1_000;

export class ConfigCache {
  readonly #repo: ConfigRepo;
  readonly #prepare: (config: TenantConfig) => Promise<void>;
  readonly #snapshots = new Map<string, TenantConfig>();
  readonly #callers = new Map<string, { readonly version: number; readonly caller: Caller }>();
  readonly #loading = new Map<string, Promise<TenantConfig>>();

  /** @param prepare done with a snapshot before anybody gets it */
  constructor(repo: ConfigRepo, prepare: (config: TenantConfig) => Promise<void> = () => Promise.resolve()) {
    this.#repo = repo;
    this.#prepare = prepare;
  }

  /** What this process last saw, possibly old; whoever uses it admits with `expectedConfigVersion`. */
  peek(tenant: string): TenantConfig | undefined {
    return this.#snapshots.get(tenant);
  }

  /** The snapshot at `version` or newer; no round trip where it is known. */
  async get(tenant: string, version: number): Promise<TenantConfig> {
    const known = this.#snapshots.get(tenant);
    if (known !== undefined && known.version >= version) {
      this.#snapshots.delete(tenant);
      this.#snapshots.set(tenant, known);
      return known;
    }
    const running = this.#loading.get(tenant);
    if (running !== undefined) {
      const config = await running;
      if (config.version >= version) return config;
    }
    return this.#load(tenant);
  }

  /** Whose key this is, as of a version; keys are part of the configuration, so a change raises it. */
  callerOf(keyHash: string, version: number): Caller | undefined {
    const known = this.#callers.get(keyHash);
    return known?.version === version ? known.caller : undefined;
  }

  rememberCaller(keyHash: string, version: number, caller: Caller): void {
    this.#callers.delete(keyHash);
    this.#callers.set(keyHash, { version, caller });
    if (this.#callers.size > capacity) {
      const oldest = this.#callers.keys().next().value;
      if (oldest !== undefined) this.#callers.delete(oldest);
    }
  }

  #load(tenant: string): Promise<TenantConfig> {
    const loading = this.#repo.load(tenant).then(async (loaded) => {
      if (loaded === undefined) throw new GatewayError("not_found", `There is no tenant '${tenant}'.`);
      await this.#prepare(loaded);
      const config = keepKnown(loaded, this.#snapshots.get(tenant));
      this.#snapshots.delete(tenant);
      this.#snapshots.set(tenant, config);
      if (this.#snapshots.size > capacity) {
        const oldest = this.#snapshots.keys().next().value;
        if (oldest !== undefined) this.#snapshots.delete(oldest);
      }
      return config;
    });
    this.#loading.set(tenant, loading);
    const done = (): void => {
      if (this.#loading.get(tenant) === loading) this.#loading.delete(tenant);
    };
    loading.then(done, done);
    return loading;
  }
}

/**
 * Plugins and services that are as they were stay the same objects: what was compiled from them, tools and
 * plans and validators, is found by the object, and a tenant may have a thousand of them.
 */
function keepKnown(loaded: TenantConfig, before: TenantConfig | undefined): TenantConfig {
  if (before === undefined) return loaded;
  const plugins = new Map(before.plugins.map((record) => [record.pluginId, record]));
  const services = new Map(before.services.map((record) => [record.id, record]));
  return {
    ...loaded,
    plugins: loaded.plugins.map((record) => sameRecord(record, plugins.get(record.pluginId))),
    services: loaded.services.map((record) => sameService(record, services.get(record.id))),
  };
}

function sameRecord(record: PluginRecord, known: PluginRecord | undefined): PluginRecord {
  const isSame =
    known?.hash === record.hash && known.updatedAt === record.updatedAt && known.enabled === record.enabled;
  return isSame ? known : record;
}

function sameService(record: ToolService, known: ToolService | undefined): ToolService {
  const isSame =
    known?.version === record.version &&
    known.updatedAt === record.updatedAt &&
    known.discovered?.at === record.discovered?.at;
  return isSame ? known : record;
}
