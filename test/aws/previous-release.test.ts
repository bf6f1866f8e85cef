/** During a deployment the functions of the release before serve on the schema of this one, beside this one's. */
import { readFile } from "node:fs/promises";
import { describe, expect, inject, test } from "vitest";
import { describeWalkThrough } from "../e2e/walk-through.ts";
import { startTwoReleasesHome } from "./home.ts";
import { releaseFile } from "./previous-release/previous-release.ts";

describe.skipIf(inject("runtimeClientMissing") !== "")("under the runtime client", () => {
  describeWalkThrough({ "this release and the one before it, request by request": startTwoReleasesHome });
});

test("the release before is recorded by its commit", async () => {
  expect(JSON.parse(await readFile(releaseFile, "utf8"))).toEqual({
    version: expect.stringMatching(/^\d+\.\d+\.\d+$/),
    commit: expect.stringMatching(/^[0-9a-f]{40}$/),
    apiTransferMode: expect.stringMatching(/^(BUFFERED|STREAM)$/),
  });
});
