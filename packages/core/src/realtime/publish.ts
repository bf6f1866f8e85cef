/**
 * Tells connections what no change of a call says by itself: one connection, a user, a session, a kind of
 * client or a whole tenant. Written as rows like the events of calls, so it reaches them in every home and
 * survives the process that said it; nothing is written where nobody is there.
 */
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { JsonObject } from "../json.ts";
import type { NewEvent } from "./connection.ts";
import type { Publication } from "./publication.ts";

/** Leaves room for the rest of the frame. */
const longestData = 31_000;

/**
 * @returns for how many of them somebody is there
 * @throws GatewayError `payload_too_large` for data that is too large and about no call
 */
export function publish(
  { repos }: Pick<CoreDeps, "repos">,
  tenant: string,
  publications: readonly Publication[],
): Promise<number> {
  return repos.connections.publish(tenant, publications.map(toNewEvent));
}

/** @throws GatewayError `payload_too_large` as `publish` */
export function toNewEvent({ type, audience, data, bare, callId, callerId, sessionId }: Publication): NewEvent {
  const text = toData(data, callId);
  return {
    type,
    audience,
    data: text,
    ...(bare === true ? { frame: text } : {}),
    callId: callId ?? null,
    callerId: callerId ?? null,
    sessionId: sessionId ?? null,
  };
}

function toData(data: JsonObject, callId: string | undefined): string {
  const text = JSON.stringify(data);
  if (Buffer.byteLength(text) <= longestData) return text;
  const { type } = data;
  const shown = typeof type === "string" ? { type } : {};
  if (callId !== undefined)
    return JSON.stringify({ ...shown, id: callId, truncated: true, url: `/v1/calls/${callId}` });
  throw new GatewayError("payload_too_large", `What is pushed to connections has at most ${longestData} bytes.`);
}
