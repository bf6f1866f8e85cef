import { crc32 } from "node:zlib";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { GatewayError } from "../../errors/gateway-error.ts";
import type { JsonValue } from "../../json.ts";
import { characterSchema } from "./character.ts";
import { readCharacterCard } from "./import-character.ts";
import { readWorldInfo } from "./import-world-info.ts";
import { pngTexts } from "./png-text.ts";
import { worldBookSchema } from "./world-book.ts";

function chunk(type: string, data: Uint8Array): Buffer {
  const named = Buffer.concat([Buffer.from(type, "latin1"), data]);
  const numbers = Buffer.alloc(8);
  numbers.writeUInt32BE(data.length, 0);
  numbers.writeUInt32BE(crc32(named), 4);
  return Buffer.concat([numbers.subarray(0, 4), named, numbers.subarray(4)]);
}

const signature = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
const picture = (...chunks: readonly Buffer[]): Buffer =>
  Buffer.concat([signature, ...chunks, chunk("IEND", Buffer.alloc(0))]);
const text = (keyword: string, value: string): Buffer => chunk("tEXt", Buffer.from(`${keyword}\0${value}`, "latin1"));
const card = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString("base64");

/** Refused with a code, or read: never anything else. */
function orRefused<Result>(read: () => Result): Result | undefined {
  try {
    return read();
  } catch (thrown) {
    if (thrown instanceof GatewayError && thrown.code === "invalid_definition") return undefined;
    throw thrown;
  }
}

describe("a character card", () => {
  test("of version 1 and of version 2 are the same character", () => {
    const fields = { name: "Ada", description: "d", personality: "p", scenario: "s", first_mes: "f", mes_example: "m" };
    const first = readCharacterCard(Buffer.from(JSON.stringify(fields))).character;
    const second = readCharacterCard(Buffer.from(JSON.stringify({ spec: "chara_card_v2", data: fields }))).character;
    expect(second).toEqual(first);
    expect(first).toMatchObject({ name: "Ada", first_message: "f", examples: "m" });
  });

  test("of version 3 wins where a picture carries two", () => {
    const bytes = picture(text("chara", card({ name: "Old" })), text("ccv3", card({ data: { name: "Neu ☃" } })));
    expect(readCharacterCard(bytes).character.name).toBe("Neu ☃");
  });

  test.each([
    ["no text", picture()],
    ["no base 64", picture(text("chara", "{}"))],
    ["no JSON", picture(text("chara", Buffer.from("x").toString("base64")))],
    [
      "a length beyond the file",
      Buffer.concat([signature, Buffer.from([0xff, 0xff, 0xff, 0xff, 0x74, 0x45, 0x58, 0x74, 0, 0, 0, 0])]),
    ],
    ["a million blanks in its base 64", picture(text("chara", `e30${" ".repeat(1_000_000)}!`))],
    ["no end", Buffer.concat([signature, text("chara", card({ name: "x" }))])],
  ])("is refused where a picture has %s", (_what, bytes) => {
    expect(orRefused(() => readCharacterCard(bytes))).toBeUndefined();
  });

  test("is refused whose book has more entries than fit", () => {
    const entries = Array.from({ length: 5_001 }, () => ({ keys: ["a"], content: "b" }));
    const bytes = Buffer.from(JSON.stringify({ name: "x", character_book: { entries } }));
    expect(() => readCharacterCard(bytes)).toThrow("character_book.entries: has 5001 entries");
  });

  test("is refused or read, whatever the bytes", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), fc.boolean(), (bytes, isPicture) => {
        const file = isPicture ? Buffer.concat([signature, bytes]) : Buffer.from(bytes);
        expect(orRefused(() => readCharacterCard(file))).toBeUndefined();
      }),
    );
  });

  test("is refused or read, wherever a picture is damaged", () => {
    const whole = picture(text("comment", "x"), text("chara", card({ name: "Ada" })));
    fc.assert(
      fc.property(fc.nat({ max: whole.length - 1 }), fc.nat({ max: 255 }), fc.boolean(), (at, byte, isCut) => {
        const damaged = isCut ? whole.subarray(0, at) : Buffer.from(whole);
        if (!isCut) damaged[at] = byte;
        const read = orRefused(() => readCharacterCard(damaged));
        expect(read?.character.name ?? "Ada").toBe("Ada");
      }),
    );
  });

  test("is in its form, whatever the fields hold", () => {
    const names = fc.constantFrom(
      "name",
      "description",
      "tags",
      "alternate_greetings",
      "character_book",
      "creator",
      "data",
    );
    fc.assert(
      fc.property(fc.dictionary(names, fc.jsonValue()), (fields) => {
        const read = orRefused(() => readCharacterCard(Buffer.from(JSON.stringify(fields))));
        expect(read && characterSchema.parse(read.character)).toEqual(read?.character);
      }),
    );
  });

  test("takes nesting that no program meets", () => {
    const deep = `${'{"data":'.repeat(20_000)}1${"}".repeat(20_000)}`;
    expect(orRefused(() => readCharacterCard(Buffer.from(deep)))).toBeUndefined();
  });
});

describe("texts of a picture", () => {
  test("keep their first value, by keyword", () => {
    const texts = pngTexts(picture(text("A", "1"), text("a", "2"), text("b", "3")));
    expect([...texts]).toEqual([
      ["a", "1"],
      ["b", "3"],
    ]);
  });
});

describe("a world info", () => {
  test("keeps what both forms say", () => {
    const foreign = {
      key: ["a"],
      keysecondary: ["b"],
      comment: "n",
      content: "c",
      constant: false,
      selective: true,
      selectiveLogic: 3,
      order: 7,
      position: 4,
      depth: 2,
      role: 1,
      probability: 30,
      useProbability: true,
      scanDepth: 9,
      caseSensitive: true,
      matchWholeWords: true,
      excludeRecursion: true,
      preventRecursion: true,
      delayUntilRecursion: true,
    };
    const { book, notes } = readWorldInfo({ entries: { "5": foreign } });
    expect(notes).toEqual([]);
    const expected = {
      name: "n",
      keys: ["a"],
      secondary_keys: ["b"],
      logic: "and_all",
      content: "c",
      enabled: true,
      constant: false,
      order: 7,
      position: "at_depth",
      depth: 2,
      role: "user",
      probability: 30,
      scan_depth: 9,
      case_sensitive: true,
      whole_words: true,
      exclude_recursion: true,
      prevent_recursion: true,
      delay_until_recursion: true,
    };
    expect(book.entries).toEqual([expected]);
    const inCard = {
      keys: ["a"],
      secondary_keys: ["b"],
      comment: "n",
      content: "c",
      enabled: true,
      selective: true,
      insertion_order: 7,
      position: "after_char",
      extensions: {
        selectiveLogic: 3,
        position: 4,
        depth: 2,
        role: 1,
        probability: 30,
        scan_depth: 9,
        case_sensitive: true,
        match_whole_words: true,
        exclude_recursion: true,
        prevent_recursion: true,
        delay_until_recursion: true,
      },
    };
    expect(readWorldInfo({ entries: [inCard] }).book.entries).toEqual([expected]);
  });

  test("is in its form, whatever the fields hold", () => {
    const names = fc.constantFrom(
      "key",
      "keys",
      "content",
      "position",
      "depth",
      "order",
      "probability",
      "role",
      "extensions",
      "comment",
      "selectiveLogic",
    );
    fc.assert(
      fc.property(fc.array(fc.dictionary(names, fc.jsonValue()), { maxLength: 5 }), (entries) => {
        const read = orRefused(() => readWorldInfo({ entries: entries as JsonValue[] }));
        expect(read && worldBookSchema.parse(read.book)).toEqual(read?.book);
      }),
    );
  });
});

test("a book of more patterns than can be compiled keeps the first, and that is noted", () => {
  const entries = Array.from({ length: 1_000 }, (_, at) => ({
    key: Array.from({ length: 20 }, (_each, key) => `/[a-z]{${900 + ((at + key) % 100)}}${at}-${key}/`),
    content: "x",
  }));
  const { book, notes } = readWorldInfo({ entries });
  expect(book.entries[0]?.keys).toHaveLength(20);
  expect(book.entries.at(-1)?.keys).toEqual([]);
  expect(notes.join(" ")).toContain("too large together");
});
