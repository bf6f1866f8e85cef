/**
 * The database is brought to this release's schema by a function that the deploy invokes, and no other
 * function gets its new code before that has succeeded. Steps expand first, so the code before keeps serving.
 */
import { database } from "./environment.ts";
import { createFunction } from "./function.ts";
import { seconds } from "./limits.ts";
import { databaseUrl } from "./settings.ts";

const migrate = createFunction("Migrate", {
  bundle: "migration",
  description: "Brings the database to this release's schema",
  seconds: seconds.migrate,
  memoryMb: 512,
  variables: database,
  may: [],
});

/** Invoked again whenever its code or the database is another; fails the deploy where it fails. */
export const migrated = new aws.lambda.Invocation("Migrated", {
  functionName: migrate.name,
  input: "{}",
  triggers: { code: migrate.nodes.function.s3Key.apply((key) => key ?? ""), database: databaseUrl },
});
