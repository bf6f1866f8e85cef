/** The function that the deploy invokes, laid out as its zip file, against a database server. */
import { execFile } from "node:child_process";
import { copyFile, cp, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { openDatabase } from "@toolyard/db/client";
import { checkSchema } from "@toolyard/db/migrate";
import { beforeAll, expect, test } from "vitest";
import { startHranaServer, type HranaServer } from "../support/hrana-server.ts";

const root = join(import.meta.dirname, "../..");
const run = promisify(execFile);
let zip: string;
let server: HranaServer;

beforeAll(async () => {
  zip = await mkdtemp(join(tmpdir(), "toolyard-migration-"));
  server = await startHranaServer({ file: join(zip, "server.db") });
  await run(process.execPath, ["functions/build/functions.ts"], { cwd: root });
  await copyFile(join(root, "functions/dist/migration.mjs"), join(zip, "migration.mjs"));
  await cp(join(root, "functions/dist/chunks"), join(zip, "chunks"), { recursive: true });
  await cp(join(root, "packages/db/migrations"), join(zip, "migrations"), { recursive: true });
  return async () => {
    await server.close();
    await rm(zip, { recursive: true, force: true });
  };
}, 60_000);

async function invoke(url: string): Promise<string> {
  const source = `const { handler } = await import("./migration.mjs"); console.log(JSON.stringify(await handler())); process.exit(0);`;
  const env = { AWS_LAMBDA_FUNCTION_NAME: "migrate", DATABASE_URL: url, DATABASE_AUTH_TOKEN: "token" };
  return (await run(process.execPath, ["--input-type=module", "--eval", source], { cwd: zip, env })).stdout.trim();
}

test("brings an empty database to this release's schema, and does nothing the second time", async () => {
  expect(JSON.parse(await invoke(server.url))).toEqual({ release: expect.any(String) });
  expect(JSON.parse(await invoke(server.url))).toEqual({ release: expect.any(String) });
  const database = await openDatabase({ url: server.url });
  await checkSchema(database);
  await database.close();
});

test("fails where it cannot, so that the deploy stops", async () => {
  await expect(invoke("http://127.0.0.1:1")).rejects.toThrow(/database_unavailable/);
});
