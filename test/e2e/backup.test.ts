/** A backup of everything, carried to another home: rows, sealed credentials, blobs; from a file to a server and back. */
import { execFile } from "node:child_process";
import { cp, mkdtemp, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterEach, beforeEach, expect, test } from "vitest";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startHranaServer, type HranaServer } from "../support/hrana-server.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";

const root = join(import.meta.dirname, "../..");
const run = promisify(execFile);
const masterKey = "ab".repeat(32);

let directory: string;
let server: HranaServer;
let backEnd: HttpStub;
const gateways: Gateway[] = [];

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "toolyard-backup-"));
  server = await startHranaServer({ file: join(directory, "server.db") });
  backEnd = await startHttpStub();
});
afterEach(async () => {
  for (const gateway of gateways.splice(0)) await gateway.close();
  await backEnd.close();
  await server.close();
  await rm(directory, { recursive: true, force: true });
});

async function start(env: Readonly<Record<string, string>>): Promise<Gateway> {
  const gateway = await startGateway({ env: { TOOLYARD_MASTER_KEY: masterKey, ...env } });
  gateways.push(gateway);
  return gateway;
}

async function backup(what: "dump" | "restore", file: string, databaseUrl: string): Promise<void> {
  const env = { PATH: process.env["PATH"] ?? "", DATABASE_URL: databaseUrl };
  await run(process.execPath, ["functions/backup.ts", what, file], { cwd: root, env });
}

test("a tool, its credential, a file and an API key work in the new home as in the old one", async () => {
  const first = await start({});
  const tenant = await first.newTenant();
  await tenant.putCredential("CRM_KEY", "crm-secret-value");
  await tenant.addPlugin({
    name: "crm_search",
    execution: { method: "GET", base_url: `${backEnd.url}/search`, param_placement: "query" },
    auth_config: { type: "api_key", mapping: [{ source: "CRM_KEY", target: "X-Key", location: "header" }] },
  });
  await tenant.client.post("/api/chat/completions", {
    session_id: "s1",
    messages: [{ role: "user", content: 'Call write_file with {"path": "a.txt", "content": "kept"}' }],
  });

  const dump = join(directory, "backup.sql");
  await backup("dump", dump, first.databaseUrl);
  expect((await stat(dump)).mode & 0o777).toBe(0o600);
  await cp(join(first.dataDir, "blobs"), join(directory, "blobs"), { recursive: true });

  // To a server, from there to a file again: the last home has neither file nor process of the first.
  await backup("restore", dump, server.url);
  const second = join(directory, "second.sql");
  await backup("dump", second, server.url);
  const file = `file:${join(directory, "second.db")}`;
  await backup("restore", second, file);

  for (const databaseUrl of [server.url, file]) {
    const home = await start({ DATABASE_URL: databaseUrl, BLOBS_URL: `file:${directory}` });
    const client = home.client(tenant.key);
    expect((await client.send("get", "/v1/sessions/s1/files/a.txt")).text).toBe("kept");
    const { status } = await client.post("/v1/tools/invoke", { name: "crm_search", arguments: {} });
    expect(status).toBe("completed");
    expect(backEnd.requests.at(-1)?.headers["x-key"]).toBe("crm-secret-value");
    const ready = await home.nobody.get("/health/ready");
    expect(ready.status).toBe("ok");
  }
});

test("of nothing, or on a disk that is full, fails and leaves no file that looks like one", async () => {
  const dump = join(directory, "backup.sql");
  const program = [process.execPath, join(root, "functions/backup.ts"), "dump", dump];
  const fails = async (command: readonly string[], env: Readonly<Record<string, string>>): Promise<string> => {
    const [name = "", ...words] = command;
    const failure: unknown = await run(name, words, { env }).catch((thrown: unknown) => thrown);
    expect(failure).toMatchObject({ code: 1 });
    await expect(stat(dump)).rejects.toMatchObject({ code: "ENOENT" });
    return failure instanceof Error && "stderr" in failure ? String(failure.stderr) : "";
  };
  expect(await fails(program, { TOOLYARD_DATA_DIR: join(directory, "misspelt") })).toContain("TOOLYARD_DATA_DIR");

  await start({ DATABASE_URL: server.url });
  // Files of this process end after four blocks, as on a disk that is full.
  expect(await fails(["sh", "-c", 'ulimit -f 4; exec "$@"', "sh", ...program], { DATABASE_URL: server.url })).toContain(
    "EFBIG",
  );
});

test("a migration by hand says which database it was, not its token, and takes no arguments", async () => {
  const migrate = (...args: readonly string[]): Promise<{ stdout: string }> => {
    const env = { PATH: process.env["PATH"] ?? "", DATABASE_URL: `${server.url}?authToken=sesame` };
    return run(process.execPath, ["functions/migrate.ts", ...args], { cwd: root, env });
  };
  expect((await migrate()).stdout).toBe(`${server.url} has this release's schema.\n`);
  await expect(migrate("--help")).rejects.toMatchObject({ code: 2, stderr: expect.stringContaining("DATABASE_URL") });
});
