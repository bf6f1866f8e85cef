/** The functions of the release before this one, as they were uploaded; stored by store.ts. */
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { brotliDecompress } from "node:zlib";

export interface PreviousRelease {
  readonly version: string;
  readonly commit: string;
  /** The integration of its `api` function, which belongs to a release as its code does. */
  readonly apiTransferMode: "BUFFERED" | "STREAM";
}

export const bundlesFile = join(import.meta.dirname, "functions.json.br");
export const releaseFile = join(import.meta.dirname, "release.json");

/** Lays its bundles out in a directory, to be the root of functions. */
export async function unpackPreviousRelease(directory: string): Promise<PreviousRelease> {
  const bundles = JSON.parse(
    (await promisify(brotliDecompress)(await readFile(bundlesFile))).toString("utf8"),
  ) as Record<string, string>;
  for (const [file, code] of Object.entries(bundles)) {
    await mkdir(dirname(join(directory, file)), { recursive: true });
    await writeFile(join(directory, file), code);
  }
  return JSON.parse(await readFile(releaseFile, "utf8")) as PreviousRelease;
}
