/** The folders of a directory of plugins on this machine, as files with paths; links are not followed. */
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";

export interface DirectoryFile {
  /** Below the directory, with `/`. */
  readonly path: string;
  readonly body: Uint8Array;
}

/** Undefined where no such directory can be read. Only folders that have one of these names directly in them are read. */
export async function readPluginDirectory(
  directory: string,
  manifestNames: readonly string[],
): Promise<readonly DirectoryFile[] | undefined> {
  const entries = await readdir(directory, { withFileTypes: true }).catch(() => undefined);
  if (entries === undefined) return undefined;
  const names = entries.flatMap((entry) => (entry.isDirectory() ? [entry.name] : [])).sort();
  const files = await Promise.all(names.map((name) => readFolder(directory, name, manifestNames)));
  return files.flat();
}

async function readFolder(
  directory: string,
  name: string,
  manifestNames: readonly string[],
): Promise<readonly DirectoryFile[]> {
  const inside = await readdir(join(directory, name), { recursive: true, withFileTypes: true });
  const isPlugin = inside.some(
    (entry) => entry.parentPath === join(directory, name) && entry.isFile() && manifestNames.includes(entry.name),
  );
  if (!isPlugin) return [];
  const files = inside.filter((entry) => entry.isFile());
  return Promise.all(
    files.map(async (entry) => {
      const place = join(entry.parentPath, entry.name);
      return { path: place.slice(directory.length + 1).replaceAll("\\", "/"), body: await readFile(place) };
    }),
  );
}
