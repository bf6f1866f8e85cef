import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, stat, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { DataDirInUseError, openDataDir } from "./data-dir.ts";

const parent = await mkdtemp(join(tmpdir(), "toolyard-data-"));
afterAll(() => rm(parent, { recursive: true, force: true }));
let made = 0;
const fresh = (): string => join(parent, `data-${(made += 1)}`);

/** Another process that opens the directory and stays until it is told to go. */
async function otherProcess(directory: string): Promise<{ readonly child: ChildProcess; readonly said: string }> {
  const source = `
    import { openDataDir } from "@toolyard/platform/local/data-dir";
    console.log(await openDataDir(${JSON.stringify(directory)}).then(() => "open", (error) => error.name));
    setInterval(() => undefined, 1000);`;
  const child = spawn(process.execPath, ["--input-type=module", "--eval", source], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [said] = (await once(child.stdout, "data")) as [Buffer];
  return { child, said: said.toString("utf8").trim() };
}

describe("the data directory", () => {
  test("is made for its owner alone", async () => {
    const path = join(fresh(), "below");
    const dir = await openDataDir(path);
    expect(dir.path).toBe(path);
    expect((await stat(path)).mode & 0o777).toBe(0o700);
    await dir.release();
  });

  test("is refused to a second process, by a message that says who has it and what to do", async () => {
    const path = fresh();
    const dir = await openDataDir(path);
    const second = openDataDir(path);
    await expect(second).rejects.toThrow(DataDirInUseError);
    await expect(second).rejects.toThrow(`${path} is in use by process ${process.pid}`);
    await expect(second).rejects.toThrow("--join");
    await dir.release();
    await (await openDataDir(path)).release();
  });

  test("is shared with a process that joins, and stays taken until both have left", async () => {
    const path = fresh();
    const first = await openDataDir(path);
    const joined = await openDataDir(path, { join: true });
    await first.release();
    await expect(openDataDir(path)).rejects.toThrow(DataDirInUseError);
    await joined.release();
    await (await openDataDir(path)).release();
  });

  test("is taken over from a process that was killed", async () => {
    const path = fresh();
    const { child, said } = await otherProcess(path);
    expect(said).toBe("open");
    await expect(openDataDir(path)).rejects.toThrow(`process ${child.pid}`);
    child.kill("SIGKILL");
    await once(child, "exit");
    const dir = await openDataDir(path);
    expect(await readdir(join(path, "locks"))).toHaveLength(1);
    await dir.release();
  });

  test("goes to one of several processes that start at once, or to none, never to two", async () => {
    const path = fresh();
    const others = await Promise.all(Array.from({ length: 3 }, () => otherProcess(path)));
    for (const { child } of others) child.kill("SIGKILL");
    const refused = others.filter(({ said }) => said === "DataDirInUseError").length;
    const open = others.filter(({ said }) => said === "open").length;
    expect(open).toBeLessThanOrEqual(1);
    expect(refused + open).toBe(3);
  });

  test("is not held by a number that now belongs to another process", async () => {
    const path = fresh();
    const dir = await openDataDir(path);
    const [name = ""] = await readdir(join(path, "locks"));
    const holder = JSON.parse(await readFile(join(path, "locks", name), "utf8")) as Record<string, unknown>;
    await dir.release();
    await writeFile(join(path, "locks", "old"), JSON.stringify({ ...holder, started: "long ago" }));
    const next = await openDataDir(path);
    expect(await readdir(join(path, "locks"))).not.toContain("old");
    await next.release();
  });

  test("is held by a process that lives, though one of the two cannot read which boot of the system it is", async () => {
    const path = fresh();
    const dir = await openDataDir(path);
    const [name = ""] = await readdir(join(path, "locks"));
    const file = join(path, "locks", name);
    await writeFile(file, (await readFile(file, "utf8")).replace(/"started":"[^/"]+/, '"started":"'));
    await expect(openDataDir(path)).rejects.toThrow(`process ${process.pid}`);
    await dir.release();
  });

  test("is held by a container it cannot look into as long as that keeps its file fresh", async () => {
    const path = fresh();
    await (await openDataDir(path)).release();
    const file = join(path, "locks", "other");
    await writeFile(file, JSON.stringify({ pid: 1, started: "x", space: "another-host" }));
    await expect(openDataDir(path)).rejects.toThrow("1 on another-host");
    const before = new Date(Date.now() - 5 * 60_000);
    await utimes(file, before, before);
    await (await openDataDir(path)).release();
  });

  test("does not take a stray file among the locks for a process", async () => {
    const path = fresh();
    await mkdir(join(path, "locks"), { recursive: true });
    await writeFile(join(path, "locks", "notes.txt"), "hello");
    await expect(openDataDir(path)).resolves.toMatchObject({ path });
  });
});

describe("secrets in the data directory", () => {
  test("are made once and then read, by this process and the next", async () => {
    const dir = await openDataDir(fresh());
    const first = await dir.secretFile("admin.key", () => "made");
    expect(first).toEqual({ value: "made", created: true });
    expect(await dir.secretFile("admin.key", () => "made again")).toEqual({ value: "made", created: false });
    expect((await stat(join(dir.path, "admin.key"))).mode & 0o777).toBe(0o600);
    await dir.release();
  });

  test("are made by one of many who ask at the same time", async () => {
    const dir = await openDataDir(fresh());
    const asked = await Promise.all(
      Array.from({ length: 20 }, (_, at) => dir.secretFile("master.key", () => `made by ${at}`)),
    );
    expect(new Set(asked.map(({ value }) => value)).size).toBe(1);
    expect(asked.filter(({ created }) => created)).toHaveLength(1);
    expect(await readdir(dir.path)).toEqual(["locks", "master.key"]);
    await dir.release();
  });

  test("are closed to others again where somebody opened them", async () => {
    const dir = await openDataDir(fresh());
    await dir.secretFile("admin.key", () => "x");
    await chmod(join(dir.path, "admin.key"), 0o644);
    await dir.secretFile("admin.key", () => "y");
    expect((await stat(join(dir.path, "admin.key"))).mode & 0o777).toBe(0o600);
    await dir.release();
  });

  test("that are empty are an error, not a new secret under which nothing old opens", async () => {
    const dir = await openDataDir(fresh());
    await writeFile(join(dir.path, "master.key"), "\n");
    await expect(dir.secretFile("master.key", () => "new")).rejects.toThrow("is empty");
    await dir.release();
  });

  test.for(["../outside", "a/b", "", ".", "..", ".hidden"])("cannot be named %j", async (name) => {
    const dir = await openDataDir(fresh());
    await expect(dir.secretFile(name, () => "x")).rejects.toThrow("is no name");
    await dir.release();
  });
});
