import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { unlz4, unsnappy } from "./kafka-codecs.ts";

const most = 1_000_000;
const bytes = (...hex: readonly string[]): Buffer => Buffer.from(hex.join(""), "hex");

/** "abc", four of it from three back, ten from seven back. */
const snappy = bytes("11", "08616263", "0103", "260700");
const words = "abcabcaabcabcaabc";

describe(`batches of Kafka ${verifies("MQ-3")}`, () => {
  test("packed with Snappy are read in one, and in the pieces that Java writes", () => {
    expect(unsnappy(snappy, most).toString()).toBe(words);
    const head = bytes("82534e41505059000000000100000001");
    const pieces = Buffer.concat([head, bytes("0000000a"), snappy, bytes("0000000a"), snappy]);
    expect(unsnappy(pieces, most).toString()).toBe(words + words);
    const long = Buffer.alloc(70_000, "x");
    expect(unsnappy(Buffer.concat([bytes("f0a204", "f8", "6f1101"), long]), most)).toEqual(long);
  });

  test("packed with LZ4 are read over blocks that repeat each other, with the checksums between them", () => {
    // `lz4 -9 -B4 -BD -BX --content-size` of 70,000 bytes, with the checksum of the whole, too.
    const packed = bytes(
      "04224d185c407011010000000000e30c0100002f61620200",
      "ff".repeat(256),
      "e65062616261621af884291b0000000f0400",
      "ff".repeat(17),
      "6950626162616247ac421d00000000f1e19f50",
    );
    const text = "ab".repeat(35_000);
    expect(unlz4(packed, most).toString()).toBe(text);
    expect(unlz4(Buffer.concat([packed, packed]), most).toString()).toBe(text + text);
    expect(() => unlz4(packed, 69_999)).toThrow(/larger than 69999 bytes/);
  });

  test("are unpacked up to a size", () => {
    expect(() => unsnappy(snappy, words.length - 1)).toThrow(/larger than 16 bytes/);
    expect(unsnappy(snappy, words.length)).toHaveLength(words.length);
  });

  test("that are cut off or nonsense are an error", () => {
    const said = (unpack: typeof unlz4, packed: Buffer): unknown => {
      try {
        return unpack(packed, most).toString("latin1");
      } catch (error) {
        return error;
      }
    };
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), fc.boolean(), (noise, isFrame) => {
        const packed = Buffer.concat([isFrame ? bytes("04224d1860407f") : Buffer.alloc(0), noise]);
        for (const unpack of [unsnappy, unlz4]) {
          const what = said(unpack, packed);
          expect(typeof what === "string" ? what.length <= most : what instanceof RangeError).toBe(true);
        }
      }),
    );
    for (let length = 0; length < snappy.length; length += 1) {
      expect(said(unsnappy, snappy.subarray(0, length))).not.toBe(words);
    }
  });
});
