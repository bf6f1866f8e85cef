import { randomBytes } from "node:crypto";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { Sealer } from "../secrets/sealer.ts";
import { tenantSettingsSchema } from "../tenants/settings.ts";
import { type TenantConfig } from "../tenant-config.ts";
import { newSession } from "./peer.ts";
import { readSessionId, requestIdIn, toSessionId } from "./session-token.ts";
import { readSignedText, signText } from "./signed-text.ts";

const dataKey = new Uint8Array(randomBytes(32));
const vault = {
  currentKeyId: "test",
  keyIds: ["test"],
  wrap: () => Promise.resolve("wrapped"),
  unwrap: (tenant: string) => Promise.resolve(dataKey.map((byte, at) => byte ^ (tenant.charCodeAt(at) || 0))),
};
/** Another instance has a sealer of its own. */
const deps = (): { sealer: Sealer } => ({
  sealer: new Sealer(vault, { now: () => 0, sleep: () => Promise.resolve() }),
});
const owner = (tenant: string): { tenant: string; config: TenantConfig } => ({
  tenant,
  config: {
    tenant,
    version: 1,
    settings: tenantSettingsSchema.parse({}),
    plugins: [],
    services: [],
    nodes: [],
    tavern: [],
    flows: [],
    variables: [],
    agents: [],
    providers: [],
    credentials: [],
    budgets: [],
    prices: { own: [], operator: [] },
    unreadable: [],
    wrappedKey: `wrapped-${tenant}`,
  },
});

describe("the id of a session", () => {
  const asked = {
    protocolVersion: "2025-06-18",
    capabilities: { elicitation: {} },
    clientInfo: { name: "c", version: "1" },
  };

  test("tells every instance what was agreed on", async () => {
    const session = newSession(asked);
    const id = await toSessionId(deps(), owner("ten_a"), session);
    expect(id).toMatch(/^[\x21-\x7e]+$/);
    expect(await readSessionId(deps(), owner("ten_a"), id)).toEqual({
      nonce: session.nonce,
      revision: "2025-06-18",
      takesForms: true,
      client: "c/1",
    });
  });

  test("is none for another tenant, nor once anything of it has changed", async () => {
    const id = await toSessionId(deps(), owner("ten_a"), newSession(asked));
    expect(await readSessionId(deps(), owner("ten_b"), id)).toBeUndefined();
    await fc.assert(
      fc.asyncProperty(fc.nat(id.length - 1), fc.constantFrom("A", "b", "9", ".", "", "é"), async (at, character) => {
        const changed = id.slice(0, at) + character + id.slice(at + 1);
        if (changed === id) return;
        expect(await readSessionId(deps(), owner("ten_a"), changed)).toBeUndefined();
      }),
      { numRuns: 50 },
    );
  });

  test("cannot stand for anything else that is signed, nor the other way round", async () => {
    const approval = await signText(deps(), owner("ten_a"), ["approval", "key_1", "x"], ["call_1", 1]);
    expect(await readSessionId(deps(), owner("ten_a"), approval)).toBeUndefined();
    expect(await readSignedText(deps(), owner("ten_a"), ["approval", "key_1", "y"], approval)).toBeUndefined();
    expect(await readSignedText(deps(), owner("ten_a"), ["approval", "key_1", "x"], approval)).toEqual(["call_1", 1]);
  });
});

describe("the request id of a session's request", () => {
  test("differs with session, id and the id's type", () => {
    const [one, two] = [newSession({}), newSession({})];
    const ids = [requestIdIn(one, 1), requestIdIn(one, "1"), requestIdIn(one, 2), requestIdIn(two, 1)];
    expect(new Set(ids).size).toBe(4);
    expect(requestIdIn(one, 1)).toBe(ids[0]);
    expect(ids[0]).toMatch(/^mcp_[\w-]{32}$/);
  });
});
