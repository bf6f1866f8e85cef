import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { GatewayError } from "./errors/gateway-error.ts";
import { packZip, readZip, safePath, unpackZip, type ZipFile } from "./zip.ts";

const limits = { files: 100, bytes: 1_000_000, param: "zip" };

const file = (path: string, content = ""): ZipFile => ({ path, body: Buffer.from(content) });

function whatIsThrown(work: () => unknown): unknown {
  try {
    work();
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.constructor : error;
  }
}

const word = fc.stringMatching(/^[a-z文]{1,8}$/u);
const folder = fc
  .uniqueArray(
    fc.record({
      path: fc.array(word, { minLength: 1, maxLength: 4 }).map((steps) => steps.join("/")),
      body: fc.uint8Array({ maxLength: 200 }),
    }),
    { maxLength: 8, selector: ({ path }) => path },
  )
  .filter((files) => !files.some(({ path }) => files.some((other) => other.path.startsWith(`${path}/`))));

describe("zip files", () => {
  test("come out as they went in, and equal ones are equal bytes in whatever order", async () => {
    await fc.assert(
      fc.asyncProperty(folder, async (files) => {
        const archive = await packZip(files);
        const read = readZip(archive, limits);
        const sorted = files.toSorted((a, b) => (a.path < b.path ? -1 : 1));
        expect(read.map(({ path, body }) => [path, [...body]])).toEqual(
          sorted.map(({ path, body }) => [path, [...body]]),
        );
        expect(Buffer.from(await packZip(files.toReversed())).equals(Buffer.from(archive))).toBe(true);
      }),
    );
  });

  test("are the same where others have a turn meanwhile", async () => {
    const files = [file("b.txt", "b".repeat(5_000)), file("a.txt", "x")];
    let hadTurn = false;
    setImmediate(() => (hadTurn = true));
    const archive = await packZip(files);
    expect(hadTurn).toBe(true);
    hadTurn = false;
    setImmediate(() => (hadTurn = true));
    expect(await unpackZip(archive, limits)).toEqual(readZip(archive, limits));
    expect(hadTurn).toBe(true);
  });

  test("have the names that Windows gives them where VCP is at home", async () => {
    const archive = Buffer.from(await packZip([file("AABB/CC.txt", "hello")]));
    const places = [...archive.toString("latin1").matchAll(/AABB\/CC/g)].map(({ index }) => index);
    expect(places).toHaveLength(2);
    // 插件/甲 in GBK; the flags of both headers no longer say that it is UTF-8.
    for (const at of places) archive.set([0xb2, 0xe5, 0xbc, 0xfe, 0x2f, 0xbc, 0xd7], at);
    const [local = 0, central = 0] = places;
    archive.writeUInt16LE(0, local - 30 + 6);
    archive.writeUInt16LE(0, central - 46 + 8);
    expect(readZip(archive, limits).map(({ path }) => path)).toEqual(["插件/甲.txt"]);
  });

  test("that are damaged are refused, and never anything worse", async () => {
    const archive = await packZip([file("a.txt", "hello ".repeat(50)), file("b/c.txt", "x")]);
    fc.assert(
      fc.property(fc.nat(archive.length - 1), fc.nat(255), fc.nat(archive.length), (at, value, length) => {
        const damaged = Buffer.from(archive.subarray(0, Math.max(length, at + 1)));
        damaged[at] = value;
        expect([undefined, GatewayError]).toContain(whatIsThrown(() => readZip(damaged, limits)));
      }),
    );
  });

  test.for(["../x", "a/../../x", "/etc/passwd", "C:\\x", "\\\\host\\x", "a\u0000b", "a:b", "x".repeat(600)])(
    "refuse the path %j",
    (path) => {
      expect(() => safePath(path, limits)).toThrow(GatewayError);
    },
  );

  test("take separators of Windows and steps that lead nowhere", () => {
    expect(safePath("a\\b/./c.txt", limits)).toBe("a/b/c.txt");
  });

  test("refuse more files and more bytes than they may have, whatever they say of themselves", async () => {
    const many = Array.from({ length: 101 }, (_, index) => file(`f${index}`));
    const crowded = await packZip(many);
    expect(() => readZip(crowded, limits)).toThrow("holds 101 files; 100 are taken");
    const bomb = await packZip([file("zeros", "0".repeat(2_000_000))]);
    expect(() => readZip(bomb, limits)).toThrow("unpacks to more than 1000000 bytes");
    // The same, and its directory says that it is small.
    const lying = Buffer.from(bomb);
    lying.writeUInt32LE(10, lying.indexOf(Buffer.from([0x50, 0x4b, 1, 2])) + 24);
    expect(() => readZip(lying, limits)).toThrow("unpacks to more than");
    await expect(unpackZip(lying, limits)).rejects.toThrow("unpacks to more than");
  });

  test("refuse links, and two files at one place", async () => {
    const archive = Buffer.from(await packZip([file("link", "/etc/passwd")]));
    const entry = archive.indexOf(Buffer.from([0x50, 0x4b, 1, 2]));
    archive.writeUInt32LE((0o120777 << 16) >>> 0, entry + 38);
    expect(() => readZip(archive, limits)).toThrow("which is a link or no regular file");
    const twice = await packZip([file("A.txt"), file("a.txt")]);
    expect(() => readZip(twice, limits)).toThrow("holds 'a.txt' twice");
    for (const paths of [
      ["a", "A/b/c"],
      ["a/b/c", "a/b"],
    ]) {
      const both = await packZip(paths.map((path) => file(path)));
      expect(() => readZip(both, limits)).toThrow("of which a part is a file and a folder at once");
    }
  });
});
