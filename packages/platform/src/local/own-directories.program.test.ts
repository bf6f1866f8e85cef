import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { ownDirectory } from "./own-directories.ts";

let above: string;
const makers: ChildProcess[] = [];
beforeEach(async () => {
  above = await mkdtemp(join(tmpdir(), "toolyard-own-"));
});
afterEach(async () => {
  for (const maker of makers.splice(0)) await end(maker);
  await rm(above, { recursive: true, force: true });
});

async function end(maker: ChildProcess): Promise<void> {
  if (maker.exitCode !== null || maker.signalCode !== null) return;
  const ended = once(maker, "exit");
  maker.kill("SIGKILL");
  await ended;
}

/** Another process, which makes one and stays. */
async function makesOne(): Promise<{ readonly maker: ChildProcess; readonly name: string }> {
  const code = `
    import { mkdtempSync, writeFileSync } from "node:fs";
    import { ownDirectory } from ${JSON.stringify(new URL("own-directories.ts", import.meta.url).href)};
    const directory = mkdtempSync(await ownDirectory("plugin", ${JSON.stringify(above)}));
    writeFileSync(directory + "/kept", "by a tenant");
    console.log(directory);
    setInterval(() => undefined, 1_000);
  `;
  const maker = spawn(process.execPath, ["--input-type=module", "-e", code], { stdio: ["ignore", "pipe", "inherit"] });
  makers.push(maker);
  const [line] = (await once(maker.stdout, "data")) as [Buffer];
  return { maker, name: basename(line.toString("utf8").trim()) };
}

test("what a process has left that was killed goes with the first of the next one; what is another's stays", async () => {
  const dead = await makesOne();
  const living = await makesOne();
  await end(dead.maker);
  // Of another host or container, of an older release, and of somebody else.
  const elsewhere = dead.name.replace(/-[0-9a-f]{8}_/, "-00000000_");
  const others = [elsewhere, "toolyard-plugin-Ab12Cd", "theirs"];
  for (const name of others) await mkdir(join(above, name));
  const link = `${dead.name}x`;
  await writeFile(join(above, link), "no directory");

  const own = basename(await mkdtemp(await ownDirectory("held", above)));
  await expect.poll(() => readdir(above), { timeout: 10_000 }).not.toContain(dead.name);
  expect((await readdir(above)).sort()).toEqual([own, living.name, link, ...others].sort());
});

test("its number alone does not make a later process the owner, and what cannot be read does not make it another", async () => {
  const { maker, name } = await makesOne();
  const earlier = name.replace(/_\d+_(?=[^_]+$)/, "_1_");
  // Where it was made the time, or the boot, could not be read.
  const [timeless, bootless] = [earlier.replace("_1_", "__"), name.replace(/_[0-9a-f]{4}_(?=\d+_[^_]+$)/, "__")];
  for (const each of [earlier, timeless, bootless]) await mkdir(join(above, each));
  await ownDirectory("plugin", above);
  await expect.poll(() => readdir(above), { timeout: 10_000 }).not.toContain(earlier);
  expect((await readdir(above)).sort()).toEqual([name, timeless, bootless].sort());
  expect(maker.exitCode).toBeNull();
});
