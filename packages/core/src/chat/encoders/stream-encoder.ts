/** From events to the bytes of an event stream; undefined where an event does not show. */
import type { ChatEvent } from "../events.ts";

export type StreamEncoder = (event: ChatEvent) => string | Uint8Array | undefined;
