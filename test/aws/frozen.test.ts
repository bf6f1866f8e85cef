/** An environment that is frozen in the middle of an invocation for longer than a lease, and thawed. */
import { describe, inject } from "vitest";
import { describeFrozen } from "../kill/frozen.ts";
import { openDeployments } from "./killable-site.ts";

describe.skipIf(inject("runtimeClientMissing") !== "")("functions under the runtime client", () => {
  describeFrozen({ openSite: openDeployments });
});
