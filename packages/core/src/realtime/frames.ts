/**
 * Events as frames. A frame has at most 32 KiB, which is what API Gateway lets through in one piece; of a
 * larger one its data is left out, and it says where the call can be read.
 */
import { isJsonObject, parseJson, type JsonObject, type JsonValue } from "../json.ts";
import type { RealtimeEvent } from "./connection.ts";

export const longestFrame = 32_768;

/** Bytes of what a client or node says in one message, and of what may be told them: API Gateway takes no more. */
export const longestMessage = 131_072;

/** @param names of the subscriptions because of which it is sent; none where it is addressed otherwise */
export function toFrame({ body, callId }: RealtimeEvent, names: readonly string[]): string {
  const because = names.length === 0 ? "" : `,"subscriptions":${JSON.stringify(names)}`;
  const frame = `${body.slice(0, -1)}${because}}`;
  if (Buffer.byteLength(frame) <= longestFrame) return frame;
  return JSON.stringify({ ...withoutData(body, callId), ...(names.length === 0 ? {} : { subscriptions: names }) });
}

function withoutData(body: string, callId: string | null): JsonObject {
  const whole = parseJson(body);
  const { data, ...rest } = isJsonObject(whole) ? whole : {};
  const known: Record<string, JsonValue> = {};
  for (const name of ["object", "kind", "state"]) {
    const value = isJsonObject(data) ? data[name] : undefined;
    if (typeof value === "string") known[name] = value;
  }
  return {
    ...rest,
    data: callId === null ? known : { id: callId, ...known },
    truncated: true,
    ...(callId === null ? {} : { url: `/v1/calls/${callId}` }),
  };
}
