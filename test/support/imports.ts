/** Imports of OpenAPI documents by a tenant, and what has become of them. */
import type { Json, TestTenant } from "./gateway-client.ts";
import type { HttpStub, RecordedRequest } from "./http-stub.ts";

export const ok = { responses: { 200: { description: "ok" } } };
export const text = { schema: { type: "string" } };

export interface ImportPeers {
  readonly tenant: TestTenant;
  readonly backEnd: HttpStub;
}

export interface Imports {
  /** A document whose server is the back end. */
  documentOf(paths: Json, change?: Json): Json;
  importing(openapi: Json, more?: Json): Promise<Json>;
  /** Status and error of an import that is refused. */
  refusal(openapi: Json, more?: Json): Promise<Json>;
  /** What a tool has sent. */
  call(name: string, args?: Json): Promise<RecordedRequest>;
}

/** @param peers those of the test that runs */
export function importsOf(peers: () => ImportPeers): Imports {
  return {
    documentOf: (paths, change = {}) => ({
      openapi: "3.0.3",
      info: { title: "Demo", version: "1" },
      servers: [{ url: `${peers().backEnd.url}/v1` }],
      paths,
      ...change,
    }),
    importing: (openapi, more = {}) => peers().tenant.client.post("/v1/plugins/import", { openapi, ...more }),
    async refusal(openapi, more = {}) {
      const reply = await peers().tenant.client.send("post", "/v1/plugins/import", { openapi, ...more });
      return { status: reply.status, ...reply.json.error };
    },
    async call(name, args = {}) {
      const { tenant, backEnd } = peers();
      await tenant.client.post("/v1/tools/invoke", { name, arguments: args });
      const sent = backEnd.requests.at(-1);
      if (sent === undefined) throw new Error("nothing was sent");
      return sent;
    },
  };
}

export const namesOf = async (of: TestTenant): Promise<readonly string[]> =>
  (await pluginsOf(of)).map(({ name }): string => name).sort();

export const pluginsOf = async (of: TestTenant): Promise<Json[]> =>
  (await of.client.get("/v1/plugins?limit=100")).data.filter(({ type }: Json) => type === "HTTP");

export const definitionOf = ({ operations }: Json, operation: string): Json =>
  operations.find((each: Json) => each.operation === operation)?.definition;
