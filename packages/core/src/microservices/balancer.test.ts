/** How calls are spread, and who is passed over (SVC-3, SVC-4). */
import { expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { Balancer } from "./balancer.ts";
import type { Balance } from "./fields.ts";
import { authorityOf, type Instance } from "./instance.ts";

const instance = (host: string, weight = 1): Instance => ({ host, port: 80, weight });

function bench(
  balance: Balance,
  instances: readonly Instance[],
): { readonly balancer: Balancer; readonly clock: { time: number } } {
  const clock = { time: 1_000 };
  const balancer = new Balancer({ balance, failures: 2, openMs: 500 }, { now: () => clock.time });
  balancer.update(instances);
  return { balancer, clock };
}

function shares(balancer: Balancer, picks: number): Record<string, number> {
  const counts: Record<string, number> = {};
  for (let index = 0; index < picks; index += 1) {
    const picked = balancer.pick();
    picked?.end("well");
    const host = picked?.instance.host ?? "nobody";
    counts[host] = (counts[host] ?? 0) + 1;
  }
  return counts;
}

/** Who is picked next, without an end. */
const next = (balancer: Balancer, except?: ReadonlySet<string>): string | undefined =>
  balancer.pick(except)?.instance.host;

const three = [instance("a"), instance("b"), instance("c")];

test(`round robin gives each its turn ${verifies("SVC-3")}`, () => {
  const { balancer } = bench("round_robin", three);
  expect(shares(balancer, 300)).toEqual({ a: 100, b: 100, c: 100 });
});

test(`ten thousand weighted picks follow the weights ${verifies("SVC-3")}`, () => {
  const { balancer } = bench("weighted", [instance("a", 5), instance("b", 3), instance("c", 2)]);
  const counts = shares(balancer, 10_000);
  for (const [host, share] of Object.entries({ a: 0.5, b: 0.3, c: 0.2 })) {
    expect(Math.abs((counts[host] ?? 0) / 10_000 - share)).toBeLessThan(share * 0.03);
  }
});

test("least pending looks through as many as there are", () => {
  const many = Array.from({ length: 200_000 }, (_each, index) => instance(`h${index}`));
  expect(next(bench("least_pending", many).balancer)).toMatch(/^h/);
});

test("the random one may take any", () => {
  const draws = [0.99, 0, 0.5];
  const balancer = new Balancer(
    { balance: "random", failures: 2, openMs: 500 },
    { now: () => 0 },
    () => draws.shift() ?? 0,
  );
  balancer.update(three);
  expect([next(balancer), next(balancer)]).toEqual(["a", "b"]);
});

test("the one with the fewest calls under way is taken where that is asked for", () => {
  const { balancer } = bench("least_pending", three);
  const first = new Set([next(balancer), next(balancer)]);
  expect(first.size).toBe(2);
  const third = next(balancer);
  expect(first.has(third)).toBe(false);
});

test(`an instance that fails in a row is passed over until one call finds it well ${verifies("SVC-4")}`, () => {
  const { balancer, clock } = bench("round_robin", [instance("a"), instance("b")]);
  const others = new Set([authorityOf(instance("b"))]);
  for (let failures = 0; failures < 2; failures += 1) balancer.pick(others)?.end("failed");
  expect(shares(balancer, 10)).toEqual({ b: 10 });
  clock.time += 500;
  // One call goes to see; meanwhile the others still go elsewhere.
  const picks = [balancer.pick(), balancer.pick(), balancer.pick()];
  expect(picks.filter((picked) => picked?.instance.host === "a")).toHaveLength(1);
  for (const picked of picks) picked?.end("well");
  expect(shares(balancer, 10)).toEqual({ a: 5, b: 5 });
});

test(`a trial that fails closes the instance again, and one that says nothing frees the trial ${verifies("SVC-4")}`, () => {
  const { balancer, clock } = bench("round_robin", [instance("a"), instance("b")]);
  const others = new Set([authorityOf(instance("b"))]);
  for (let failures = 0; failures < 2; failures += 1) balancer.pick(others)?.end("failed");
  clock.time += 500;
  const trial = [balancer.pick(), balancer.pick()].find((picked) => picked?.instance.host === "a");
  trial?.end(undefined);
  const again = [balancer.pick(), balancer.pick()].find((picked) => picked?.instance.host === "a");
  expect(again).toBeDefined();
  again?.end("failed");
  expect(shares(balancer, 4)).toEqual({ b: 4 });
});

test("where all have failed calls still go somewhere, and those that were tried are left out", () => {
  const { balancer } = bench("round_robin", [instance("a"), instance("b")]);
  for (let failures = 0; failures < 8; failures += 1) balancer.pick()?.end("failed");
  expect(next(balancer)).toBeDefined();
  expect(next(balancer, new Set(["a:80", "b:80"]))).toBeUndefined();
});

test("instances that go take nothing with them, and those that stay keep what is known of them", () => {
  const { balancer } = bench("round_robin", [instance("a"), instance("b")]);
  const others = new Set([authorityOf(instance("b"))]);
  for (let failures = 0; failures < 2; failures += 1) balancer.pick(others)?.end("failed");
  balancer.update([instance("a"), instance("c")]);
  expect(shares(balancer, 4)).toEqual({ c: 4 });
});
