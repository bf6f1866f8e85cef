/**
 * One vault that wraps, and one of another kind that wrapped before it: from a master key of one's own to
 * KMS and back, without a moment in which something cannot be read.
 */
import type { KeyVault } from "@toolyard/core/ports/key-vault";

/** @param isCurrents whether the current vault wrapped this; `previous` is asked for everything else */
export function createRotatingKeyVault(options: {
  readonly current: KeyVault;
  readonly previous: KeyVault;
  readonly isCurrents: (wrapped: string) => boolean;
}): KeyVault {
  const { current, previous, isCurrents } = options;
  return {
    currentKeyId: current.currentKeyId,
    wrap: (tenant, key) => current.wrap(tenant, key),
    unwrap: (tenant, wrapped) => (isCurrents(wrapped) ? current : previous).unwrap(tenant, wrapped),
  };
}
