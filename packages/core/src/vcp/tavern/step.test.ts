import { expect, test } from "vitest";
import { callContext } from "../../../../../test/support/call-context.ts";
import { createFakeCore } from "../../../../../test/support/fake-core.ts";
import { verifies } from "../../../../../test/support/verifies.ts";
import { messagesOf, toDraft } from "../pipeline/draft.ts";
import { applyTavern } from "./step.ts";

const cited = verifies("VCP-9");
test.for(["system", "developer"])(
  `of the role %s, a prompt that only asked for a preset which is not there is no empty message ${cited}`,
  async (role) => {
    const core = createFakeCore();
    const user = { role: "user", content: "hi" };
    const draft = toDraft([{ role, content: "{{VCPTavern::Gone}}" }, user]);
    expect(messagesOf(await applyTavern(core, callContext(), draft, { callId: "call_1", session: undefined }))).toEqual(
      [user],
    );
    expect(core.lines).toMatchObject([{ fields: { reason: "there is no preset 'Gone'" } }]);
  },
);
