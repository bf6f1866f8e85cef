/**
 * Brings a database to the schema of this code, before traffic (design "AWS": expand then contract).
 * Each step is one transaction that first takes its number in `schema_versions`, so that of two
 * processes one does it and the other finds it done.
 */
import { readFile } from "node:fs/promises";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { Database } from "./database.ts";
import { migrations, schemaVersion, type MigrationStep } from "./migrations.ts";

export interface MigrateOptions {
  /** Where the SQL files lie; ends with a slash. Bundles bring their own copy. */
  readonly directory?: URL;
  readonly steps?: readonly MigrationStep[];
}

interface Applied {
  readonly versions: ReadonlySet<number>;
  readonly oldestCode: number;
}

/**
 * @returns the versions that this call applied
 * @throws GatewayError `conflict` where the database is too new for this code, `database_unavailable`
 */
export async function migrate(database: Database, options: MigrateOptions = {}): Promise<readonly number[]> {
  const { directory = new URL("../migrations/", import.meta.url), steps = migrations } = options;
  const applied = await readApplied(database);
  refuseTooOld(applied, steps.at(-1)?.version ?? 0);
  const done: number[] = [];
  for (const step of steps) {
    if (applied.versions.has(step.version)) continue;
    if (await apply(database, step, directory)) done.push(step.version);
  }
  return done;
}

/**
 * For processes that do not migrate themselves (functions): is the schema theirs?
 * @throws GatewayError `conflict` where the database is too new or not migrated yet
 */
export async function checkSchema(database: Database): Promise<void> {
  const applied = await readApplied(database);
  refuseTooOld(applied, schemaVersion);
  if (!applied.versions.has(schemaVersion)) {
    throw new GatewayError(
      "conflict",
      `The database has not been migrated to schema ${schemaVersion} yet; run 'npm run migrate' with this DATABASE_URL first.`,
    );
  }
}

function refuseTooOld({ oldestCode }: Applied, codeVersion: number): void {
  if (oldestCode > codeVersion) {
    throw new GatewayError(
      "conflict",
      `This release knows schema ${codeVersion}, but the database needs one that knows ${oldestCode}; start a newer release.`,
    );
  }
}

async function readApplied(database: Database): Promise<Applied> {
  const [, found] = await database.batch(
    [
      {
        sql: `CREATE TABLE IF NOT EXISTS schema_versions (
          version integer PRIMARY KEY NOT NULL,
          name text NOT NULL,
          oldest_code integer NOT NULL,
          applied_at integer NOT NULL DEFAULT (cast(unixepoch('subsec') * 1000 as integer))
        )`,
        args: [],
      },
      { sql: "SELECT version, oldest_code FROM schema_versions", args: [] },
    ],
    { repeatable: true },
  );
  const rows = found?.rows ?? [];
  return {
    versions: new Set(rows.map((row) => Number(row["version"]))),
    oldestCode: Math.max(0, ...rows.map((row) => Number(row["oldest_code"]))),
  };
}

/** @returns false where another process has done it meanwhile */
async function apply(database: Database, step: MigrationStep, directory: URL): Promise<boolean> {
  const text = await readFile(new URL(`${step.name}.sql`, directory), "utf8");
  const statements = text.split("--> statement-breakpoint").filter((part) => part.trim() !== "");
  try {
    await database.batch(
      [
        {
          sql: "INSERT INTO schema_versions (version, name, oldest_code) VALUES (?, ?, ?)",
          args: [step.version, step.name, step.oldestCode],
        },
        ...statements.map((sql) => ({ sql, args: [] })),
      ],
      // Twice is as good as once: the second time the number is taken and nothing else happens.
      { repeatable: true },
    );
    return true;
  } catch (error) {
    const { versions } = await readApplied(database);
    if (versions.has(step.version)) return false;
    throw error;
  }
}
