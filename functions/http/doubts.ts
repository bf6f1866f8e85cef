/** What requests have met here that readiness looks at only now and then: it has to be shown that it works again. */
import type { CoreDeps } from "@toolyard/core/core-deps";
import type { ErrorCode } from "@toolyard/core/errors/catalog";

const doubts = new WeakMap<CoreDeps, Set<ErrorCode>>();

export function doubt(core: CoreDeps, code: ErrorCode): void {
  const known = doubts.get(core);
  if (known === undefined) doubts.set(core, new Set([code]));
  else known.add(code);
}

/** Whether a request has failed so since this was asked last. */
export function takeDoubt(core: CoreDeps, code: ErrorCode): boolean {
  return doubts.get(core)?.delete(code) === true;
}
