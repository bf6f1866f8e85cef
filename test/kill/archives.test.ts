/** Processes killed while they write calls into archives: each call ends up in one, once. */
import { upkeepKillPoints } from "@toolyard/core/calls/kill-points";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Client, Json } from "../support/gateway-client.ts";
import { verifies } from "../support/verifies.ts";
import { eventually } from "./instance.ts";
import { openDirectory, startLane, type Lane, type Site } from "./lane.ts";

const endsWithinMs = 20_000;
const many = 20;
const day = 86_400_000;

let site: Site;
let lane: Lane;
beforeAll(async () => {
  site = await openDirectory();
  lane = await startLane(() => Promise.resolve(site));
});
afterAll(() => lane.close());

/** While others write, the database may be busy for longer than this handle waits. */
async function ageCalls(tenant: string): Promise<void> {
  const sql = `UPDATE calls SET created_at = created_at - ?2, finished_at = finished_at - ?2
    WHERE tenant = ?1 AND archive_id IS NULL`;
  const age = (): Promise<true | undefined> =>
    site.database.batch([{ sql, args: [tenant, 40 * day] }]).then(
      () => true,
      () => undefined,
    );
  await eventually("Old age", endsWithinMs, age);
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
