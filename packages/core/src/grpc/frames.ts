/** Length-prefixed messages of gRPC: a flag for compression, four bytes of length, the message. */
import { gunzipSync } from "node:zlib";

export function toFrame(message: Uint8Array): Uint8Array {
  const frame = Buffer.alloc(5 + message.byteLength);
  frame.writeUInt32BE(message.byteLength, 1);
  frame.set(message, 5);
  return frame;
}

/** A message is larger than whoever reads it takes. */
export class MessageTooLarge extends Error {
  override readonly name = "MessageTooLarge";
}

/** What came is no gRPC. */
export class BadFrame extends Error {
  override readonly name = "BadFrame";
}

export interface FrameOptions {
  readonly maxBytes: number;
  /** Value of `grpc-encoding`. */
  readonly encoding: string;
}

/** @throws MessageTooLarge before it has been read, BadFrame; what the body throws */
export async function* readFrames(body: AsyncIterable<Uint8Array>, options: FrameOptions): AsyncGenerator<Uint8Array> {
  let parts: Uint8Array[] = [];
  let size = 0;
  let wanted = 5;
  for await (const piece of body) {
    parts.push(piece);
    size += piece.byteLength;
    if (size < wanted) continue;
    let buffer = Buffer.concat(parts, size);
    while (buffer.length >= 5) {
      const length = buffer.readUInt32BE(1);
      if (length > options.maxBytes) throw new MessageTooLarge();
      wanted = 5 + length;
      if (buffer.length < wanted) break;
      yield unpack(buffer[0] ?? 0, buffer.subarray(5, wanted), options);
      buffer = buffer.subarray(wanted);
      wanted = 5;
    }
    parts = buffer.length === 0 ? [] : [buffer];
    size = buffer.length;
  }
  if (size > 0) throw new BadFrame("the answer ends within a message");
}

function unpack(flag: number, message: Uint8Array, { maxBytes, encoding }: FrameOptions): Uint8Array {
  if (flag === 0) return message;
  if (flag !== 1 || encoding !== "gzip") throw new BadFrame(`a message is compressed with '${encoding}'`);
  try {
    return gunzipSync(message, { maxOutputLength: maxBytes });
  } catch (error) {
    if (error instanceof RangeError) throw new MessageTooLarge();
    throw new BadFrame("a message cannot be decompressed");
  }
}
