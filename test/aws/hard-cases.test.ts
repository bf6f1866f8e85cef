/** The deaths of functions that the table of kill points does not have; only with TOOLYARD_TESTS=long. */
import { describe, inject } from "vitest";
import { describeHardCases } from "../kill/hard-cases.ts";
import { isLong } from "../support/long.ts";
import { openDeployments } from "./killable-site.ts";

if (!isLong) console.log("Skipped: the hard cases on AWS, which take minutes; TOOLYARD_TESTS=long npm test -- aws.");

describe.skipIf(!isLong || inject("runtimeClientMissing") !== "")("functions under the runtime client", () => {
  describeHardCases({ openSite: openDeployments, lanesAtOnce: 3 });
});
