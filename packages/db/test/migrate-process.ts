/** One of several processes that migrate the same database; waits for the parent's word. */
import { once } from "node:events";
import { openDatabase } from "../src/client.ts";
import { migrate } from "../src/migrate.ts";

const url = process.argv[2] ?? "";
const database = await openDatabase({ url });
process.send?.("ready");
await once(process, "message");
process.send?.(await migrate(database));
await database.close();
process.disconnect();
