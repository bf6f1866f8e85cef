/** The whole of a result whose outcome holds its words or its beginning only. */
import { openHandle } from "../../calls/open-handle.ts";
import type { CallContext } from "../../context.ts";
import type { CoreDeps } from "../../deps.ts";
import { toGatewayError } from "../../errors/gateway-error.ts";
import { readAll } from "../../ports/blob-store.ts";
import type { ToolOutcome } from "../../tools/outcome.ts";
import { partsMediaType } from "../plugins/reply.ts";

/** Larger results stay behind their handle. */
const mostBytes = 8_388_608;

/** Of a result that is more than text; and of any, where `isWanted`. Undefined: the outcome's text is what there is. */
export async function wholeOf(
  deps: Pick<CoreDeps, "blobs" | "repos" | "log">,
  context: CallContext,
  { outcome, isWanted = false }: { readonly outcome: ToolOutcome; readonly isWanted?: boolean },
): Promise<string | undefined> {
  const handle =
    outcome.kind === "completed" ? outcome.handle : outcome.kind === "pending" ? outcome.first?.handle : undefined;
  if (handle === undefined) return undefined;
  const { callId, bytes, mediaType } = handle;
  const isReadable = mediaType === partsMediaType || (isWanted && /^(?:text\/|.*json)/.test(mediaType));
  if (!isReadable || bytes > mostBytes) return undefined;
  try {
    const { body } = await openHandle(deps, context, callId);
    return Buffer.from(await readAll(body)).toString("utf8");
  } catch (thrown) {
    deps.log.log("warn", "a whole result cannot be read", { call_id: callId, error: toGatewayError(thrown).code });
    return undefined;
  }
}
