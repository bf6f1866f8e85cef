/**
 * Whose calls somebody listens to, as far as this process knows: `admit` and `claim` say so along with what
 * they are asked for, so that it costs no trip, and a tenant to whom nobody listens costs nothing here.
 */
import type { FlowRunRepo } from "../ports/flow-runs.ts";
import type { CallRepo } from "../ports/calls.ts";
import type { Listeners } from "./connection.ts";

/** Tenants kept; the one that was noted first goes first. */
const capacity = 10_000;

export interface ChangedCall {
  readonly tenant: string;
  readonly callId: string;
}

export class Listening {
  readonly #tenants = new Map<string, Listeners>();
  readonly #changed = new Map<string, string>();
  #onChange: () => void = () => undefined;

  /** Called when something has happened that somebody is to be told. */
  set onChange(callback: () => void) {
    this.#onChange = callback;
  }

  note(tenant: string, listeners: Listeners | undefined): void {
    if (listeners === undefined) {
      this.#tenants.delete(tenant);
      return;
    }
    this.#tenants.set(tenant, listeners);
    if (this.#tenants.size <= capacity) return;
    const oldest = this.#tenants.keys().next().value;
    if (oldest !== undefined) this.#tenants.delete(oldest);
  }

  hearsCalls(tenant: string): boolean {
    return this.#tenants.get(tenant)?.calls === true;
  }

  hearsLogs(tenant: string): boolean {
    return this.#tenants.get(tenant)?.logs === true;
  }

  hearsVcp(tenant: string): boolean {
    return this.#tenants.get(tenant)?.vcp === true;
  }

  changed(tenant: string, callId: string): void {
    if (this.#tenants.get(tenant)?.calls !== true) return;
    this.#changed.set(tenant, callId);
    this.#onChange();
  }

  /** A call of each tenant of which there is something to tell, once. */
  take(): readonly ChangedCall[] {
    const changed = [...this.#changed].map(([tenant, callId]) => ({ tenant, callId }));
    this.#changed.clear();
    return changed;
  }
}

/** A repository that notes who listens, and of whose calls there is something to tell. */
export function watchCalls(repo: CallRepo, listening: Listening): CallRepo {
  /** After `work`, whatever came of it. */
  const telling = async <T>(tenant: string, callId: string, work: Promise<T>): Promise<T> => {
    const result = await work;
    listening.changed(tenant, callId);
    return result;
  };
  return {
    ...repo,
    async admit(input) {
      const result = await repo.admit(input);
      listening.note(input.tenant, result.listeners);
      if (input.call !== undefined) listening.changed(input.tenant, input.call.id);
      return result;
    },
    async claim(tenant, id, options) {
      const claimed = await repo.claim(tenant, id, options);
      if (typeof claimed === "object" && "call" in claimed) listening.note(tenant, claimed.listeners);
      listening.changed(tenant, id);
      return claimed;
    },
    async record(tenant, callerId, calls, parent) {
      const results = await repo.record(tenant, callerId, calls, parent);
      for (const { id } of calls) listening.changed(tenant, id);
      return results;
    },
    settle: (tenant, input) => telling(tenant, input.callId, repo.settle(tenant, input)),
    finish: (tenant, id, attempt, finish) => telling(tenant, id, repo.finish(tenant, id, attempt, finish)),
    resolveUnknown: (tenant, id, finish) => telling(tenant, id, repo.resolveUnknown(tenant, id, finish)),
    park: (tenant, id, attempt, until) => telling(tenant, id, repo.park(tenant, id, attempt, until)),
    requestCancel: (tenant, id) => telling(tenant, id, repo.requestCancel(tenant, id)),
    decide: (tenant, id, decision) => telling(tenant, id, repo.decide(tenant, id, decision)),
  };
}

/** The same for what runs of flows write of their steps' calls. */
export function watchRuns(repo: FlowRunRepo, listening: Listening): FlowRunRepo {
  return {
    load: (...given) => repo.load(...given),
    changes: (...given) => repo.changes(...given),
    signal: (...given) => repo.signal(...given),
    lastDecided: (...given) => repo.lastDecided(...given),
    recordWithSteps: (...given) => repo.recordWithSteps(...given),
    async write(tenant, write) {
      const written = await repo.write(tenant, write);
      for (const { id } of [...write.calls, ...write.ends]) listening.changed(tenant, id);
      return written;
    },
  };
}
