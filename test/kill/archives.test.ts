/** Processes killed while they write calls into archives: each call ends up in one, once. */
import { join } from "node:path";
import { upkeepKillPoints } from "@toolyard/core/calls/kill-points";
import { openDatabase } from "@toolyard/db/client";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Client, Json } from "../support/gateway-client.ts";
import { verifies } from "../support/verifies.ts";
import { eventually } from "./instance.ts";
import { startLane, type Lane } from "./lane.ts";

const endsWithinMs = 20_000;
const many = 20;
const day = 86_400_000;

let lane: Lane;
beforeAll(async () => {
  lane = await startLane();
});
afterAll(() => lane.close());

async function ageCalls(tenant: string): Promise<void> {
  const database = await openDatabase({ url: `file:${join(lane.dataDir, "toolyard.db")}` });
  const sql = "UPDATE calls SET created_at = created_at - ?2 WHERE tenant = ?1";
  await database.batch([{ sql, args: [tenant, 40 * day] }]);
  await database.close();
}

async function archivedIds(client: Client): Promise<readonly string[]> {
  const archives: readonly Json[] = (await client.get("/v1/call-archives?limit=100")).data;
  const texts = await Promise.all(archives.map(async ({ url }) => (await client.send("get", url)).text));
  return texts.flatMap((text) => text.trimEnd().split("\n")).map((line) => JSON.parse(line).id as string);
}

describe(`a process killed while it archives calls ${verifies("CHAT-13")}`, () => {
  test.each(upkeepKillPoints)("at %s leaves each call in one archive, once", async (at) => {
    const tenant = await lane.newTenant();
    const ids: string[] = [];
    for (let count = 0; count < many; count += 1) {
      const call = { name: "list_files", arguments: {}, session_id: `s-${tenant.id}` };
      ids.push((await tenant.client.post("/v1/tools/invoke", call)).id);
    }
    const victim = await lane.startInstance();
    await lane.freeze(lane.survivor);
    try {
      await victim.order({ kind: "stop", at, with: "SIGKILL" });
      await ageCalls(tenant.id);
      await victim.ended;
      expect(victim.output).toContain(`stopped at ${at}`);
      lane.survivor.thaw();
      const left = async (): Promise<boolean> => (await tenant.client.get("/v1/calls?limit=1")).data.length === 0;
      await eventually("The end of all calls", endsWithinMs, async () => (await left()) || undefined);
      expect((await archivedIds(tenant.client)).toSorted()).toEqual(ids.toSorted());
    } finally {
      lane.survivor.thaw();
      await victim.close();
    }
  });
});
