/** Which requirements a test proves; read by contract/requirements.test.ts from the source text. */
import type { RequirementId } from "../contract/requirements.ts";

/** Names the requirements that the enclosing `describe` or test proves. Ids are checked by type and by the coverage test. */
export function verifies(...ids: readonly [RequirementId, ...RequirementId[]]): string {
  return `[${ids.join(" ")}]`;
}
