/** What a registry says is kept in bounds (SVC-3). */
import { createFakeClock } from "@toolyard/platform/memory/fake-clock";
import { expect, test, vi } from "vitest";
import { verifies } from "../../../../../test/support/verifies.ts";
import type { CredentialResolver } from "../../blind/credential-resolver.ts";
import type { Clock } from "../../ports/clock.ts";
import type { Egress } from "../../ports/egress.ts";
import type { OpenService } from "../../services/scheme.ts";
import type { InvocationContext } from "../../tools/tool-call.ts";
import { svcConfigSchema, type SvcConfig } from "../config.ts";
import { Directory } from "./directory.ts";

const config = svcConfigSchema.parse({
  protocol: "http",
  discovery: { type: "consul", url: "http://consul.example.com:8500", service: "loyalty" },
});
const service = { config, record: { id: "tsv_1", version: 1, config: {} } } as unknown as OpenService<SvcConfig>;
const context = {
  tenant: "acme",
  signal: new AbortController().signal,
  config: { credentials: [] },
} as unknown as InvocationContext;

/** As Consul answers. */
const knowing = (...hosts: readonly string[]): unknown => ({
  status: 200,
  headers: {},
  body: (async function* () {
    yield Buffer.from(JSON.stringify(hosts.map((Address) => ({ Service: { Address, Port: 80 } }))));
  })(),
});

test(`a service with more instances than a configuration may name is cut, and the log says so ${verifies("SVC-3")}`, async () => {
  const hosts = Array.from({ length: 1_200 }, (_each, index) =>
    index === 0 ? "10.0.0.256" : `10.0.${index >> 8}.${index & 255}`,
  );
  const request = async (): Promise<unknown> => knowing(...hosts);
  const logged: string[] = [];
  const directory = new Directory({
    egress: { request } as unknown as Egress,
    credentials: {} as CredentialResolver,
    clock: { now: () => 0 } as Clock,
    log: { log: (_level, message) => void logged.push(message) },
  });
  const instances = await directory.instancesOf(service, context);
  expect([instances.length, instances[0]?.host]).toEqual([1_000, "10.0.0.1"]);
  expect(logged).toEqual([expect.stringContaining("more instances")]);
});

test(`a registry that hangs holds up one call for a moment, where there is a list to go on with ${verifies("SVC-3")}`, async () => {
  const answers: ((answer: unknown) => void)[] = [];
  const clock = createFakeClock();
  const directory = new Directory({
    egress: { request: () => new Promise((answer) => answers.push(answer)) } as unknown as Egress,
    credentials: {} as CredentialResolver,
    clock,
    log: { log: () => undefined },
  });
  const hostsNow = async (): Promise<readonly string[]> =>
    (await directory.instancesOf(service, context)).map(({ host }) => host);
  const asked = (times: number): Promise<void> => vi.waitFor(() => expect(answers).toHaveLength(times));

  const first = hostsNow();
  await asked(1);
  answers[0]?.(knowing("10.0.0.1"));
  expect(await first).toEqual(["10.0.0.1"]);

  await clock.advance(10_000);
  const held = hostsNow();
  await asked(2);
  await clock.advance(1_000);
  expect(await held).toEqual(["10.0.0.1"]);
  expect(await hostsNow()).toEqual(["10.0.0.1"]);
  expect(answers).toHaveLength(2);

  answers[1]?.(knowing("10.0.0.2"));
  await vi.waitFor(async () => expect(await hostsNow()).toEqual(["10.0.0.2"]));
  expect(answers).toHaveLength(2);
});
