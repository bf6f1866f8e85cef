/**
 * Where a held module lies on a node: in a folder of its own for each version of its files, in which it may keep what
 * it likes; a newer version begins with what it brings.
 */
import { access, mkdir, rename, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { folderLimits } from "@toolyard/core/vcp/plugins/files";
import { hostProgram } from "@toolyard/core/vcp/modules/host-program";
import { unpackZip, type ZipFile } from "@toolyard/core/zip";
import type { OpenedModule } from "./module-desk.ts";

export interface ModulePlace {
  /** The program that loads it. */
  readonly hostFile: string;
  /** What the plugin knows as its project. */
  readonly projectDirectory: string;
  /** The plugin's own folder, below that. */
  readonly directory: string;
}

export async function layModule(
  { plugin, filesHash, filesUrl, envFiles }: OpenedModule,
  to: { readonly directory: string; readonly download: (url: string) => Promise<Uint8Array> },
): Promise<ModulePlace> {
  const projectDirectory = join(to.directory, plugin, filesHash.slice(0, 16));
  const directory = join(projectDirectory, "Plugin", plugin);
  const hostFile = join(to.directory, "module-host.cjs");
  await mkdir(to.directory, { recursive: true, mode: 0o700 });
  await writeFile(hostFile, hostProgram, { mode: 0o600 });
  if (!(await exists(directory))) {
    const files =
      filesUrl === null ? [] : await unpackZip(await to.download(filesUrl), { ...folderLimits, param: "files" });
    await layWhole(directory, files);
  }
  for (const { path, base64 } of envFiles)
    await writeFile(join(directory, path), Buffer.from(base64, "base64"), { mode: 0o600 });
  return { hostFile, projectDirectory, directory };
}

/** All of it or nothing, should the node end meanwhile. */
async function layWhole(directory: string, files: readonly ZipFile[]): Promise<void> {
  const making = `${directory}.new`;
  await rm(making, { recursive: true, force: true });
  await mkdir(making, { recursive: true, mode: 0o700 });
  for (const { path, body } of files) {
    const target = join(making, path);
    await mkdir(dirname(target), { recursive: true, mode: 0o700 });
    await writeFile(target, body, { flag: "wx", mode: 0o700 });
  }
  await rename(making, directory);
}

async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}
