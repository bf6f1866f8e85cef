/**
 * Tenant snapshots in memory, one per tenant, keyed by the version that `admit` returned. A change
 * anywhere raises the version, so the next request on any instance loads the new snapshot.
 */
import { GatewayError } from "./errors/gateway-error.ts";
import type { PluginRecord } from "./blind/plugin.ts";
import type { Caller } from "./callers/caller.ts";
import { isJsonObject, type JsonObject } from "./json.ts";
import type { ToolService } from "./services/service.ts";
import type { ConfigRepo } from "./ports/tenants.ts";
import type { TenantConfig } from "./tenant-config.ts";

/** Snapshots kept; the least recently used tenant goes first. */
const capacity = 1_000;
/** Tools in all of them together. With what is made of it one takes some 8 KB, and a tenant may have thousands. */
const toolCapacity = 20_000;

export class ConfigCache {
  readonly #repo: ConfigRepo;
  readonly #prepare: (config: TenantConfig) => Promise<void>;
  readonly #snapshots = new Map<string, TenantConfig>();
  #tools = 0;
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
  get(tenant: string, version: number): TenantConfig | Promise<TenantConfig> {
    const known = this.#snapshots.get(tenant);
    if (known !== undefined && known.version >= version) {
      this.#snapshots.delete(tenant);
      this.#snapshots.set(tenant, known);
      return known;
    }
    const running = this.#loading.get(tenant);
    if (running === undefined) return this.#load(tenant);
    return running.then((config) => (config.version >= version ? config : this.#load(tenant)));
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
      this.#forget(tenant);
      this.#snapshots.set(tenant, config);
      this.#tools += toolsIn(config);
      this.#makeRoom();
      return config;
    });
    this.#loading.set(tenant, loading);
    const done = (): void => {
      if (this.#loading.get(tenant) === loading) this.#loading.delete(tenant);
    };
    loading.then(done, done);
    return loading;
  }

  /** The one that came last stays, however large it is. */
  #makeRoom(): void {
    for (const oldest of this.#snapshots.keys()) {
      const isTooMuch = this.#snapshots.size > capacity || this.#tools > toolCapacity;
      if (!isTooMuch || this.#snapshots.size === 1) return;
      this.#forget(oldest);
    }
  }

  #forget(tenant: string): void {
    const known = this.#snapshots.get(tenant);
    if (known === undefined) return;
    this.#snapshots.delete(tenant);
    this.#tools -= toolsIn(known);
  }
}

/** As far as it can be told without making any. */
function toolsIn({ plugins, services }: TenantConfig): number {
  const configured = ({ tools }: JsonObject): number => (isJsonObject(tools) ? Object.keys(tools).length : 0);
  const ofService = ({ discovered, config }: ToolService): number => discovered?.tools.length ?? configured(config);
  return plugins.length + services.reduce((sum, service) => sum + ofService(service), 0);
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
