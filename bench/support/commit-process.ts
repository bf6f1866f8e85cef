/**
 * Commits once for each line of its input, a row through the gateway's own database layer, and says how many
 * milliseconds that took: `node commit-process.ts <directory>`.
 */
import { join } from "node:path";
import { createInterface } from "node:readline";
import { openDatabase } from "@toolyard/db/client";

const [directory = "."] = process.argv.slice(2);
const database = await openDatabase({ url: `file:${join(directory, "commits.db")}` });
await database.batch([{ sql: "CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, text TEXT)", args: [] }]);
const insert = { sql: "INSERT INTO rows (text) VALUES (?1)", args: ["x".repeat(500)] };
for await (const _line of createInterface({ input: process.stdin })) {
  const since = performance.now();
  await database.batch([insert]);
  process.stdout.write(`${performance.now() - since}\n`);
}
await database.close();
