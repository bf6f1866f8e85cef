/** Lets calls be old, which no clock of ours decides: their ages are the database's. */
import { openDatabase } from "@toolyard/db/client";
import type { Gateway } from "./gateway.ts";

/** All ended calls of a tenant are so many days older, and the tick has done what it does to such. */
export async function ageCalls(
  gateway: Pick<Gateway, "databaseUrl" | "tick">,
  tenant: string,
  days: number,
): Promise<void> {
  const database = await openDatabase({ url: gateway.databaseUrl });
  try {
    const args = [tenant, days * 86_400_000];
    const sql = `UPDATE calls SET created_at = created_at - ?2, finished_at = finished_at - ?2
      WHERE tenant = ?1 AND finished_at IS NOT NULL`;
    await database.batch([{ sql, args }]);
    for (;;) {
      await gateway.tick();
      // Another instance's tick may be at it.
      const [left] = await database.batch([
        { sql: "SELECT id FROM call_archives WHERE tenant = ?1 AND written_at IS NULL", args: [tenant] },
      ]);
      if (left?.rows.length === 0) return;
      await new Promise((done) => setTimeout(done, 20));
    }
  } finally {
    await database.close();
  }
}
