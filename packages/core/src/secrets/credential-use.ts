/**
 * Which uses of credentials are still to be recorded. The store keeps the minute of the last one, so a process that
 * has told it within the minute has nothing to add; telling would cost each call a statement.
 */
import type { TenantConfig } from "../tenant-config.ts";

const tellAgainMs = 60_000;
/** Users of one tenant between two changes of its configuration; beyond, all are told again. */
const mostKnown = 10_000;

/** When each was told last; whatever is stored anew comes with another configuration. */
const told = new WeakMap<TenantConfig, Map<string, number>>();

/** Of credentials that a call has used on a user's behalf, those whose use the store has not heard of lately. */
export function usesToTell(
  config: TenantConfig,
  {
    names,
    userId,
    now,
  }: { readonly names: readonly string[]; readonly userId: string | undefined; readonly now: number },
): readonly string[] {
  if (names.length === 0) return names;
  let known = told.get(config);
  if (known === undefined || known.size > mostKnown) told.set(config, (known = new Map<string, number>()));
  const times = known;
  return names.filter((name) => {
    const key = `${name} ${userId ?? ""}`;
    const before = times.get(key);
    if (before !== undefined && now - before < tellAgainMs && now >= before) return false;
    times.set(key, now);
    return true;
  });
}
