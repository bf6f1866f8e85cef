/**
 * Lambda: brings the database to this release's schema. The deploy invokes it before any other function
 * gets new code (infra/migration.ts), and fails where it fails.
 */
import { migrateDatabases } from "./compose.ts";
import { readEnvironment } from "./env.ts";
import { version } from "./version.ts";

/** @public The runtime calls it by name. */
export const handler = async (): Promise<{ readonly release: string }> => {
  await migrateDatabases(readEnvironment(), { steps: new URL("./migrations/", import.meta.url) });
  return { release: version };
};
