import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { FrameError, FrameReader, textFrame, type Received } from "./websocket-frames.ts";

/** As a server sends it: without a mask. */
function fromServer(opcode: number, payload: Buffer, isLast = true): Buffer {
  const { length } = payload;
  const head = length < 126 ? Buffer.from([0, length]) : length < 65_536 ? Buffer.alloc(4) : Buffer.alloc(10);
  if (length >= 126) head[1] = length < 65_536 ? 126 : 127;
  if (head.length === 4) head.writeUInt16BE(length, 2);
  if (head.length === 10) head.writeBigUInt64BE(BigInt(length), 2);
  head[0] = (isLast ? 0x80 : 0) | opcode;
  return Buffer.concat([head, payload]);
}

/** The same message in frames of these sizes. */
function inPieces(text: string, sizes: readonly number[]): Buffer {
  const bytes = Buffer.from(text, "utf8");
  const frames: Buffer[] = [];
  let at = 0;
  for (const size of sizes) {
    frames.push(fromServer(frames.length === 0 ? 1 : 0, bytes.subarray(at, at + size), false));
    at += size;
  }
  frames.push(fromServer(frames.length === 0 ? 1 : 0, bytes.subarray(at)));
  return Buffer.concat(frames);
}

function whatThrows(work: () => unknown): unknown {
  try {
    work();
    return undefined;
  } catch (error) {
    return error;
  }
}

describe("frames from a server", () => {
  test("give their texts, however they are cut into frames and reads", () => {
    const texts = fc.array(
      fc.tuple(fc.string({ unit: "grapheme", maxLength: 300 }), fc.array(fc.nat(20), { maxLength: 4 })),
      {
        maxLength: 5,
      },
    );
    fc.assert(
      fc.property(texts, fc.array(fc.integer({ min: 1, max: 200 }), { minLength: 1 }), (messages, reads) => {
        const bytes = Buffer.concat(messages.map(([text, sizes]) => inPieces(text, sizes)));
        const reader = new FrameReader(1_000_000);
        const received: Received[] = [];
        for (let at = 0, turn = 0; at < bytes.length; turn += 1) {
          const size = reads[turn % reads.length] ?? 1;
          received.push(...reader.feed(bytes.subarray(at, at + size)));
          at += size;
        }
        expect(received).toEqual(messages.map(([text]) => ({ kind: "text", text })));
      }),
    );
  });

  test.each([125, 126, 65_535, 65_536, 200_000])("may have %i bytes", (length) => {
    const [received] = new FrameReader(1_000_000).feed(fromServer(1, Buffer.alloc(length, "x")));
    expect(received).toEqual({ kind: "text", text: "x".repeat(length) });
  });

  test("a ping between the pieces of a text is one, and the text goes on", () => {
    const bytes = Buffer.concat([
      fromServer(1, Buffer.from("a"), false),
      fromServer(9, Buffer.from("?")),
      fromServer(0, Buffer.from("b")),
    ]);
    expect(new FrameReader(100).feed(bytes)).toEqual([
      { kind: "ping", payload: Buffer.from("?") },
      { kind: "text", text: "ab" },
    ]);
  });

  test.each([
    ["are masked", textFrame("x")],
    ["use an extension", Buffer.from([0xc1, 0])],
    ["are binary", fromServer(2, Buffer.from("x"))],
    ["go on with nothing", fromServer(0, Buffer.from("x"))],
    ["begin within another", Buffer.concat([fromServer(1, Buffer.from("x"), false), fromServer(1, Buffer.from("y"))])],
    ["are a long ping", fromServer(9, Buffer.alloc(126))],
    ["are no UTF-8", fromServer(1, Buffer.from([0xff]))],
    ["are too large", fromServer(1, Buffer.alloc(1_001))],
    ["say that they are beyond all measure", Buffer.from([0x81, 127, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff])],
    [
      "are too large together",
      Buffer.concat([fromServer(1, Buffer.alloc(600), false), fromServer(0, Buffer.alloc(600))]),
    ],
  ])("that %s end the connection", (_which, bytes) => {
    expect(() => new FrameReader(1_000).feed(bytes)).toThrow(FrameError);
  });

  test("a text whose pieces hold little keeps little, however much comes along with them", () => {
    setFlagsFromString("--expose-gc");
    const collectGarbage = runInNewContext("gc") as () => void;
    const pong = fromServer(10, Buffer.alloc(100));
    const pongs = Array.from({ length: 600 }, () => pong);
    const nothing = Array.from({ length: 2_000 }, () => fromServer(0, Buffer.alloc(0), false));
    const read = Buffer.concat([...nothing, fromServer(0, Buffer.from("x"), false), ...pongs]);
    const held = (): number => {
      collectGarbage();
      const { arrayBuffers, heapUsed } = process.memoryUsage();
      return arrayBuffers + heapUsed;
    };
    const reader = new FrameReader(1_000_000);
    reader.feed(fromServer(1, Buffer.alloc(0), false));
    const before = held();
    for (let times = 0; times < 300; times += 1) reader.feed(Buffer.from(read));
    expect(held() - before).toBeLessThan(8_000_000);
    expect(reader.feed(fromServer(0, Buffer.alloc(0)))).toEqual([{ kind: "text", text: "x".repeat(300) }]);
  });

  test("whatever else comes is read or refused", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
        const thrown = whatThrows(() => new FrameReader(1_000).feed(bytes));
        expect(thrown === undefined || thrown instanceof FrameError).toBe(true);
      }),
    );
  });
});
