import { describe, expect, test } from "vitest";
import { callContext } from "../../../../test/support/call-context.ts";
import { createFakeCore } from "../../../../test/support/fake-core.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { withDelivery } from "../errors/delivery.ts";
import type { ToolReply } from "./tool-call.ts";
import { executeCall, type Execution } from "./execute-call.ts";
import type { PreparedCall } from "./prepare.ts";
import type { Effect, Repeat } from "./effect.ts";
import type { Tool } from "./tool.ts";
import { parseToolUri } from "./uri.ts";

const silent = withDelivery(new GatewayError("tool_unreachable", "The connection broke."), "uncertain");
const refused = withDelivery(new GatewayError("tool_unreachable", "Nobody listens."), "not_sent");
const inUse = new GatewayError("tool_failed", "This key is in use.", { extra: { status: 409 } });
const busyFor = (retryAfterMs: number): Error =>
  new GatewayError("tool_failed", "In maintenance.", { retryAfterMs, extra: { status: 503 } });
const reply: ToolReply = { mediaType: "text/plain", body: "done" };

const tool: Tool = {
  uri: "plugin://order",
  name: "order",
  description: "Orders.",
  parameters: { type: "object", properties: {} },
  kind: "HTTP",
  enabled: true,
  roles: ["member"],
  effect: "write",
  repeat: "key",
  sensitive: false,
  service: "https://shop.example.com",
  requiredCredentials: [],
  outputTrust: "outside",
  hash: "hash",
};

/** A back end that does one thing after the other with what it is sent. */
async function executeAgainst(
  answers: readonly (Error | ToolReply)[],
  change: { readonly effect?: Effect; readonly repeat?: Repeat; readonly timeoutMs?: number } = {},
): Promise<Execution & { readonly sends: number }> {
  let sends = 0;
  const call: PreparedCall = {
    id: "call_1",
    tool,
    uri: parseToolUri("plugin://order"),
    arguments: {},
    effect: "write",
    repeat: "key",
    service: tool.service,
    timeoutMs: 1_000,
    maxAttempts: 3,
    readOutside: false,
    adapter: {
      resolve: () => tool,
      list: () => [tool],
      invoke: () => {
        const answer = answers[sends];
        sends += 1;
        if (answer === undefined) throw new Error("sent more often than expected");
        return answer instanceof Error ? Promise.reject(answer) : Promise.resolve(answer);
      },
    },
    ...change,
  };
  const options = { attempt: 1, signal: new AbortController().signal };
  return { ...(await executeCall(createFakeCore(), call, callContext(), options)), sends };
}

describe(`a write of which one send got no answer ${verifies("API-5")}`, () => {
  test("is done where a later send under the same key is answered", async () => {
    expect(await executeAgainst([silent, reply])).toMatchObject({ finish: { state: "completed" }, sends: 2 });
  });

  test("stays unknown where the later sends could not even leave", async () => {
    const { finish, outcome, sends } = await executeAgainst([silent, refused, refused]);
    expect(sends).toBe(3);
    expect(finish).toMatchObject({ state: "unknown", error: { code: "outcome_unknown" } });
    expect(outcome).toMatchObject({ kind: "failed", code: "outcome_unknown" });
  });

  test("stays unknown where a later send is refused: the first may be what stands in its way", async () => {
    expect((await executeAgainst([silent, inUse])).finish.state).toBe("unknown");
  });

  test("is not sent again where the back end honours no key", async () => {
    expect(await executeAgainst([silent, reply], { repeat: "never" })).toMatchObject({
      finish: { state: "unknown" },
      sends: 1,
    });
  });
});

describe(`a call whose sends are all accounted for ${verifies("API-5")}`, () => {
  test("has failed where nothing left, however often it was tried", async () => {
    expect(await executeAgainst([refused, refused, refused], { repeat: "never" })).toMatchObject({
      finish: { state: "failed", error: { code: "tool_unreachable" } },
      sends: 3,
    });
  });

  test("has failed where it only reads, whatever became of its sends", async () => {
    expect((await executeAgainst([silent, refused, refused], { effect: "read" })).finish.state).toBe("failed");
  });
});

describe(`a back end that says when to come back ${verifies("API-5")}`, () => {
  test("is asked again where that is soon", async () => {
    expect(await executeAgainst([busyFor(500), reply])).toMatchObject({ finish: { state: "completed" }, sends: 2 });
  });

  test.each([
    ["a day later, longer than any call waits", 86_400_000, 60_000],
    ["later than this call's own time", 3_500, 1_000],
  ])("is not waited for where that is %s: the caller is told when", async (_when, retryAfterMs, timeoutMs) => {
    const { finish, outcome, sends } = await executeAgainst([busyFor(retryAfterMs), reply], { timeoutMs });
    const told = { details: { status: 503, retry_after_ms: retryAfterMs } };
    expect(sends).toBe(1);
    expect(finish).toMatchObject({ state: "failed", error: { code: "tool_failed", ...told } });
    expect(outcome).toMatchObject({ kind: "failed", ...told });
  });
});
