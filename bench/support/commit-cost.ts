/**
 * What one commit costs here, as a process: `node commit-cost.ts <directory> <port>`. Prints the median
 * milliseconds of a batch of one row through the gateway's own database layer, one after the other.
 */
import { join } from "node:path";
import { openDatabase } from "@toolyard/db/client";
import { medianMs } from "./load.ts";

const [directory = "."] = process.argv.slice(2);
const database = await openDatabase({ url: `file:${join(directory, "commits.db")}` });
await database.batch([{ sql: "CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, text TEXT)", args: [] }]);
const insert = { sql: "INSERT INTO rows (text) VALUES (?1)", args: ["x".repeat(500)] };
await medianMs(0.5, () => database.batch([insert]));
process.stdout.write(`${await medianMs(1, () => database.batch([insert]))}\n`);
await database.close();
