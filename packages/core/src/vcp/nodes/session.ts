/** A client of VCP that is connected, as its socket and its gateway see it: both sides say things to a session. */
import type { JsonObject } from "../../json.ts";

/** To the client. */
export interface VcpSocket {
  /** Never throws. @returns false: it takes nothing more and is at its end */
  send(frame: JsonObject): boolean;
  close(code: number, reason: string): void;
}

/** To the gateway: a message of `/ws` and its answer. */
export interface VcpGateway {
  ask(message: JsonObject): Promise<JsonObject>;
}

export interface VcpSession {
  /** The socket is open. */
  open(): Promise<void>;
  /** The client says something. */
  receive(text: string): void;
  /** The gateway says something that is no answer. */
  hear(frame: JsonObject): void;
  /** The socket has closed. */
  end(): Promise<void>;
}

/** Frames of an answer to a message of VCP's (vcp/nodes/messages.ts). */
export function framesOf(answer: JsonObject): JsonObject[] {
  const { frames, error } = answer;
  if (Array.isArray(frames))
    return frames.filter((frame) => typeof frame === "object" && frame !== null) as JsonObject[];
  return error === undefined ? [] : [{ type: "error", data: error }];
}
