/**
 * `npm run backup -- dump <file>` writes the database of DATABASE_URL down, `-- restore <file>` makes an
 * empty one from it. Blobs and keys are kept apart (docs/deploy.md, "Back up and restore").
 */
import { open, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { openDatabase } from "@toolyard/db/client";
import { dumpDatabase, restoreDatabase } from "@toolyard/db/dump";
import { readEnvironment } from "./env.ts";
import { originOf } from "./origin-of.ts";

const usage =
  "Usage: npm run backup -- dump|restore <file>\n  Reads DATABASE_URL and DATABASE_AUTH_TOKEN, or the data directory.\n";
/** A dump of everything takes longer than a request may. */
const budgetMs = 300_000;

async function main([what, path]: readonly string[]): Promise<void> {
  if ((what !== "dump" && what !== "restore") || path === undefined) {
    process.stderr.write(usage);
    process.exitCode = 2;
    return;
  }
  const { databaseUrl, databaseAuthToken: authToken, dataDir } = readEnvironment();
  const url = databaseUrl ?? pathToFileURL(join(dataDir, "toolyard.db")).href;
  const database = await openDatabase({ url, budgetMs, ...(authToken === undefined ? {} : { authToken }) });
  try {
    if (what === "dump") {
      await writeWhole(path, await dumpDatabase(database));
      process.stdout.write(`The database is in ${path}.\n`);
    } else {
      const count = await restoreDatabase(database, await readFile(path, "utf8"));
      process.stdout.write(`${count} statements of ${path} were carried out.\n`);
    }
  } finally {
    await database.close();
  }
}

/** No part of a dump is left lying under its name. It holds every tenant's rows, though no secret that is not sealed. */
async function writeWhole(path: string, dump: string): Promise<void> {
  const file = await open(path, "wx", 0o600);
  try {
    await file.writeFile(dump);
    await file.sync();
  } catch (error) {
    await rm(path, { force: true });
    throw error;
  } finally {
    await file.close();
  }
}

try {
  await main(process.argv.slice(2));
} catch (thrown) {
  const error = originOf(thrown);
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
}
