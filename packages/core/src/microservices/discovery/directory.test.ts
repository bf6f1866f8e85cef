/** What a registry says is kept in bounds (SVC-3). */
import { expect, test } from "vitest";
import { verifies } from "../../../../../test/support/verifies.ts";
import type { CredentialResolver } from "../../blind/credential-resolver.ts";
import type { Clock } from "../../ports/clock.ts";
import type { Egress } from "../../ports/egress.ts";
import type { OpenService } from "../../services/scheme.ts";
import type { InvocationContext } from "../../tools/adapter.ts";
import { svcConfigSchema, type SvcConfig } from "../config.ts";
import { Directory } from "./directory.ts";

test(`a service with more instances than a configuration may name is cut, and the log says so ${verifies("SVC-3")}`, async () => {
  const known = Array.from({ length: 1_200 }, (_each, index) => ({
    Service: { Address: index === 0 ? "10.0.0.256" : `10.0.${index >> 8}.${index & 255}`, Port: 80 },
  }));
  const request = async (): Promise<unknown> => ({
    status: 200,
    headers: {},
    body: (async function* () {
      yield Buffer.from(JSON.stringify(known));
    })(),
  });
  const logged: string[] = [];
  const directory = new Directory({
    egress: { request } as unknown as Egress,
    credentials: {} as CredentialResolver,
    clock: { now: () => 0 } as Clock,
    log: { log: (_level, message) => void logged.push(message) },
  });
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
  const instances = await directory.instancesOf(service, context);
  expect([instances.length, instances[0]?.host]).toEqual([1_000, "10.0.0.1"]);
  expect(logged).toEqual([expect.stringContaining("more instances")]);
});
