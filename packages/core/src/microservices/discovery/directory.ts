/**
 * Instances of services that a registry knows (SVC-3): asked for at the first call, kept, and asked for
 * again when they are old. One question at a time for each service; a registry that does not answer, or has
 * lost everything, leaves the last list in force for a while. Kept by each process for itself.
 */
import { toGivenUp } from "../../blind/egress-errors.ts";
import { credentialVersions } from "../../services/held-connections.ts";
import type { OpenService, SchemeDeps } from "../../services/scheme.ts";
import { withDelivery } from "../../errors/delivery.ts";
import type { InvocationContext } from "../../tools/tool-call.ts";
import type { SvcConfig } from "../config.ts";
import { instanceHostSchema, mostInstances, portSchema } from "../fields.ts";
import type { Instance } from "../instance.ts";
import { createConsul } from "./consul.ts";
import type { Discovery } from "./fields.ts";
import { createKubernetes } from "./kubernetes.ts";
import { createNacos } from "./nacos.ts";
import { asNotSent, type Registry } from "./registry.ts";

/** Services of which something is kept. */
const most = 2_000;
/** Milliseconds after which a registry that failed is asked again, at most. */
const againMs = 5_000;
/** Milliseconds that calls wait for a registry where there is a list to go on with. */
const patienceMs = 1_000;

interface Entry {
  readonly registry: Registry;
  instances: readonly Instance[] | undefined;
  /** When the list came, and when the registry is to be asked next; milliseconds of the clock. */
  at: number;
  nextAt: number;
  asking: Promise<readonly Instance[]> | undefined;
}

type Deps = Pick<SchemeDeps, "egress" | "credentials" | "clock" | "log">;

export class Directory {
  readonly #deps: Deps;
  readonly #entries = new Map<string, Entry>();

  constructor(deps: Deps) {
    this.#deps = deps;
  }

  /** @throws GatewayError what the registry says, where there is no list to go on with; `not_sent` */
  instancesOf(service: OpenService<SvcConfig>, context: InvocationContext): Promise<readonly Instance[]> {
    const { endpoints, discovery } = service.config;
    if (discovery === undefined) return Promise.resolve(endpoints ?? []);
    const entry = this.#entryOf(service, discovery, context);
    if (entry.instances !== undefined && this.#deps.clock.now() < entry.nextAt) return Promise.resolve(entry.instances);
    entry.asking ??= this.#ask(entry, discovery, context);
    return waitFor(entry.asking, context.signal);
  }

  /** A registry that hangs holds up one call for a moment, and none while it goes on doing so. */
  #ask(entry: Entry, discovery: Discovery, context: InvocationContext): Promise<readonly Instance[]> {
    const kept = this.#keptIn(entry, discovery);
    const ended = new AbortController();
    const answer = this.#refresh(entry, discovery, context).finally(() => {
      entry.asking = undefined;
      ended.abort();
    });
    if (kept.length === 0) return answer;
    const late = this.#deps.clock.sleep(patienceMs, ended.signal).then(
      () => kept,
      () => answer,
    );
    return Promise.race([answer, late]);
  }

  async #refresh(entry: Entry, discovery: Discovery, context: InvocationContext): Promise<readonly Instance[]> {
    const { clock, log } = this.#deps;
    let failure: unknown;
    try {
      const found = this.#usable(await entry.registry.instances(context), discovery);
      if (found.length > 0 || entry.instances === undefined) {
        entry.instances = found;
        entry.at = clock.now();
        // Nothing is no list to keep: the next call asks again.
        entry.nextAt = found.length === 0 ? entry.at : entry.at + discovery.refresh_ms;
        return found;
      }
    } catch (error) {
      failure = error;
    }
    const kept = this.#keptIn(entry, discovery);
    if (kept.length > 0) {
      log.log("warn", "a registry has no instances to give; the last list stays in force", {
        registry: discovery.type,
        service: discovery.service,
        instances: kept.length,
      });
      entry.nextAt = clock.now() + Math.min(againMs, discovery.refresh_ms);
      return kept;
    }
    entry.instances = undefined;
    if (failure !== undefined) throw asNotSent(failure);
    return [];
  }

  /** What may be called although the registry says nothing; empty where it is nothing, or too old. */
  #keptIn({ instances = [], at }: Entry, { keep_ms: keepMs }: Discovery): readonly Instance[] {
    return this.#deps.clock.now() - at <= keepMs ? instances : [];
  }

  #usable(named: readonly Instance[], { type: registry, service }: Discovery): readonly Instance[] {
    const found: Instance[] = [];
    for (const instance of named) {
      if (!isUsable(instance)) continue;
      if (found.length === mostInstances) {
        this.#deps.log.log(
          "warn",
          "a registry has more instances of a service than are used; the first of them are called",
          {
            registry,
            service,
            instances: named.length,
          },
        );
        break;
      }
      found.push(instance);
    }
    return found;
  }

  #entryOf({ record }: OpenService<SvcConfig>, discovery: Discovery, context: InvocationContext): Entry {
    const key = JSON.stringify([context.tenant, record.id, record.version, credentialVersions(record, context)]);
    const known = this.#entries.get(key);
    if (known !== undefined) {
      this.#entries.delete(key);
      this.#entries.set(key, known);
      return known;
    }
    const entry: Entry = {
      registry: this.#registryOf(discovery),
      instances: undefined,
      at: 0,
      nextAt: 0,
      asking: undefined,
    };
    this.#entries.set(key, entry);
    const oldest = this.#entries.keys().next().value;
    if (this.#entries.size > most && oldest !== undefined) this.#entries.delete(oldest);
    return entry;
  }

  #registryOf(discovery: Discovery): Registry {
    switch (discovery.type) {
      case "consul":
        return createConsul(discovery, this.#deps);
      case "nacos":
        return createNacos(discovery, this.#deps);
      case "kubernetes":
        return createKubernetes(discovery, this.#deps);
      default:
        return discovery satisfies never;
    }
  }
}

/** What a registry says goes into addresses, so it has to be one. */
function isUsable({ host, port }: Instance): boolean {
  return instanceHostSchema.safeParse(host).success && portSchema.safeParse(port).success;
}

/** Others wait for the same answer, so a call that ends does not end the question. */
function waitFor<Found>(asking: Promise<Found>, signal: AbortSignal): Promise<Found> {
  return new Promise((resolve, reject) => {
    const giveUp = (): void => reject(withDelivery(toGivenUp(signal.reason), "not_sent"));
    if (signal.aborted) giveUp();
    signal.addEventListener("abort", giveUp, { once: true });
    asking.then(resolve, reject).finally(() => signal.removeEventListener("abort", giveUp));
  });
}
