import { mkdir, mkdtemp, rm, stat, symlink, writeFile } from "node:fs/promises";
import { existsSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { makeDirectory } from "./make-directory.ts";

describe("makeDirectory", () => {
  let directory = "";

  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), "toolyard-directories-"));
  });

  afterAll(() => rm(directory, { recursive: true, force: true }));

  test("makes what is missing above it, for its owner alone, also twenty times at once", async () => {
    const path = join(directory, "a", "b", "c");
    await Promise.all(Array.from({ length: 20 }, () => makeDirectory(path)));
    expect((await stat(path)).mode & 0o777).toBe(0o700);
  });

  test("leaves one alone that is there, behind a link too", async () => {
    await mkdir(join(directory, "there"), { mode: 0o755 });
    await symlink("there", join(directory, "link"));
    await makeDirectory(join(directory, "link"));
    expect((await stat(join(directory, "there"))).mode & 0o777).toBe(0o755);
  });

  test("says where a file is in its way", async () => {
    await writeFile(join(directory, "file"), "");
    await expect(makeDirectory(join(directory, "file"))).rejects.toMatchObject({ code: "EEXIST" });
    await expect(makeDirectory(join(directory, "file", "below"))).rejects.toMatchObject({ code: "ENOTDIR" });
  });

  test.skipIf(!existsSync("/proc/self"))("gives up where none can be made", async () => {
    await expect(makeDirectory("/proc/toolyard/below")).rejects.toMatchObject({ code: "ENOENT" });
  });
});
