import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createFakeCore } from "../../../../test/support/fake-core.ts";
import { newId } from "../ids.ts";
import { hashTicket, issueTicket, tenantOfTicket } from "./ticket.ts";

const caller = { kind: "key", id: "key_1", role: "member", scopes: [], tools: null } as const;

describe("a ticket", () => {
  test("names its tenant; only its hash is handed to the database", async () => {
    const given: unknown[] = [];
    const { repos } = createFakeCore();
    const issue = (_tenant: string, ticket: unknown): Promise<number> => Promise.resolve(given.push(ticket));
    const deps = { repos: { ...repos, connections: { ...repos.connections, issueTicket: issue } } };
    const tenant = newId("tenant");
    const { ticket } = await issueTicket(deps, tenant, { caller, until: 5 });
    expect(tenantOfTicket(ticket)).toBe(tenant);
    expect(given).toEqual([{ hash: hashTicket(ticket), caller, until: 5, lifetimeMs: 60_000 }]);
    expect(JSON.stringify(given)).not.toContain(ticket);
    expect((await issueTicket(deps, tenant, { caller, until: null })).ticket).not.toBe(ticket);
  });

  test.each([
    "",
    "tyws_",
    "ty_abc_" + "a".repeat(43),
    `tyws_abc_${"a".repeat(42)}`,
    `tyws_A_${"a".repeat(43)}`,
    ` tyws_a_${"a".repeat(43)}`,
  ])("%j is none", (text) => expect(tenantOfTicket(text)).toBeUndefined());

  test("no text but a ticket names a tenant", () => {
    fc.assert(fc.property(fc.string(), (text) => tenantOfTicket(text) === undefined));
  });
});
