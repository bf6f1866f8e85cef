/**
 * What clients of VCP say, as messages of `/ws` (VCP-13): the sockets at VCP's own paths and the bridge translate
 * into these and nothing else, so that what they can do is the same in every home. The work is
 * read where a frame comes: it is no part of what starts with a process.
 */
import * as z from "zod";
import { isJsonObject, type JsonObject } from "../../json.ts";
import { defineMessage } from "../../realtime/message-kind.ts";

const id = z.string().min(1).max(64);
const frame = z.custom<JsonObject>(isJsonObject, "must be an object");
const waiting = z
  .array(z.strictObject({ requestId: z.string().max(200), sourceClientId: z.string().max(200) }))
  .max(100);

export const vcpMessages = {
  /** A frame as the client has sent it; answered with frames for it. */
  "vcp.frame": defineMessage({
    schema: z.strictObject({
      type: z.literal("vcp.frame"),
      id: id.optional(),
      frame,
      /** Of an observer of Chrome: who waits for what its page shows. */
      waiting: waiting.default([]),
    }),
    async answer(deps, connection, { frame: said, waiting: whoWaits }) {
      const { takeFrame } = await import("./client-frames.ts");
      return { type: "vcp.received", frames: await takeFrame(deps, connection, said, whoWaits) };
    },
  }),
  /** What a person is asked about a call that waits. */
  "vcp.approval": defineMessage({
    schema: z.strictObject({ type: z.literal("vcp.approval"), id: id.optional(), call_id: z.string().max(64) }),
    async answer(deps, connection, { call_id: callId }) {
      const { approvalFrames } = await import("./client-frames.ts");
      return { type: "vcp.received", frames: await approvalFrames(deps, connection, callId) };
    },
  }),
  /** What the device of this connection has missed. */
  "vcp.replay": defineMessage({
    schema: z.strictObject({ type: z.literal("vcp.replay"), id: id.optional() }),
    async answer(deps, connection) {
      const { missedFrames } = await import("./client-frames.ts");
      return { type: "vcp.received", frames: await missedFrames(deps, connection) };
    },
  }),
} as const;
