import { describe, expect, test } from "vitest";
import fc from "fast-check";
import { verifies } from "../../../../test/support/verifies.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { EgressResponse } from "../ports/egress.ts";
import { deliveryOf, withDelivery } from "../errors/delivery.ts";
import { decodeReply, parseRetryAfter } from "./reply.ts";

interface Given {
  readonly status?: number;
  readonly headers?: EgressResponse["headers"];
  readonly body?: string | Uint8Array;
  /** Bytes of each piece. */
  readonly piece?: number;
  readonly maxBytes?: number;
  readonly redact?: (text: string) => string;
}

/** Pieces of a body, how many of them were asked for, and whether the reader has left. */
class BodySource {
  read = 0;
  isLeft = false;
  readonly body: EgressResponse["body"];

  constructor(bytes: Uint8Array, piece: number) {
    this.body = this.#pieces(bytes, piece);
  }

  async *#pieces(bytes: Uint8Array, piece: number): AsyncGenerator<Uint8Array, void, void> {
    try {
      for (let at = 0; at < bytes.length; at += piece) {
        this.read += 1;
        yield bytes.subarray(at, at + piece);
      }
    } finally {
      this.isLeft = true;
    }
  }
}

function decode({
  status = 200,
  headers = {},
  body = "",
  piece = 7,
  maxBytes = 1_000_000,
  redact = (text) => text,
}: Given) {
  const source = new BodySource(Buffer.from(body), piece);
  const work = decodeReply(
    { status, headers, body: source.body, url: "https://api.example.com/" },
    { maxBytes, toolName: "search", redact },
  );
  return { work, source };
}
const textOf = async (given: Given): Promise<unknown> => (await decode(given).work).body;
const refusal = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => undefined,
    (error: unknown) => error,
  );

describe(`replies as the model reads them ${verifies("BLIND-8")}`, () => {
  test.each([
    [
      "application/json; charset=GBK",
      "7b2263697479223a22b1b1bea9222c226d7367223a22b2e9d1afb3c9b9a6227d",
      '{"city":"北京","msg":"查询成功"}',
    ],
    ["text/html; charset=gb2312", "3c7469746c653eb1b1bea93c2f7469746c653e", "<title>北京</title>"],
    ['application/json; charset="utf-8"', "efbbbf7b2263697479223a22e58c97e4baac227d", '{"city":"北京"}'],
    ["application/json; charset=x-no-such", "7b2263697479223a22e58c97e4baac227d", '{"city":"北京"}'],
    ["application/json;Charset='gb18030'", "7b2263223a22b1b1227d", '{"c":"北"}'],
    ["text/plain; format=flowed; charset=Shift_JIS", "93fa967b", "日本"],
    // The mark of the bytes beats what the header says.
    ["text/plain; charset=gbk", "efbbbfe58c97", "北"],
    ["text/plain", "fffe1753", "北"],
    ["text/plain; charset=utf-16le", "1753", "北"],
    ["text/html", Buffer.from('<meta charset="gbk"><p>').toString("hex") + "b1b1bea9", '<meta charset="gbk"><p>北京'],
    [
      "text/html",
      Buffer.from('<meta http-equiv=x content="text/html; charset=gb2312">').toString("hex") + "b1b1",
      '<meta http-equiv=x content="text/html; charset=gb2312">北',
    ],
    [
      "application/xml",
      Buffer.from('<?xml version="1.0" encoding="GBK"?><a>').toString("hex") + "b1b1",
      '<?xml version="1.0" encoding="GBK"?><a>北',
    ],
  ])("%s (%s)", async (type, hex, text) => {
    expect(await textOf({ headers: { "content-type": type }, body: Buffer.from(hex, "hex") })).toBe(text);
  });

  test("JSON stays byte for byte: big integers, spaces, key order, double keys", async () => {
    const text = '{ "id": 12345678901234567890.10, "b":1e400,\n"a":1, "a":2 }';
    expect(await decode({ headers: { "content-type": "application/json" }, body: text }).work).toEqual({
      mediaType: "application/json",
      body: text,
    });
  });

  test.each([
    ["image/png", false],
    ["application/pdf", false],
    ["application/octet-stream", false],
    ["application/zip", false],
    ["text/csv", true],
    ["application/problem+json", true],
    ["application/soap+xml", true],
    ["application/x-ndjson", true],
    ["image/svg+xml", true],
    ["application/vnd.acme; charset=utf-8", true],
  ])("%s: as text? %s", async (type, isText) => {
    const reply = await decode({ headers: { "content-type": type }, body: "abc" }).work;
    expect(typeof reply.body === "string").toBe(isText);
    expect(reply.mediaType).toBe(type.split(";")[0]);
  });

  test("bytes come through as they are", async () => {
    const bytes = Uint8Array.from({ length: 256 }, (_value, index) => index);
    const reply = await decode({ headers: { "content-type": "image/png" }, body: bytes }).work;
    expect(Buffer.from(reply.body).equals(bytes)).toBe(true);
  });

  test("without a type, text is told from bytes by its bytes", async () => {
    expect(await decode({ body: "北京" }).work).toEqual({ mediaType: "text/plain", body: "北京" });
    expect(await decode({ body: Buffer.from([1, 0, 2]) }).work).toMatchObject({
      mediaType: "application/octet-stream",
    });
    expect(await decode({ body: Buffer.from([0xc3, 0x28]) }).work).toMatchObject({
      mediaType: "application/octet-stream",
    });
  });

  test("an empty reply is empty text, whatever its type says", async () => {
    expect(await decode({ status: 204 }).work).toEqual({ mediaType: "text/plain", body: "" });
    expect(await decode({ headers: { "content-type": "application/json" } }).work).toEqual({
      mediaType: "text/plain",
      body: "",
    });
  });

  test("any bytes under any type decode to something", async () => {
    await fc.assert(
      fc.asyncProperty(fc.uint8Array(), fc.string(), async (bytes, charset) => {
        const reply = await decode({ headers: { "content-type": `text/html; charset=${charset}` }, body: bytes }).work;
        expect(typeof reply.body).toBe("string");
      }),
    );
  });
});

describe(`replies that are errors ${verifies("BLIND-8", "API-6")}`, () => {
  test.each([400, 401, 404, 422, 429, 500, 503, 304, 302])(
    "status %i is an error with status and body",
    async (status) => {
      const error = await refusal(
        decode({
          status,
          headers: { "content-type": "application/json; charset=gbk" },
          body: Buffer.from("b1b1", "hex"),
        }).work,
      );
      expect(error).toMatchObject({
        code: "tool_failed",
        details: { toolName: "search", extra: { status, body: "北" } },
      });
      expect(String(error)).toContain(`status ${status}: 北`);
      expect(deliveryOf(error)).toBe("answered");
    },
  );

  test("the body of an error is cut, and no more of it is read", async () => {
    const { work, source } = decode({
      status: 500,
      headers: { "content-type": "text/plain" },
      body: "x".repeat(200_000),
      piece: 4_096,
    });
    const error = await refusal(work);
    if (!(error instanceof GatewayError)) throw new Error("no error");
    expect(error.details.extra?.["body"]).toHaveLength(8_193);
    expect(error.message.length).toBeLessThan(400);
    expect(source).toMatchObject({ read: 19, isLeft: true });
  });

  test("a secret across the place where the body is cut is not half shown", async () => {
    for (const before of [8_186, 8_189, 8_192]) {
      const error = await refusal(
        decode({
          status: 500,
          headers: { "content-type": "text/plain" },
          body: `${"x".repeat(before)}sk-123${"y".repeat(100_000)}`,
          redact: (text) => text.replace("sk-123", "[redacted]"),
        }).work,
      );
      expect(JSON.stringify(error)).not.toContain("xs");
    }
  });

  test("secrets that a back end echoes are taken out of the error", async () => {
    const error = await refusal(
      decode({
        status: 401,
        headers: { "content-type": "text/plain" },
        body: "bad key sk-123",
        redact: (text) => text.replace("sk-123", "[redacted]"),
      }).work,
    );
    expect(JSON.stringify(error)).not.toContain("sk-123");
    expect(String(error)).toContain("bad key [redacted]");
  });

  test("bytes are not shown, and a body that breaks off does not hide the status", async () => {
    const binary = await refusal(decode({ status: 500, headers: { "content-type": "image/png" }, body: "abc" }).work);
    expect(binary).toMatchObject({ details: { extra: { status: 500 } } });
    const broken = await refusal(
      decodeReply(
        {
          status: 502,
          headers: {},
          url: "",
          body: {
            [Symbol.asyncIterator]: () => ({
              next: () => Promise.reject(withDelivery(new GatewayError("tool_unreachable", "gone"), "uncertain")),
            }),
          },
        },
        { maxBytes: 10, toolName: "search", redact: (text) => text },
      ),
    );
    expect(broken).toMatchObject({ code: "tool_failed", details: { extra: { status: 502 } } });
  });

  test("Retry-After is passed on", async () => {
    const error = await refusal(decode({ status: 429, headers: { "retry-after": "7" } }).work);
    expect(error).toMatchObject({ details: { retryAfterMs: 7_000 } });
    expect(parseRetryAfter("Wed, 21 Oct 2026 07:28:00 GMT", Date.parse("2026-10-21T07:27:50Z"))).toBe(10_000);
    expect(parseRetryAfter("Wed, 21 Oct 2015 07:28:00 GMT")).toBe(0);
    expect(parseRetryAfter("soon")).toBeUndefined();
    expect(parseRetryAfter(undefined)).toBeUndefined();
  });
});

describe(`replies that are too large ${verifies("BLIND-8")}`, () => {
  test("are refused while they are read, naming the setting", async () => {
    const { work, source } = decode({ body: "x".repeat(10_000), piece: 100, maxBytes: 1_000 });
    const error = await refusal(work);
    expect(error).toMatchObject({ code: "tool_output_too_large", details: { extra: { status: 200 } } });
    expect(String(error)).toContain("result_max_bytes");
    expect(deliveryOf(error)).toBe("answered");
    expect(source).toMatchObject({ read: 11, isLeft: true });
  });

  test("are refused before they are read where they say their length", async () => {
    const { work, source } = decode({
      headers: { "content-length": "10000" },
      body: "x".repeat(10_000),
      maxBytes: 1_000,
    });
    expect(await refusal(work)).toMatchObject({ code: "tool_output_too_large" });
    expect(source.read).toBe(0);
  });

  test("a reply of exactly the cap is whole", async () => {
    expect(await textOf({ body: "x".repeat(1_000), maxBytes: 1_000 })).toHaveLength(1_000);
  });
});
