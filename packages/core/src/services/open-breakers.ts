/**
 * Breakers that instances have opened, as far as this process knows (design "Limits"): `admit` and `claim` say
 * it along with what they are asked for, so that a call finds out what others know at no trip of its own. Kept
 * by tenant; while nothing fails there is nothing here.
 */
import type { CallRepo } from "../ports/calls.ts";
import type { OpenBreaker } from "../ports/tool-services.ts";

interface Seen {
  /** `performance.now()` before the database was asked: whatever was stored by then has been seen. */
  readonly asOf: number;
  /** By service. */
  readonly breakers: ReadonlyMap<string, { readonly version: number; readonly until: number }>;
}

/** Tenants kept; the one that was noted first goes first. */
const capacity = 10_000;

export class OpenBreakers {
  readonly #tenants = new Map<string, Seen>();

  /** @param asOf `performance.now()` before the database was asked */
  note(tenant: string, open: readonly OpenBreaker[], asOf: number): void {
    const known = this.#tenants.get(tenant);
    if (known !== undefined && known.asOf > asOf) return;
    const now = performance.now();
    const breakers = new Map(open.map(({ service, version, leftMs }) => [service, { version, until: now + leftMs }]));
    this.#tenants.set(tenant, { asOf, breakers });
    if (this.#tenants.size <= capacity) return;
    const oldest = this.#tenants.keys().next().value;
    if (oldest !== undefined) this.#tenants.delete(oldest);
  }

  /** Milliseconds until it may be tried, 0 or less: now; undefined: it is not open. */
  leftMs(tenant: string, service: string, version: number): number | undefined {
    const open = this.#tenants.get(tenant)?.breakers.get(service);
    return open?.version === version ? open.until - performance.now() : undefined;
  }

  /** What was stored before this time has been seen by now; 0: nothing has. */
  asOf(tenant: string): number {
    return this.#tenants.get(tenant)?.asOf ?? 0;
  }
}

/** A repository that notes which breakers are open. */
export function watchBreakers(repo: CallRepo, open: OpenBreakers): CallRepo {
  return {
    ...repo,
    async admit(input) {
      const asOf = performance.now();
      const result = await repo.admit(input);
      open.note(input.tenant, result.openBreakers ?? [], asOf);
      return result;
    },
    async claim(tenant, id, options) {
      const asOf = performance.now();
      const claimed = await repo.claim(tenant, id, options);
      if (typeof claimed === "object" && "call" in claimed) open.note(tenant, claimed.openBreakers ?? [], asOf);
      return claimed;
    },
  };
}
