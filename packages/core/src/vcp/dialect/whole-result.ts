/** The whole of a result whose outcome holds its words or its beginning only. */
import { openHandle } from "../../calls/open-handle.ts";
import type { CallContext } from "../../context.ts";
import type { CoreDeps } from "../../core-deps.ts";
import { toGatewayError } from "../../errors/gateway-error.ts";
import { parseJsonExactly } from "../../json.ts";
import { readAll } from "../../ports/blob-store.ts";
import { handleOf, type ToolOutcome } from "../../tools/outcome.ts";
import { partsMediaType } from "../plugins/reply.ts";
import { prettyJson } from "../pretty-json.ts";

/** Of larger results the words stay in the conversation, and media go into files; without media, all is behind the handle. */
const mostBytes = 8_388_608;

type ResultDeps = Pick<CoreDeps, "blobs" | "repos" | "log" | "clock">;

/** Of a result that is more than text; and of any, where `isWanted`. Undefined: the outcome's text is what there is. */
export async function wholeOf(
  deps: ResultDeps,
  context: CallContext,
  { outcome, isWanted = false }: { readonly outcome: ToolOutcome; readonly isWanted?: boolean },
): Promise<string | undefined> {
  const handle = handleOf(outcome);
  if (handle === undefined) return undefined;
  const { callId, bytes, mediaType } = handle;
  const isReadable = mediaType === partsMediaType || (isWanted && /^(?:text\/|.*json)/.test(mediaType));
  const isLarge = bytes > mostBytes;
  if (!isReadable || (isLarge && mediaType !== partsMediaType)) return undefined;
  try {
    const { body } = await openHandle(deps, context, callId);
    const text = Buffer.from(await readAll(body)).toString("utf8");
    return isLarge ? await withoutLargeMedia(deps, context, { callId, text }) : text;
  } catch (thrown) {
    deps.log.log("warn", "a whole result cannot be read", { call_id: callId, error: toGatewayError(thrown).code });
    return undefined;
  }
}

async function withoutLargeMedia(
  deps: ResultDeps,
  context: CallContext,
  { callId, text }: { readonly callId: string; readonly text: string },
): Promise<string | undefined> {
  const value = parseJsonExactly(text);
  if (value === undefined) return undefined;
  const { withMediaApart } = await import("./large-media.ts");
  const rest = prettyJson(await withMediaApart(deps, context, { callId, value, inline: mostBytes }));
  // With the media that stay.
  return rest.length > 2 * mostBytes ? undefined : rest;
}
