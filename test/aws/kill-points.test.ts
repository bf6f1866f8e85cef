/** The functions killed at every kill point; TOOLYARD_TESTS=long leaves no way to die out. */
import { describe, inject } from "vitest";
import { describeKillPoints } from "../kill/kill-points.ts";
import { isLong } from "../support/long.ts";
import { openDeployments } from "./killable-site.ts";

describe.skipIf(inject("runtimeClientMissing") !== "")("functions under the runtime client", () => {
  describeKillPoints({ openSite: openDeployments, lanesAtOnce: 3, skipsWalks: !isLong });
});
