/**
 * Bundles the server form into `functions/dist/server/`: from the sources it would take twice the time to start, and
 * 280 MB instead of 110. `npm start` does it first, images do it once.
 */
import { cp, rm } from "node:fs/promises";
import { join } from "node:path";
import { bundleProgram } from "./bundle-program.ts";

const functions = join(import.meta.dirname, "..");
const packages = join(functions, "../packages");

export interface ServerBuild {
  /** Starts a server; default: `functions/local.ts`. */
  readonly entry?: string;
  /** Directory that holds this build afterwards, and nothing else. The program is `bin/server.mjs` in it. */
  readonly out: string;
}

/** @returns where the program is */
export async function buildServer({ entry, out }: ServerBuild): Promise<string> {
  const program = await bundleProgram(
    {
      name: "server",
      source: entry ?? join(functions, "local.ts"),
      helpers: {
        // Forked by it, to start plugins.
        "plugin-helper": join(packages, "platform/src/local/plugin-helper.ts"),
        // Of its threads that read documents.
        "document-reader": join(packages, "platform/src/document-reader/program.ts"),
        // Of its threads that read the database.
        "database-reader": join(packages, "db/src/reader-program.ts"),
      },
      // In one file with another program, `local.ts` is not what was started, and must not start a server of its own.
      ...(entry === undefined ? {} : { define: { "import.meta.main": "false" } }),
    },
    out,
  );
  await rm(join(out, "migrations"), { recursive: true, force: true });
  // Found beside the code, as in the sources.
  await cp(join(packages, "db/migrations"), join(out, "migrations"), { recursive: true });
  return program;
}

if (import.meta.main) await buildServer({ out: join(functions, "dist/server") });
