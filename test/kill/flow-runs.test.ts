/** Runs of flows under deaths of the server form; TOOLYARD_TESTS=long makes 500 of them. */
import { isLong } from "../support/long.ts";
import { describeFlowRuns } from "./flow-runs.ts";

describeFlowRuns(
  isLong
    ? { runsEach: 250, clientsEach: 10, blows: 400, calmMs: 1_500, endsWithinMs: 900_000 }
    : { runsEach: 8, clientsEach: 4, blows: 12, calmMs: 300, endsWithinMs: 120_000 },
);
