import { callContext } from "./call-context.ts";
import { createFakeCore, unscripted } from "./fake-core.ts";
import type { PluginRecord } from "@toolyard/core/blind/plugin";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { importPlugins } from "@toolyard/core/import/import";
import { importRequestSchema } from "@toolyard/core/import/request";
import type { ImportResult } from "@toolyard/core/import/result";
import type { JsonObject } from "@toolyard/core/json";
import type { Egress, EgressRequest } from "@toolyard/core/ports/egress";
import type { PluginChanges, PluginRepo } from "@toolyard/core/ports/plugins";

/** Where the documents of these tests are. */
export const documentUrl = "https://docs.example.com/api/openapi.json";

interface World {
  /** Bodies by address; an error is thrown, a text that starts with `->` is where the answer came from. */
  readonly served?: Readonly<Record<string, string | Error>>;
  readonly upsertMany?: PluginRepo["upsertMany"];
  /** What the tenant has. */
  readonly plugins?: readonly PluginRecord[];
}

interface Imported {
  readonly result: ImportResult;
  readonly asked: readonly EgressRequest[];
  readonly changes: readonly PluginChanges[];
}

/** An import by itself: no server, no database, what is asked for over the network answered from `served`. */
export async function runImport(
  body: JsonObject,
  { served = {}, upsertMany, plugins: existing = [] }: World = {},
): Promise<Imported> {
  const asked: EgressRequest[] = [];
  const changes: PluginChanges[] = [];
  const egress: Egress = {
    ...unscripted<Egress>("egress"),
    checkUrl: () => undefined,
    request: (request) => {
      asked.push(request);
      const answer = served[request.url] ?? new GatewayError("egress_denied", "not there");
      if (answer instanceof Error) return Promise.reject(answer);
      return Promise.resolve({ status: 200, headers: {}, url: request.url, body: piecesOf(answer) });
    },
  };
  const plugins: PluginRepo = {
    ...unscripted<PluginRepo>("plugins"),
    upsertMany: (tenant, given) => {
      changes.push(given);
      if (upsertMany !== undefined) return upsertMany(tenant, given);
      return Promise.resolve(new Map(given.create.map(({ name }, at) => [name, at + 1])));
    },
  };
  const core = createFakeCore({ core: { egress }, repos: { plugins } });
  const context = callContext();
  const config = { ...context.config, plugins: existing };
  const result = await importPlugins(core, { ...context, config }, importRequestSchema.parse(body));
  return { result, asked, changes };
}

async function* piecesOf(text: string): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < text.length; at += 1_000_000) yield Buffer.from(text.slice(at, at + 1_000_000));
}

/** A document of so many operations that take nothing. */
export const manyOperations = (count: number): JsonObject => ({
  openapi: "3.0.0",
  servers: [{ url: "https://api.example.com" }],
  paths: Object.fromEntries(Array.from({ length: count }, (_none, at) => [`/p${at}`, { get: {} }])),
});
