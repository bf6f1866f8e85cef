/**
 * What code has left in its working directory, read when its last process has ended: regular files, nothing that a
 * link leads to, and no more of them than is wanted. The names are the code's own; whoever keeps them judges them.
 */
import { closeSync, constants, fstatSync, lstatSync, openSync, readdirSync, readSync, type Stats } from "node:fs";
import { join } from "node:path";
import type { Confinement, LeftFiles, PluginRun } from "@toolyard/core/ports/plugin-runner";

export interface LeftFilesOptions extends Pick<Confinement, "maxFiles" | "maxFileBytes"> {
  /** As they were before. */
  readonly laid: NonNullable<PluginRun["files"]>;
}

/** Names that are looked at, and how deep. */
const mostEntries = 20_000;
const deepest = 32;
/** So many of those that are passed over are named. */
const mostPassedOver = 100;

export function readLeftFiles(directory: string, options: LeftFilesOptions): LeftFiles {
  return new Reading(options).read(directory);
}

class Reading {
  readonly #options: LeftFilesOptions;
  readonly #laid: ReadonlyMap<string, Uint8Array>;
  readonly #files: LeftFiles["files"][number][] = [];
  readonly #passedOver: LeftFiles["passedOver"][number][] = [];
  #entries = 0;
  #bytes = 0;

  constructor(options: LeftFilesOptions) {
    this.#options = options;
    this.#laid = new Map(options.laid.map(({ path, body }) => [path, body]));
  }

  read(directory: string): LeftFiles {
    this.#walk(directory, "", 0);
    return { files: this.#files, passedOver: this.#passedOver };
  }

  #walk(directory: string, prefix: string, depth: number): void {
    for (const name of namesIn(directory).sort((a, b) => a.compare(b))) {
      this.#entries += 1;
      if (this.#entries > mostEntries) {
        if (this.#entries === mostEntries + 1) this.#passOver(prefix, `more than ${mostEntries} names`);
        return;
      }
      const text = name.toString("utf8");
      const path = `${prefix}${text}`;
      if (!Buffer.from(text, "utf8").equals(name)) {
        this.#passOver(path, "its name is not UTF-8");
        continue;
      }
      this.#look(join(directory, text), path, depth);
    }
  }

  #look(at: string, path: string, depth: number): void {
    const found = statOf(at);
    if (found === undefined) return this.#passOver(path, "it cannot be read");
    if (found.isDirectory()) {
      if (depth >= deepest) return this.#passOver(path, `it is more than ${deepest} levels deep`);
      return this.#walk(at, `${path}/`, depth + 1);
    }
    if (found.isSymbolicLink()) return this.#passOver(path, "it is a link");
    if (!found.isFile()) return this.#passOver(path, "it is no regular file");
    this.#take(at, path, found);
  }

  #take(at: string, path: string, { size }: Stats): void {
    const { maxFiles, maxFileBytes } = this.#options;
    const before = this.#laid.get(path);
    if (before !== undefined && before.byteLength === size && isSame(at, before)) return;
    if (this.#files.length >= maxFiles) return this.#passOver(path, `more than ${maxFiles} files are new or changed`);
    if (this.#bytes + size > maxFileBytes) {
      return this.#passOver(path, `with its ${size} bytes the files come to more than ${maxFileBytes}`);
    }
    const body = bytesOf(at, size);
    if (body === undefined) return this.#passOver(path, "it cannot be read");
    this.#bytes += size;
    this.#files.push({ path, body });
  }

  #passOver(path: string, reason: string): void {
    if (this.#passedOver.length < mostPassedOver) this.#passedOver.push({ path: path.slice(0, 1_024), reason });
  }
}

function namesIn(directory: string): Buffer[] {
  try {
    return readdirSync(directory, { encoding: "buffer" });
  } catch {
    return [];
  }
}

function statOf(path: string): Stats | undefined {
  try {
    return lstatSync(path);
  } catch {
    return undefined;
  }
}

function isSame(path: string, before: Uint8Array): boolean {
  return bytesOf(path, before.byteLength)?.equals(before) === true;
}

function bytesOf(path: string, size: number): Buffer | undefined {
  let file: number | undefined;
  try {
    file = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    const found = fstatSync(file);
    if (!found.isFile() || found.size !== size) return undefined;
    const bytes = Buffer.alloc(size);
    for (let at = 0; at < size;) {
      const read = readSync(file, bytes, at, size - at, at);
      if (read === 0) return undefined;
      at += read;
    }
    return bytes;
  } catch {
    return undefined;
  } finally {
    if (file !== undefined) closeSync(file);
  }
}
