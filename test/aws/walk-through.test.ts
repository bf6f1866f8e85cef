/** The walk through the product on AWS as far as it can be had here: real bundles, real runtime client. */
import { describe, inject } from "vitest";
import { describeWalkThrough } from "../e2e/walk-through.ts";
import { startFunctionsHome } from "./home.ts";

describe.skipIf(inject("runtimeClientMissing") !== "")("under the runtime client", () => {
  describeWalkThrough({ "Lambda functions behind a REST API, queues and a schedule": startFunctionsHome }, 1);
});
