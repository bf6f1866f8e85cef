import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { verifies } from "../../../../../test/support/verifies.ts";
import { SseEventTooLarge, SseScanner, type SseEvent } from "./sse-frames.ts";

/** Feeds reads one after the other. */
function scan(...reads: readonly (string | Uint8Array)[]): SseEvent[] {
  const scanner = new SseScanner();
  return reads.flatMap((read) => scanner.feed(typeof read === "string" ? Buffer.from(read) : read));
}

const dataOf = (events: readonly SseEvent[]): string[] => events.map((event) => event.data);
const framesOf = (events: readonly SseEvent[]): string[] => events.map((event) => Buffer.from(event.frame).toString());

/** The same bytes cut at each of the positions. */
function cutAt(bytes: Uint8Array, positions: readonly number[]): Uint8Array[] {
  const cuts = [...new Set(positions)].filter((at) => at > 0 && at < bytes.length).sort((a, b) => a - b);
  return [0, ...cuts].map((from, at) => bytes.subarray(from, cuts[at] ?? bytes.length));
}

describe(`server-sent events ${verifies("CHAT-6")}`, () => {
  test("reads a plain stream and keeps the bytes of every event", () => {
    const events = scan('data: {"a":1}\n\ndata: [DONE]\n\n');
    expect(dataOf(events)).toEqual(['{"a":1}', "[DONE]"]);
    expect(framesOf(events)).toEqual(['data: {"a":1}\n\n', "data: [DONE]\n\n"]);
    expect(events.every((event) => event.isPlain)).toBe(true);
  });

  test("shares memory with a read that holds whole events", () => {
    const read = Buffer.from("data: x\n\ndata: y\n\n");
    for (const event of scan(read)) expect(event.frame.buffer).toBe(read.buffer);
  });

  test.each([
    ["no space after the colon", "data:x\n\n", ["x"]],
    ["one of two spaces is content", "data:  x\n\n", [" x"]],
    ["a tab is content", "data:\tx\n\n", ["\tx"]],
    ["several data lines", "data: a\ndata: b\n\n", ["a\nb"]],
    ["a data line without a colon", "data\n\n", [""]],
    ["two empty data lines", "data\ndata:\n\n", ["\n"]],
    ["colons in the value", "data: a: b\n\n", ["a: b"]],
    ["comments between events", ": keep-alive\n\ndata: x\n\n:\n\n", ["x"]],
    ["comments inside an event", "data: a\n: hush\ndata: b\n\n", ["a\nb"]],
    ["unknown fields", "foo: 1\ndata: x\nbar\n\n", ["x"]],
    ["field names in other case", "Data: x\n\n", []],
    ["an event without data", "event: ping\n\nid: 4\n\ndata: x\n\n", ["x"]],
    ["blank lines before and between", "\n\n\ndata: x\n\n\n\ndata: y\n\n", ["x", "y"]],
    ["a byte order mark at the start", "\ufeffdata: x\n\n", ["x"]],
    ["a byte order mark later", "data: \ufeffx\n\n\ufeffdata: y\n\n", ["\ufeffx"]],
    ["an unfinished event at the end", "data: x\n\ndata: y\n", ["x"]],
    ["a long text of other scripts", "data: 你好😀\n\n", ["你好😀"]],
  ])("takes %s as the standard says", (_name, stream, expected) => {
    expect(dataOf(scan(stream))).toEqual(expected);
  });

  test("knows the name and the last id of an event, and the wait before reconnecting", () => {
    const scanner = new SseScanner();
    const events = scanner.feed(
      Buffer.from("id: 7\nevent: message\nretry: 1500\ndata: a\n\ndata: b\n\nid\nretry: soon\nid: x\0y\ndata: c\n\n"),
    );
    expect(events.map(({ name, lastEventId, data }) => [name, lastEventId, data])).toEqual([
      ["message", "7", "a"],
      ["", "7", "b"],
      ["", "", "c"],
    ]);
    expect([scanner.retryMs, scanner.lastEventId]).toEqual([1500, ""]);
  });

  test("takes an id into account although its event has no data", () => {
    const scanner = new SseScanner();
    expect(scanner.feed(Buffer.from("id: 1\n\n"))).toEqual([]);
    expect(scanner.lastEventId).toBe("1");
  });

  test("takes LF, CR and CRLF in any mixture", () => {
    for (const line of ["\n", "\r", "\r\n"]) {
      for (const blank of ["\n", "\r", "\r\n"]) {
        // CR and LF in a row are one line end, so this pair does not end an event.
        if (line === "\r" && blank === "\n") continue;
        const events = scan(`data: a${line}data: b${line}${blank}data: c\n\n`);
        expect([line, blank, ...dataOf(events)]).toEqual([line, blank, "a\nb", "c"]);
      }
    }
  });

  test("does not wait for another byte after a lone CR, and takes a later LF for its second half", () => {
    const scanner = new SseScanner();
    expect(dataOf(scanner.feed(Buffer.from("data: a\r\r")))).toEqual(["a"]);
    expect(scanner.feed(Buffer.from("\n"))).toEqual([]);
    expect(scanner.isMidEvent).toBe(false);
    expect(dataOf(scanner.feed(Buffer.from("data: b\n\n")))).toEqual(["b"]);
  });

  test("takes a CRLF for one line end wherever a read ends", () => {
    expect(dataOf(scan("data: A\r", "\ndata: B\r\n\r\n"))).toEqual(["A\nB"]);
    expect(dataOf(scan("data: C\r", "\n\r", "\n", "data: D\r\n\r\n"))).toEqual(["C", "D"]);
    expect(dataOf(scan("data: A\n\r\n", "data: B\r\r", "data: C\r", "\n\r", "\n"))).toEqual(["A", "B", "C"]);
  });

  test("calls only those events plain that every client reads", () => {
    const plain = (stream: string): boolean[] => scan(stream).map((event) => event.isPlain);
    expect(plain("data: x\n\ndata: x\n\n")).toEqual([true, true]);
    for (const stream of [
      "data: x\r\n\r\n",
      "data:x\n\n",
      "data: x\r\r",
      "data: x\n\r\n",
      "data: x\r\n\n",
      "data: x\ndata: y\n\n",
      ": c\ndata: x\n\n",
      "id: 1\ndata: x\n\n",
      "event: e\ndata: x\n\n",
    ]) {
      expect([stream, ...plain(stream)]).toEqual([stream, false]);
    }
    expect(scan("da", "ta: x\n", "\n")[0]?.isPlain).toBe(true);
    expect(scan("data: x\r\n\r", "\n")[0]?.isPlain).toBe(false);
  });

  test("tells that a stream ended in the middle of an event", () => {
    const scanner = new SseScanner();
    expect(scanner.isMidEvent).toBe(false);
    scanner.feed(Buffer.from("data: x\n\n"));
    expect(scanner.isMidEvent).toBe(false);
    scanner.feed(Buffer.from("data: y\n"));
    expect(scanner.isMidEvent).toBe(true);
    scanner.feed(Buffer.from("\n"));
    expect(scanner.isMidEvent).toBe(false);
  });

  test("refuses an event that is too large, however it is cut", () => {
    const exact = Buffer.from(`data: ${"x".repeat(92)}\n\n`);
    const larger = Buffer.from(`data: ${"x".repeat(93)}\n\n`);
    expect(exact.length).toBe(100);
    for (const cuts of [[], [1], [50], [99], Array.from({ length: 100 }, (_, at) => at)]) {
      const feed = (bytes: Buffer): number => {
        const scanner = new SseScanner(100);
        return cutAt(bytes, cuts).flatMap((read) => scanner.feed(read)).length;
      };
      expect(feed(exact)).toBe(1);
      expect(() => feed(larger)).toThrow(SseEventTooLarge);
    }
    const endless = new SseScanner(1_000);
    expect(() => {
      for (let at = 0; at < 100; at += 1) endless.feed(Buffer.from(`: comment ${at}\n`));
    }).toThrow(SseEventTooLarge);
  });

  test("leaves frames alone that were handed out before", () => {
    const scanner = new SseScanner();
    const first = ["data: on", "e\n", "\ndata: tw"].flatMap((read) => scanner.feed(Buffer.from(read)));
    const second = ["o\n\n", "data: three\n\n"].flatMap((read) => scanner.feed(Buffer.from(read)));
    expect(framesOf([...first, ...second])).toEqual(["data: one\n\n", "data: two\n\n", "data: three\n\n"]);
  });
});

const line = fc.oneof(
  fc.constantFrom(
    "data: a",
    "data:b",
    "data",
    "data: 你好😀",
    ": hush",
    "event: e",
    "id: 5",
    "retry: 10",
    "x",
    "",
    "",
    "",
  ),
  fc.string({ unit: "grapheme", maxLength: 12 }).map((text) => `data: ${text.replace(/[\r\n]/g, " ")}`),
);
const streams = fc
  .tuple(
    fc.constantFrom("", "\ufeff"),
    fc.array(fc.tuple(line, fc.constantFrom("\n", "\r", "\r\n")), { maxLength: 30 }),
  )
  .map(([mark, lines]) => Buffer.from(mark + lines.map(([text, end]) => text + end).join("")));

describe(`server-sent events in pieces ${verifies("CHAT-6")}`, () => {
  const whole = (bytes: Uint8Array): unknown[] =>
    scan(bytes).map(({ data, name, lastEventId, frame }) => ({
      data,
      name,
      lastEventId,
      // An LF that comes after the read that ended in CR is not part of the frame.
      frame: Buffer.from(frame).toString("latin1").replace(/\r\n$/, "\r"),
    }));
  const inPieces = (pieces: readonly Uint8Array[]): unknown[] => {
    const scanner = new SseScanner();
    return pieces
      .flatMap((piece) => scanner.feed(piece))
      .map(({ data, name, lastEventId, frame }) => ({
        data,
        name,
        lastEventId,
        frame: Buffer.from(frame).toString("latin1").replace(/\r\n$/, "\r"),
      }));
  };

  test("are the same events for every cut at every byte", () => {
    fc.assert(
      fc.property(streams, (bytes) => {
        const expected = whole(bytes);
        for (let at = 1; at < bytes.length; at += 1) expect(inPieces(cutAt(bytes, [at]))).toEqual(expected);
        expect(inPieces(Array.from(bytes, (byte) => Uint8Array.of(byte)))).toEqual(expected);
      }),
    );
  });

  test("are the same events for any set of cuts", () => {
    fc.assert(
      fc.property(streams, fc.array(fc.nat(400), { maxLength: 12 }), (bytes, cuts) => {
        expect(inPieces(cutAt(bytes, cuts))).toEqual(whole(bytes));
      }),
    );
  });

  test("agree with a plain reading of the standard", () => {
    fc.assert(
      fc.property(streams, (bytes) => {
        expect(dataOf(scan(bytes))).toEqual(readPlainly(bytes.toString()));
      }),
    );
  });
});

/** The standard's algorithm on the decoded text, without any care for speed. */
function readPlainly(stream: string): string[] {
  const events: string[] = [];
  let data: string[] = [];
  const lines = stream.replace(/^\ufeff/, "").split(/\r\n|\r|\n/);
  lines.pop();
  for (const text of lines) {
    if (text === "") {
      if (data.length > 0) events.push(data.join("\n"));
      data = [];
      continue;
    }
    const colon = text.indexOf(":");
    const name = colon === -1 ? text : text.slice(0, colon);
    if (name === "data") data.push(colon === -1 ? "" : text.slice(colon + 1).replace(/^ /, ""));
  }
  return events;
}
