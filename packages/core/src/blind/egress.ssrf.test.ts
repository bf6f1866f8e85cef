/** Every URL of the corpus through the real door, with stubs for names and for public addresses. */
import { connect } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import * as z from "zod";
import corpus from "../../../../test/fixtures/ssrf.json" with { type: "json" };
import { startHttpStub, type HttpStub } from "../../../../test/support/http-stub.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { Egress } from "../ports/egress.ts";
import { deliveryOf } from "../errors/delivery.ts";
import { createAddressPolicy } from "./address-policy.ts";
import { createEgress, type EgressOptions } from "./egress.ts";

const caseSchema = z.object({
  id: z.string(),
  url: z.string(),
  verdict: z.enum(["allow", "deny"]),
  pinnedVerdict: z.literal("allow").optional(),
  reason: z.string(),
  dns: z.record(z.string(), z.array(z.array(z.string()))).default({}),
  redirects: z.array(z.object({ status: z.int(), location: z.string() })).default([]),
  policy: z.object({ allowedPorts: z.array(z.int()) }).optional(),
});
const cases = z.array(caseSchema).parse(corpus.cases);
type Case = (typeof cases)[number];

/** Plays each address: connections go to one stub, which believes to be what was dialled. */
function stubWorld(stub: HttpStub, { dns, policy }: Case): { readonly egress: Egress; readonly dialled: string[] } {
  const dialled: string[] = [];
  const lookups = new Map<string, number>();
  const connector: EgressOptions["connector"] = (target, callback) => {
    dialled.push(target.hostname);
    const socket = connect(stub.port, "127.0.0.1");
    Object.defineProperty(socket, "remoteAddress", { value: target.hostname });
    socket.once("connect", () => callback(null, socket));
    socket.once("error", (error) => callback(error, null));
  };
  const egress = createEgress({
    allowCidrs: [],
    ...policy,
    connector,
    resolve: (host) => {
      const answers = dns[host] ?? [];
      const turn = lookups.get(host) ?? 0;
      lookups.set(host, turn + 1);
      const answer = answers[Math.min(turn, answers.length - 1)] ?? [];
      return Promise.resolve(answer.map((address) => ({ address, family: address.includes(":") ? 6 : 4 })));
    },
  });
  return { egress, dialled };
}

let stub: HttpStub;
beforeAll(async () => {
  stub = await startHttpStub();
});
afterAll(() => stub.close());

const strict = createAddressPolicy({ allowCidrs: [] });

describe(`addresses that tools may reach ${verifies("BLIND-8", "BLIND-10")}`, () => {
  test.each(cases)("$id: $verdict $url ($reason)", async (one) => {
    const queue = [...one.redirects];
    stub.answer = () => {
      const next = queue.shift();
      return next === undefined ? { body: "{}" } : { status: next.status, headers: { location: next.location } };
    };
    const { egress, dialled } = stubWorld(stub, one);
    const request = egress.request({
      method: "GET",
      url: one.url,
      headers: [["authorization", "Bearer sentinel"]],
      timeoutMs: 5_000,
      maxRedirects: 3,
    });
    const outcome = await request.then(
      ({ status }) => ({ status }),
      (error: unknown) => ({
        code: error instanceof GatewayError ? error.code : "none",
        // What came before a refused redirect is the redirect's affair.
        delivery: one.redirects.length === 0 ? deliveryOf(error) : "any",
      }),
    );
    const isAllowed = (one.pinnedVerdict ?? one.verdict) === "allow";
    expect(outcome).toEqual(
      isAllowed
        ? { status: 200 }
        : { code: "egress_denied", delivery: one.redirects.length === 0 ? "not_sent" : "any" },
    );
    // Nothing beyond the redirect that was refused.
    expect(dialled).toHaveLength(one.redirects.length + (isAllowed ? 1 : 0));
    expect(dialled.filter((address) => strict.refuseAddress(address, 80) !== undefined)).toEqual([]);
    await egress.close();
  });

  const refused = cases.filter((one) => (one.pinnedVerdict ?? one.verdict) === "deny" && one.redirects.length === 0);
  test.each(refused)("$id: no socket for another protocol at $url ($reason)", async (one) => {
    const { egress, dialled } = stubWorld(stub, one);
    const signal = AbortSignal.timeout(5_000);
    const opening = egress.upgrade({ url: one.url, protocol: "websocket", headers: [], signal });
    const error = await opening.then(
      () => undefined,
      (thrown: unknown) => thrown,
    );
    expect(error).toHaveProperty("code", "egress_denied");
    expect(deliveryOf(error)).toBe("not_sent");
    expect(dialled).toEqual([]);
    await egress.close();
  });

  test("a name that is rebound to loopback is refused at the next connection", async () => {
    const one = cases.find(({ id }) => id === "ssrf-69");
    if (one === undefined) throw new Error("ssrf-69 is missing");
    stub.answer = () => ({ headers: { connection: "close" } });
    const { egress, dialled } = stubWorld(stub, one);
    const send = () => egress.request({ method: "GET", url: one.url, headers: [], timeoutMs: 5_000 });
    expect((await send()).status).toBe(200);
    await expect(send()).rejects.toHaveProperty("code", "egress_denied");
    expect(dialled).toEqual(["93.184.216.34"]);
    await egress.close();
  });

  test("a connection that stands with another peer than the one checked is closed before a byte is sent", async () => {
    let isClosed: Promise<unknown> | undefined;
    const before = stub.requests.length;
    const egress = createEgress({
      allowCidrs: [],
      resolve: () => Promise.resolve([{ address: "93.184.216.34", family: 4 }]),
      connector: (_target, callback) => {
        const socket = connect(stub.port, "127.0.0.1");
        isClosed = new Promise((done) => socket.once("close", done));
        socket.once("connect", () => callback(null, socket));
      },
    });
    const refused = egress.request({ method: "POST", url: "http://api.example.com/", headers: [], timeoutMs: 5_000 });
    const error = await refused.catch((thrown: unknown) => thrown);
    expect(error).toHaveProperty("code", "egress_denied");
    expect(deliveryOf(error)).toBe("not_sent");
    await isClosed;
    expect(stub.requests).toHaveLength(before);
    await egress.close();
  });

  test("an answer of the resolver that is no address is refused", async () => {
    const dns = { "api.example.com": [["127.1"]] };
    const { egress } = stubWorld(stub, caseSchema.parse({ id: "", url: "", verdict: "deny", reason: "", dns }));
    const refused = egress.request({ method: "GET", url: "http://api.example.com/", headers: [], timeoutMs: 5_000 });
    await expect(refused).rejects.toHaveProperty("code", "egress_denied");
    await egress.close();
  });

  test.each(
    cases.filter(
      ({ verdict, dns, redirects }) => verdict === "deny" && redirects.length === 0 && Object.keys(dns).length === 0,
    ),
  )("$id is refused without resolving anything, at registration: $url", ({ url, policy }) => {
    const egress = createEgress({ allowCidrs: [], ...policy });
    expect(() => egress.checkUrl(url)).toThrow(GatewayError);
  });
});
