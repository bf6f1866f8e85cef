/** Processes killed while the firing of a schedule goes on record: it happens, once. */
import { scheduleKillPoints } from "@toolyard/core/calls/kill-points";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Json } from "../support/gateway-client.ts";
import { verifies } from "../support/verifies.ts";
import { eventually } from "./instance.ts";
import { openDirectory, startLane, type Lane, type Site } from "./lane.ts";

const endsWithinMs = 20_000;

let site: Site;
let lane: Lane;
beforeAll(async () => {
  site = await openDirectory();
  lane = await startLane(() => Promise.resolve(site));
});
afterAll(() => lane.close());

/** While others write, the database may be busy for longer than this handle waits. */
async function bringForward(id: string): Promise<void> {
  const sql = "UPDATE schedules SET next_at = CAST(unixepoch('subsec') * 1000 AS INTEGER) WHERE id = ?1";
  const write = (): Promise<true | undefined> =>
    site.database.batch([{ sql, args: [id] }]).then(
      () => true,
      () => undefined,
    );
  await eventually("Its time", endsWithinMs, write);
}

describe(`a process killed while a schedule fires ${verifies("VCP-18", "MQ-2")}`, () => {
  test.each(scheduleKillPoints)("at %s fires it once", async (at) => {
    const tenant = await lane.newTenant();
    const { id } = await tenant.client.post("/v1/schedule_task", {
      rate: "1 day",
      task: { uri: "native://list_files" },
      deliver: { session_id: `s-${tenant.id}` },
    });
    const victim = await lane.startInstance();
    await lane.freeze(lane.survivor);
    try {
      await victim.order({ kind: "stop", at, with: "SIGKILL" });
      await bringForward(id);
      await victim.ended;
      expect(victim.output).toContain(`stopped at ${at}`);
      lane.survivor.thaw();
      const calls = async (): Promise<readonly Json[]> =>
        (await tenant.client.get(`/v1/calls?parent_id=${id}`)).data as readonly Json[];
      const done = async (): Promise<true | undefined> => {
        const found = await calls();
        return (found.length > 0 && found.every(({ state }) => state === "completed")) || undefined;
      };
      await eventually("The firing", endsWithinMs, done);
      expect(await calls()).toHaveLength(1);
      expect(await tenant.client.get(`/v1/schedule_task/${id}`)).toMatchObject({ fired: 1, state: "active" });
    } finally {
      lane.survivor.thaw();
      await victim.close();
    }
  });
});
