import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { createFakeCore } from "../../../../test/support/fake-core.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { BreakerRepo } from "../ports/tool-services.ts";
import type { ToolReply } from "../tools/tool-call.ts";
import { Breakers, type Guarded } from "./breaker.ts";
import { OpenBreakers } from "./open-breakers.ts";

const well: ToolReply = { mediaType: "text/plain", body: "well" };
const guarded: Guarded = {
  tenant: "ten_1",
  service: "svc_1",
  version: 1,
  options: { failures: 2, open_ms: 50 },
  name: "api://crm",
  timeoutMs: 1_000,
  hasTimedOut: () => false,
};

const down = (): Promise<ToolReply> => Promise.reject(new GatewayError("tool_unreachable", "Nobody is there."));
const wait = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

/** What the database holds of one service, and how often it was asked. */
function table(): { readonly repo: BreakerRepo; readonly asked: string[]; readonly row: { openUntil: number } } {
  const row = { openUntil: 0, trialUntil: 0 };
  const asked: string[] = [];
  return {
    row,
    asked,
    repo: {
      async open(_tenant, { openMs }) {
        asked.push("open");
        Object.assign(row, { openUntil: performance.now() + openMs, trialUntil: 0 });
      },
      async claimTrial(_tenant, { trialMs }) {
        asked.push("claim");
        await wait(5);
        if (row.openUntil === 0) return "closed";
        if (row.openUntil > performance.now() || row.trialUntil > performance.now()) return "taken";
        row.trialUntil = performance.now() + trialMs;
        return "claimed";
      },
      async releaseTrial() {
        asked.push("release");
        row.trialUntil = 0;
      },
      async close() {
        asked.push("close");
        Object.assign(row, { openUntil: 0, trialUntil: 0 });
      },
    },
  };
}

interface Instance {
  readonly breakers: Breakers;
  /** As an admission does. */
  look(): void;
}

function instanceAt({ repo, row }: ReturnType<typeof table>): Instance {
  const openBreakers = new OpenBreakers();
  const { log } = createFakeCore();
  return {
    breakers: new Breakers({ repos: { breakers: repo }, openBreakers, log }),
    look: () => {
      const { tenant, service, version } = guarded;
      const open = row.openUntil === 0 ? [] : [{ service, version, leftMs: row.openUntil - performance.now() }];
      openBreakers.note(tenant, open, performance.now());
    },
  };
}

const codeOf = async (call: Promise<unknown>): Promise<string> => {
  try {
    await call;
    return "well";
  } catch (error) {
    return error instanceof GatewayError ? error.code : "unexpected";
  }
};

describe(`breakers of several instances ${verifies("SVC-4")}`, () => {
  test("cost the database nothing while all is well, and one write however many calls fail at once", async () => {
    const database = table();
    const { breakers } = instanceAt(database);
    for (let call = 0; call < 3; call += 1) expect(await breakers.guard(guarded, async () => well)).toBe(well);
    expect(database.asked).toEqual([]);
    await Promise.all(Array.from({ length: 100 }, () => codeOf(breakers.guard(guarded, down))));
    expect(database.asked).toEqual(["open"]);
  });

  test("are open for all once one instance has opened them, and closed for all once one has closed them", async () => {
    const database = table();
    const [first, second] = [instanceAt(database), instanceAt(database)];
    for (let call = 0; call < 2; call += 1) await codeOf(first.breakers.guard(guarded, down));
    second.look();
    expect(await codeOf(second.breakers.guard(guarded, async () => well))).toBe("circuit_open");
    await wait(60);
    second.look();
    expect(await codeOf(second.breakers.guard(guarded, async () => well))).toBe("well");
    first.look();
    expect(await codeOf(first.breakers.guard(guarded, async () => well))).toBe("well");
    expect(database.asked).toEqual(["open", "claim", "close"]);
  });

  test("let one call of a hundred through when they are half open, on whichever instance", async () => {
    const database = table();
    const instances = [instanceAt(database), instanceAt(database)] as const;
    for (let call = 0; call < 2; call += 1) await codeOf(instances[0].breakers.guard(guarded, down));
    await wait(60);
    for (const instance of instances) instance.look();
    let sent = 0;
    const { promise: answered, resolve: answer } = Promise.withResolvers<void>();
    const send = async (): Promise<ToolReply> => {
      sent += 1;
      await answered;
      return well;
    };
    const calls = Array.from({ length: 100 }, (_none, at) => {
      const { breakers } = at % 2 === 0 ? instances[0] : instances[1];
      return codeOf(breakers.guard(guarded, send));
    });
    await wait(30);
    answer();
    const outcomes = await Promise.all(calls);
    expect(sent).toBe(1);
    expect(outcomes.filter((outcome) => outcome === "circuit_open")).toHaveLength(99);
  });

  test("open again when the trial fails, and are tried anew when it found out nothing", async () => {
    const database = table();
    const { breakers, look } = instanceAt(database);
    for (let call = 0; call < 2; call += 1) await codeOf(breakers.guard(guarded, down));
    await wait(60);
    look();
    expect(await codeOf(breakers.guard(guarded, down))).toBe("tool_unreachable");
    look();
    expect(await codeOf(breakers.guard(guarded, down))).toBe("circuit_open");
    await wait(60);
    look();
    const cancelled = (): Promise<ToolReply> => Promise.reject(new GatewayError("call_cancelled", "Given up."));
    expect(await codeOf(breakers.guard(guarded, cancelled))).toBe("call_cancelled");
    look();
    expect(await codeOf(breakers.guard(guarded, async () => well))).toBe("well");
    expect(database.asked).toEqual(["open", "claim", "open", "claim", "release", "claim", "close"]);
  });

  test("go on in their own instance while the database is away", async () => {
    const gone = (): Promise<never> => Promise.reject(new GatewayError("database_unavailable", "Away."));
    const repo: BreakerRepo = { open: gone, claimTrial: gone, releaseTrial: gone, close: gone };
    const { log, lines } = createFakeCore();
    const breakers = new Breakers({ repos: { breakers: repo }, openBreakers: new OpenBreakers(), log });
    for (let call = 0; call < 2; call += 1)
      expect(await codeOf(breakers.guard(guarded, down))).toBe("tool_unreachable");
    expect(await codeOf(breakers.guard(guarded, down))).toBe("circuit_open");
    await wait(60);
    expect(await codeOf(breakers.guard(guarded, async () => well))).toBe("well");
    expect(await codeOf(breakers.guard(guarded, async () => well))).toBe("well");
    expect(lines.map(({ fields }) => fields["code"])).toEqual(["database_unavailable", "database_unavailable"]);
  });
});
