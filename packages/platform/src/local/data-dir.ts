/**
 * The data directory of a server (TOOLYARD_DATA_DIR): readable by its owner only, holding the keys
 * that are made once, and used by one process at a time unless those that follow ask to join.
 *
 * Each process keeps a file of its own in `locks/` that names it. A file whose process is gone is
 * removed by the next one, so that a crash never locks anybody out. Processes that cannot see each
 * other (two containers, one volume) go by how fresh the files are kept.
 */
import { randomUUID } from "node:crypto";
import { chmod, link, open, readdir, readFile, rm, stat, utimes } from "node:fs/promises";
import { basename, join, resolve } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import * as z from "zod";
import { makeDirectory } from "./make-directory.ts";
import { isSameStart, startOf, thisProcess, type ProcessIdentity } from "./process-identity.ts";

export interface DataDir {
  /** Absolute. */
  readonly path: string;
  /**
   * What the file of this name holds; made once, by whichever process comes first, with mode 600.
   * `created`: by this call, so that a new key can be shown to the operator once.
   */
  secretFile(name: string, make: () => string): Promise<{ readonly value: string; readonly created: boolean }>;
  /** Lets the next process in. */
  release(): Promise<void>;
}

export interface DataDirOptions {
  /** Use the directory although another process does (`--join`). */
  readonly join?: boolean;
}

/** The directory is in use by another process. */
export class DataDirInUseError extends Error {
  override readonly name = "DataDirInUseError";
}

const holderSchema = z.object({ pid: z.int().positive(), started: z.string(), space: z.string() });
type Holder = ProcessIdentity;

const refreshMs = 20_000;
const staleAfterMs = 60_000;
/** Two processes that start at once may see each other and both step back; then one of them is later. */
const attempts = 4;

/** @throws DataDirInUseError where another process uses the directory and `join` is not set */
export async function openDataDir(directory: string, options: DataDirOptions = {}): Promise<DataDir> {
  const path = resolve(directory);
  const locks = join(path, "locks");
  await makeDirectory(locks);
  const release = await takeLock(path, locks, options.join ?? false);
  return { path, release, secretFile: (name, make) => secretFile(path, name, make) };
}

async function takeLock(path: string, locks: string, joining: boolean): Promise<() => Promise<void>> {
  const own = await thisProcess();
  for (let attempt = 1; ; attempt += 1) {
    const file = join(locks, `${own.pid}-${randomUUID()}`);
    await writeWhole(file, JSON.stringify(own));
    // Ours is there before we look for others: of two that start at once, at least one sees the other.
    const others = await livingHolders(locks, file, own);
    if (joining || others.length === 0) return keepFresh(file);
    await rm(file, { force: true });
    if (attempt < attempts) {
      await pause(50 + Math.random() * 150);
      continue;
    }
    const pids = others.map(({ pid, space }) => (space === own.space ? `${pid}` : `${pid} on ${space}`)).join(", ");
    throw new DataDirInUseError(
      `The data directory ${path} is in use by process ${pids}. Stop it, set TOOLYARD_DATA_DIR to another directory, or start with --join to use this one together.`,
    );
  }
}

function keepFresh(file: string): () => Promise<void> {
  const timer = setInterval(() => {
    const now = new Date();
    // Removed by hand or with the directory: there is nothing to keep fresh.
    void utimes(file, now, now).catch(() => undefined);
  }, refreshMs).unref();
  return async () => {
    clearInterval(timer);
    await rm(file, { force: true });
  };
}

async function livingHolders(locks: string, ownFile: string, own: Holder): Promise<readonly Holder[]> {
  const now = (await stat(ownFile)).mtimeMs;
  const living: Holder[] = [];
  for (const name of await readdir(locks)) {
    const file = join(locks, name);
    // Names that begin with a dot are files still being written.
    if (file === ownFile || name.startsWith(".")) continue;
    const holder = await readHolder(file);
    if (holder === undefined) continue;
    if (await isLiving(holder, own, file, now)) living.push(holder);
    else await rm(file, { force: true });
  }
  return living;
}

async function readHolder(file: string): Promise<Holder | undefined> {
  try {
    return holderSchema.parse(JSON.parse(await readFile(file, "utf8")));
  } catch {
    // Released meanwhile, or nothing that a process of ours wrote.
    return undefined;
  }
}

async function isLiving(holder: Holder, own: Holder, file: string, now: number): Promise<boolean> {
  if (holder.space === own.space) {
    const started = await startOf(holder.pid);
    return started !== undefined && isSameStart(started, holder.started);
  }
  const kept = await stat(file).catch(() => undefined);
  return kept !== undefined && now - kept.mtimeMs < staleAfterMs;
}

async function secretFile(
  path: string,
  name: string,
  make: () => string,
): Promise<{ readonly value: string; readonly created: boolean }> {
  if (basename(name) !== name || name === "" || name.startsWith(".")) {
    throw new Error(`"${name}" is no name for a file in the data directory.`);
  }
  const file = join(path, name);
  const known = await readSecret(file);
  if (known !== undefined) return { value: known, created: false };
  const created = await writeWhole(file, `${make()}\n`);
  const value = await readSecret(file);
  if (value === undefined) throw new Error(`${file} was removed while it was being made.`);
  return { value, created };
}

async function readSecret(file: string): Promise<string | undefined> {
  const found = await stat(file).catch((cause: unknown) => {
    if (cause instanceof Error && "code" in cause && cause.code === "ENOENT") return undefined;
    throw cause;
  });
  if (found === undefined) return undefined;
  // Copied or edited by hand: close it to others again.
  if ((found.mode & 0o077) !== 0) await chmod(file, 0o600);
  const value = (await readFile(file, "utf8")).trim();
  if (value === "") throw new Error(`${file} is empty. Restore it from a backup, or remove it to have a new one made.`);
  return value;
}

/** Puts a whole file in its place, or nothing; `false` where there is one already. */
async function writeWhole(file: string, text: string): Promise<boolean> {
  const aside = join(file, "..", `.${basename(file)}.${randomUUID()}`);
  const handle = await open(aside, "wx", 0o600);
  try {
    await handle.writeFile(text);
    await handle.sync();
    await link(aside, file);
    return true;
  } catch (cause) {
    if (cause instanceof Error && "code" in cause && cause.code === "EEXIST") return false;
    throw cause;
  } finally {
    await handle.close();
    await rm(aside, { force: true });
  }
}
