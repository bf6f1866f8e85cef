/** One of several processes that write to the same file; waits for the parent's word. */
import { once } from "node:events";
import { openDatabase } from "../src/client.ts";

const database = await openDatabase({ url: process.argv[2] ?? "" });
const writes = Number(process.argv[3]);
process.send?.("ready");
await once(process, "message");
const write = (at: number): Promise<unknown> =>
  database.batch([
    { sql: "INSERT INTO t (v) VALUES (?)", args: [`${process.pid} ${at}`] },
    { sql: "UPDATE c SET n = n + 1", args: [] },
  ]);
// Some one after the other, some together.
for (let at = 0; at < writes; at += 5) {
  await Promise.all([0, 1, 2, 3, 4].map((next) => write(at + next)));
}
await database.close();
process.disconnect();
