import { mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { describe, expect, onTestFinished, test } from "vitest";
import { verifies } from "../../test/support/verifies.ts";
import { createFileExecutor } from "./files.ts";

describe(`files of a node ${verifies("VCP-16")}`, () => {
  test.each(["shared", "C# and more", "who?", "100%", "图片"])(
    "are given from a directory called '%s'",
    async (name) => {
      const machine = await mkdtemp(join(tmpdir(), "node-files-"));
      onTestFinished(() => rm(machine, { recursive: true }));
      const directory = join(machine, name);
      await mkdir(directory);
      await writeFile(join(directory, "note.txt"), "given");
      await writeFile(join(machine, "secret.txt"), "kept");
      await symlink(join(machine, "secret.txt"), join(directory, "link.txt"));
      const ask = (file: string) => {
        const fileUrl = pathToFileURL(join(directory, file)).href;
        return createFileExecutor([directory]).execute({
          run: "r1",
          arguments: { fileUrl },
          signal: new AbortController().signal,
          traceId: undefined,
          onProgress: () => undefined,
        });
      };
      const given = await ask("note.txt");
      expect(given.status, given.message).toBe("completed");
      expect(JSON.parse(given.output)).toMatchObject({ fileData: Buffer.from("given").toString("base64") });
      expect(await ask("link.txt")).toMatchObject({ status: "failed" });
    },
  );
});
