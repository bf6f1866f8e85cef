import { describe, expect, test } from "vitest";
import { GatewayError } from "../errors/gateway-error.ts";
import { newId } from "../ids.ts";
import type { Egress } from "../ports/egress.ts";
import { hashApiKey, newApiKey } from "./api-key.ts";
import { createAuthenticator, type Authenticator } from "./authenticate.ts";

const operatorKey = "the-operator-holds-this-key";

function authenticator(defaultTenant?: string): Authenticator {
  const nothing = (): never => {
    throw new Error("not expected to be asked");
  };
  const egress: Egress = {
    request: nothing,
    upgrade: nothing,
    checkUrl: nothing,
    connect: nothing,
    connectHttp2: nothing,
    checkTarget: nothing,
    close: nothing,
  };
  return createAuthenticator({
    issuers: { find: () => Promise.resolve([]) },
    egress,
    clock: { now: () => 0, sleep: nothing },
    log: { log: nothing },
    adminKeyHash: hashApiKey(operatorKey),
    ...(defaultTenant === undefined ? {} : { defaultTenant }),
  });
}

const headers = (given: Record<string, string>) => (name: string) => given[name];

async function refusal(present: () => unknown): Promise<GatewayError> {
  let thrown: unknown;
  try {
    await present();
  } catch (error) {
    thrown = error;
  }
  if (!(thrown instanceof GatewayError)) throw new Error("expected a GatewayError");
  return thrown;
}

describe("who presents a request", () => {
  const tenant = newId("tenant");
  const { key, hash } = newApiKey(tenant);

  test.each([
    ["as a bearer", { authorization: `Bearer ${key}` }],
    ["as a bearer in any case and spacing", { authorization: `bearer   ${key} ` }],
    ["in x-api-key", { "x-api-key": key }],
    ["in x-api-key beside an empty Authorization", { authorization: "", "x-api-key": key }],
    ["beside its own tenant's name", { authorization: `Bearer ${key}`, "x-toolyard-tenant": tenant }],
  ])("an API key %s", async (_how, given) => {
    expect(await authenticator().presentCaller(headers(given))).toEqual({ tenant, principal: { kind: "key", hash } });
  });

  test("the operator acts on the tenant named, else on the default one", async () => {
    const named = await authenticator("ten_default").presentCaller(
      headers({ authorization: `Bearer ${operatorKey}`, "x-toolyard-tenant": tenant }),
    );
    const byDefault = await authenticator("ten_default").presentCaller(headers({ "x-api-key": operatorKey }));
    expect([named.tenant, byDefault.tenant]).toEqual([tenant, "ten_default"]);
    expect(named.principal).toMatchObject({ kind: "known", caller: { kind: "operator", role: "operator" } });
  });

  test("the operator without a tenant is asked for one", async () => {
    const error = await refusal(() =>
      authenticator().presentCaller(headers({ authorization: `Bearer ${operatorKey}` })),
    );
    expect(error).toMatchObject({ code: "tenant_required", details: { param: "x-toolyard-tenant" } });
  });

  test("only the operator's own key is the operator's", () => {
    const asked = authenticator();
    expect(asked.isOperator(headers({ authorization: `Bearer ${operatorKey}` }))).toBe(true);
    expect(asked.isOperator(headers({ authorization: `Bearer ${operatorKey}x` }))).toBe(false);
    expect(asked.isOperator(headers({ authorization: `Bearer ${hashApiKey(operatorKey)}` }))).toBe(false);
    expect(asked.isOperator(headers({}))).toBe(false);
  });

  test.each([
    ["nothing", {}, /No API key was sent/],
    ["another scheme", { authorization: `Basic ${key}` }, /must be 'Bearer <key>'/],
    ["a bearer without key", { authorization: "Bearer " }, /must be 'Bearer <key>'/],
    ["two words", { authorization: `Bearer ${key} ${key}` }, /must be 'Bearer <key>'/],
    ["a cut key", { authorization: `Bearer ${key.slice(0, -1)}` }, /neither an API key/],
    [
      "another tenant's name",
      { authorization: `Bearer ${key}`, "x-toolyard-tenant": newId("tenant") },
      /another tenant/,
    ],
  ])("%s is refused and says why, without repeating secrets", async (_what, given, message) => {
    const error = await refusal(() => authenticator("ten_default").presentCaller(headers(given)));
    expect(error.code).toBe("invalid_api_key");
    expect(error.message).toMatch(message);
    expect(error.message).not.toContain(key.slice(-20));
  });
});
