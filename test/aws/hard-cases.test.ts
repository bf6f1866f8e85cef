/** The deaths of functions that the table of kill points does not have; only with TOOLYARD_KILL=long. */
import { describe, inject } from "vitest";
import { describeHardCases } from "../kill/hard-cases.ts";
import { openDeployments } from "./killable-site.ts";

const isLong = process.env["TOOLYARD_KILL"] === "long";
if (!isLong) console.log("Skipped: the hard cases on AWS, which take minutes; TOOLYARD_KILL=long npm test -- aws.");

describe.skipIf(!isLong || inject("runtimeClientMissing") !== "")("functions under the runtime client", () => {
  describeHardCases({ openSite: openDeployments, lanesAtOnce: 3 });
});
