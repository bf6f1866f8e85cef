import { expect, test } from "vitest";
import { callContext } from "../../../../../../test/support/call-context.ts";
import type { NativeRun } from "../native-tool.ts";
import { runInBox } from "./run.ts";

test("many files and many long names of them take no time with the product of both", async () => {
  const directory = Array.from({ length: 30 }, () => "b".repeat(31)).join("/");
  const paths = Array.from({ length: 256 }, (_, at) => `${directory}/${at}`);
  const files = [
    ...paths.slice(0, -1).map((path) => ({ path, bytes: 1, blobKey: path })),
    ...Array.from({ length: 20_000 }, (_, at) => ({ path: `work/${at}`, bytes: 1, blobKey: `${at}` })),
  ];
  const run = {
    deps: { codeBox: {} },
    context: callContext({ sessionId: "ses_1" }),
    call: {},
    workspace: { list: () => Promise.resolve(files) },
  } as unknown as NativeRun;
  await expect(runInBox({ language: "python", code: "1", files: paths }, run)).rejects.toMatchObject({
    code: "file_not_found",
    details: { param: "files" },
    message: expect.stringContaining("/255'"),
  });
});
