/** The same under the functions, which freeze between invocations and die by themselves. */
import { describe, inject } from "vitest";
import { describeFlowRuns } from "../kill/flow-runs.ts";
import { openDeployments } from "./killable-site.ts";

describe.skipIf(inject("runtimeClientMissing") !== "")("functions under the runtime client", () => {
  describeFlowRuns({
    openSite: openDeployments,
    runsEach: 4,
    clientsEach: 2,
    blows: 6,
    calmMs: 1_000,
    endsWithinMs: 60_000,
  });
});
