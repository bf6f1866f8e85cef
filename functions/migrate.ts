/** `npm run migrate`: by hand, what a server does when it starts and a deploy of functions does by itself. */
import { join } from "node:path";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { migrateDatabases } from "./compose.ts";
import { EnvironmentError, readEnvironment, type Environment } from "./env.ts";
import { originOf } from "./origin-of.ts";

const usage = "Usage: npm run migrate\n  Reads DATABASE_URL and DATABASE_AUTH_TOKEN, or the data directory.\n";

async function main(args: readonly string[]): Promise<void> {
  if (args.length > 0) {
    process.stderr.write(usage);
    process.exitCode = 2;
    return;
  }
  const environment = readEnvironment();
  await migrateDatabases(environment, { dataDir: environment.dataDir });
  process.stdout.write(`${placeOf(environment)} has this release's schema.\n`);
}

/** Without its options, which may hold a token: whoever has forgotten DATABASE_URL is to see what was migrated instead. */
function placeOf({ databaseUrl, dataDir }: Environment): string {
  return databaseUrl?.replace(/\?.*$/s, "") ?? join(dataDir, "toolyard.db");
}

try {
  await main(process.argv.slice(2));
} catch (thrown) {
  const error = originOf(thrown);
  const isExplained = error instanceof EnvironmentError || error instanceof GatewayError;
  process.stderr.write(`${isExplained ? error.message : String(error)}\n`);
  process.exitCode = 1;
}
