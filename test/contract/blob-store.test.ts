import { execFile, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, readdir, rm, stat, utimes } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { createFileBlobStore } from "@toolyard/platform/local/file-blob-store";
import { createMemoryBlobStore } from "@toolyard/platform/memory/memory-blob-store";
import { readAll, type BlobStore, type Presign } from "@toolyard/core/ports/blob-store";
import { afterAll, describe, expect, test } from "vitest";
import { createBlobHost, noLinks } from "../support/blob-host.ts";
import { describeBlobStore } from "./blob-store.ts";

const directories: string[] = [];
afterAll(() => Promise.all(directories.map((directory) => rm(directory, { recursive: true, force: true }))));

async function freshDirectory(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "toolyard-blobs-"));
  directories.push(directory);
  return join(directory, "store");
}

const host = createBlobHost();
const served = (make: (presign: Presign) => BlobStore): BlobStore => host.serve(make);

describeBlobStore("memory", async () => served(createMemoryBlobStore), host);
describeBlobStore(
  "files",
  async () => {
    const directory = await freshDirectory();
    return served((presign) => createFileBlobStore(directory, presign));
  },
  host,
);

/** Runs TypeScript in a process of its own, with `store` on this directory. */
function scriptWithStore(directory: string, body: string): readonly string[] {
  const source = `
    import { createFileBlobStore } from "@toolyard/platform/local/file-blob-store";
    const store = createFileBlobStore(${JSON.stringify(directory)}, () => Promise.reject(new Error("no links")));
    ${body}`;
  return ["--input-type=module", "--eval", source];
}

describe("blobs in files", () => {
  test("one of 50 conditional writers in two processes wins, and both see its bytes", async () => {
    const directory = await freshDirectory();
    const race = (who: string): string => `
      const put = (at) => store.put("ten_1/result", Buffer.from("${who}" + at), { ifAbsent: true });
      const wins = await Promise.all(Array.from({ length: 25 }, (_, at) => put(at)));
      console.log(JSON.stringify(wins.flatMap((won, at) => won ? ["${who}" + at] : [])));`;
    const runs = await Promise.all(
      ["a", "b"].map((who) => promisify(execFile)(process.execPath, [...scriptWithStore(directory, race(who))])),
    );
    const winners = runs.flatMap(({ stdout }) => JSON.parse(stdout) as string[]);
    expect(winners).toHaveLength(1);
    const blob = await createFileBlobStore(directory, noLinks).get("ten_1/result");
    expect(Buffer.from(await readAll(blob?.body ?? emptyBody())).toString("utf8")).toBe(winners[0]);
  });

  test("a process killed in the middle of a write leaves no blob, and its rest is removed later", async () => {
    const directory = await freshDirectory();
    const endless = `
      async function* slow() {
        for (;;) {
          yield Buffer.alloc(10_000);
          process.stdout.write("wrote\\n");
          await new Promise((done) => setTimeout(done, 5));
        }
      }
      await store.put("ten_1/half", slow());`;
    const child = spawn(process.execPath, [...scriptWithStore(directory, endless)], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    await once(child.stdout, "data");
    child.kill("SIGKILL");
    await once(child, "exit");

    const store = createFileBlobStore(directory, noLinks);
    expect(await store.list("")).toEqual([]);
    expect(await store.put("ten_1/half", Buffer.from("whole"), { ifAbsent: true })).toBe(true);
    const [left = ""] = await readdir(join(directory, "incoming"));
    expect(left).not.toBe("");

    const longAgo = new Date(Date.now() - 48 * 60 * 60_000);
    await utimes(join(directory, "incoming", left), longAgo, longAgo);
    await createFileBlobStore(directory, noLinks).put("ten_1/next", Buffer.from("x"));
    expect(await readdir(join(directory, "incoming"))).toEqual([]);
  });

  test("nothing is written outside the directory, and only the owner can read it", async () => {
    const directory = await freshDirectory();
    const store = createFileBlobStore(directory, noLinks);
    await store.put("../../escaped", Buffer.from("x"));
    await store.put("/escaped", Buffer.from("x"));
    expect(await readdir(join(directory, ".."))).toEqual(["store"]);
    for (const entry of await readdir(directory, { recursive: true, withFileTypes: true })) {
      const { mode } = await stat(join(entry.parentPath, entry.name));
      expect(mode & 0o077).toBe(0);
    }
  });

  test("directories that became empty go with their last blob", async () => {
    const directory = await freshDirectory();
    const store = createFileBlobStore(directory, noLinks);
    await store.put("ten_1/sessions/a/b", Buffer.from("x"));
    await store.delete("ten_1/sessions/a/b");
    expect(await readdir(join(directory, "blobs"))).toEqual([]);
  });

  test("a stream of 200 MB is written and read without being held in memory", async () => {
    const copy = `
      import { createHash } from "node:crypto";
      const part = Buffer.alloc(1024 * 1024, 7);
      const before = process.memoryUsage.rss();
      let peak = before;
      const look = () => { peak = Math.max(peak, process.memoryUsage.rss()); };
      async function* large() { for (let at = 0; at < 200; at += 1) { look(); yield part; } }
      await store.put("ten_1/large", large());
      const hash = createHash("sha256");
      for await (const bytes of (await store.get("ten_1/large")).body) { look(); hash.update(bytes); }
      console.log(JSON.stringify({ growth: peak - before, hash: hash.digest("hex") }));`;
    const { stdout } = await promisify(execFile)(process.execPath, [...scriptWithStore(await freshDirectory(), copy)]);
    const { growth, hash } = JSON.parse(stdout) as { growth: number; hash: string };
    const expected = createHash("sha256")
      .update(Buffer.alloc(200 * 1024 * 1024, 7))
      .digest("hex");
    expect(hash).toBe(expected);
    expect(growth).toBeLessThan(64 * 1024 * 1024);
  });

  test("a directory that cannot be written is a catalogued error that names what to look at", async () => {
    const notADirectory = import.meta.filename;
    const store = createFileBlobStore(join(notADirectory, "store"), noLinks);
    await expect(store.put("ten_1/a", Buffer.from("x"))).rejects.toMatchObject({
      code: "blobs_unavailable",
      message: expect.stringContaining("data directory"),
    });
  });
});

async function* emptyBody(): AsyncGenerator<Uint8Array> {
  yield* [];
}
