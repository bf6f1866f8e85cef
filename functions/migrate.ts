/** `npm run migrate`: by hand, what a server does when it starts and a deploy of functions does by itself. */
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { migrateDatabases } from "./compose.ts";
import { EnvironmentError, readEnvironment } from "./env.ts";
import { originOf } from "./origin-of.ts";

try {
  const environment = readEnvironment();
  await migrateDatabases(environment, { dataDir: environment.dataDir });
  process.stdout.write("The database has this release's schema.\n");
} catch (thrown) {
  const error = originOf(thrown);
  const isExplained = error instanceof EnvironmentError || error instanceof GatewayError;
  process.stderr.write(`${isExplained ? error.message : String(error)}\n`);
  process.exitCode = 1;
}
