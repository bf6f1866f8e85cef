/** Processes killed while a document comes into its knowledge base: it is found in the end, once, and whole. */
import { knowledgeKillPoints } from "@toolyard/core/calls/kill-points";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Json } from "../support/gateway-client.ts";
import { verifies } from "../support/verifies.ts";
import { createApplication } from "./application.ts";
import { eventually } from "./instance.ts";
import { openDirectory, startLane, type Lane, type Site } from "./lane.ts";

const endsWithinMs = 30_000;
const text = "Zebras have stripes. ".repeat(40).trim();
/** Several writes of chunks, so that a process can die between them. */
const config = { chunk: { size: 32, overlap: 0 }, embedding: { batch: 4 } };

let site: Site;
let lane: Lane;
beforeAll(async () => {
  site = await openDirectory();
  lane = await startLane(() => Promise.resolve(site));
});
afterAll(() => lane.close());

async function rowsOf(tenant: string): Promise<Json> {
  const count = (table: string): string => `(SELECT COUNT(*) FROM ${table} WHERE tenant = ?1)`;
  const sql = `SELECT ${count("knowledge_chunks")} AS chunks, (SELECT COUNT(*) FROM knowledge_fts) AS words`;
  const [found] = await site.database.batch([{ sql, args: [tenant] }], { readonly: true });
  return { ...found?.rows[0] };
}

describe(`a process killed while it ingests ${verifies("KB-1")}`, () => {
  test.each(knowledgeKillPoints)("at %s leaves the document to another, which finds it whole", async (at) => {
    const tenant = await lane.newTenant();
    const { id: base } = await tenant.client.post("/v1/knowledge/create", { name: "kb", config });
    const isReindex = at === "knowledge.reindex-queued";
    const asked = { knowledge_base: base, document_id: "zebra" };
    const read = async (): Promise<Json> => {
      const reply = await tenant.client.send("post", "/v1/knowledge/get_doc", asked);
      return reply.status === 200 && reply.json.state === "ready" ? reply.json : undefined;
    };
    if (isReindex) {
      await tenant.client.post("/v1/knowledge/upsert", { ...asked, text });
      await eventually("The document", endsWithinMs, read);
    }
    const victim = await lane.startInstance();
    await lane.freeze(lane.survivor);
    try {
      await victim.order({ kind: "stop", at, with: "SIGKILL" });
      const application = createApplication(victim.driver.client(tenant.key), () => {
        lane.survivor.thaw();
        return Promise.resolve(tenant.client);
      });
      const body = isReindex
        ? { path: "update_config", send: { knowledge_base: base, config: { chunk: { size: 64 } } } }
        : { path: "upsert", send: { ...asked, text } };
      await application.send("post", `/v1/knowledge/${body.path}`, { body: body.send });
      await victim.ended;
      expect(victim.output).toContain(`stopped at ${at}`);
      lane.survivor.thaw();
      const settled = async (): Promise<Json> => {
        const { data } = await tenant.client.post("/v1/knowledge/list");
        return data[0].reindex === null ? read() : undefined;
      };
      const document = await eventually("The document", endsWithinMs, settled);
      const query = { knowledge_base: base, query: "zebras", top_k: 100 };
      const { hits } = await tenant.client.post("/v1/knowledge/query", query);
      expect(hits).toHaveLength(document.chunk_count);
      expect(new Set(hits.map(({ start }: Json) => start)).size).toBe(hits.length);
      const rows = async (): Promise<true | undefined> => (await rowsOf(tenant.id)).chunks === hits.length || undefined;
      await eventually("The end of what was left", endsWithinMs, rows);
      await tenant.client.post("/v1/knowledge/delete", { knowledge_base: base });
      expect(await rowsOf(tenant.id)).toEqual({ chunks: 0, words: 0 });
    } finally {
      lane.survivor.thaw();
      await victim.close();
    }
  });
});
