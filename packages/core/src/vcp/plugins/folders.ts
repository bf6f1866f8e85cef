/**
 * Folders of plugins out of what was uploaded: an archive, a list of files, a directory of this machine (VCP-24).
 * A folder that cannot be used is reported and left out; it never takes the others with it.
 */
import { GatewayError } from "../../errors/gateway-error.ts";
import { isDeeperThan } from "../../json.ts";
import { blockedFileName, manifestFileName, type VcpManifest } from "./manifest.ts";
import { readManifest } from "./manifest-file.ts";
import { folderLimits } from "./files.ts";
import type { VcpSource } from "./source.ts";
import { placesFor, safePath, unpackZip, type ZipFile } from "../../zip.ts";

/** Of one import: many plugins, unpacked. */
const importLimits = { files: 10_000, bytes: 209_715_200 } as const;

const deepestManifest = 32;

export interface PluginFolder {
  /** Where it lies, for reports; plugins are known by the name in their manifest. */
  readonly label: string;
  readonly manifest: VcpManifest;
  /** Its manifest's name ends in `.block`. */
  readonly isBlocked: boolean;
  /** The manifest and what lies beside and below it. */
  readonly files: readonly ZipFile[];
}

export interface UnusableFolder {
  readonly label: string;
  readonly reason: string;
}

export interface ReadFolders {
  readonly folders: readonly PluginFolder[];
  readonly unusable: readonly UnusableFolder[];
  /** Files of no plugin. */
  readonly strays: readonly string[];
}

/** @throws GatewayError `invalid_request` for an archive that cannot be read, or holds no plugin */
export async function readVcpSource({ zip, manifest, files = [] }: VcpSource): Promise<ReadFolders> {
  if (zip !== undefined) {
    const read = readFolders(await unpackZip(Buffer.from(zip, "base64"), { ...importLimits, param: "vcp.zip" }));
    if (read.folders.length + read.unusable.length > 0) return read;
    throw new GatewayError("invalid_request", `'vcp.zip' holds no '${manifestFileName}'.`, { param: "vcp.zip" });
  }
  const beside = files.flatMap(({ path: given, text, base64 }): ZipFile[] => {
    const path = safePath(given, { param: "vcp.files" });
    if (path === manifestFileName || path === blockedFileName) return [];
    return [{ path, body: base64 === undefined ? Buffer.from(text ?? "", "utf8") : Buffer.from(base64, "base64") }];
  });
  [manifestFileName, ...beside.map(({ path }) => path)].forEach(placesFor({ param: "vcp.files" }));
  if (isDeeperThan(manifest, deepestManifest)) {
    const message = `'vcp.manifest' is nested deeper than ${deepestManifest} levels.`;
    throw new GatewayError("invalid_request", message, { param: "vcp.manifest" });
  }
  const body = Buffer.from(`${JSON.stringify(manifest, null, 2)}\n`, "utf8");
  return readFolders([{ path: manifestFileName, body }, ...beside]);
}

/** What packers and version control leave behind. */
const litter = /(?:^|\/)(?:__MACOSX|\.git|__pycache__)\/|(?:^|\/)(?:\.DS_Store|Thumbs\.db)$/;

/** Every folder with a manifest, the outermost one of a branch; in the order of their paths. */
export function readFolders(files: readonly ZipFile[]): ReadFolders {
  const kept = files.filter(({ path }) => !litter.test(path));
  const roots = new Set(kept.flatMap(({ path }) => (isManifest(path) ? [folderOf(path)] : [])));
  const byRoot = Map.groupBy(kept, ({ path }) => outermost(path, roots));
  const folders = [...byRoot].flatMap(([root, own]) => (root === undefined ? [] : [{ root, own }]));
  folders.sort((a, b) => (a.root < b.root ? -1 : 1));
  const read = folders.map(({ root, own }) => readFolder(root, own));
  return {
    folders: read.flatMap((folder) => ("manifest" in folder ? [folder] : [])),
    unusable: read.flatMap((folder) => ("reason" in folder ? [folder] : [])),
    strays: (byRoot.get(undefined) ?? []).map(({ path }) => path),
  };
}

function isManifest(path: string): boolean {
  const name = path.slice(path.lastIndexOf("/") + 1);
  return name === manifestFileName || name === blockedFileName;
}

function folderOf(path: string): string {
  const slash = path.lastIndexOf("/");
  return slash < 0 ? "" : path.slice(0, slash);
}

/** The first of the folders on the way to a file. */
function outermost(path: string, folders: ReadonlySet<string>): string | undefined {
  if (folders.has("")) return "";
  for (let slash = path.indexOf("/"); slash >= 0; slash = path.indexOf("/", slash + 1)) {
    const folder = path.slice(0, slash);
    if (folders.has(folder)) return folder;
  }
  return undefined;
}

function readFolder(root: string, files: readonly ZipFile[]): PluginFolder | UnusableFolder {
  const own = files.map(({ path, body }) => ({ path: root === "" ? path : path.slice(root.length + 1), body }));
  const label = root === "" ? "." : root;
  const enabled = own.find(({ path }) => path === manifestFileName);
  const found = enabled ?? own.find(({ path }) => path === blockedFileName);
  try {
    const manifest = readManifest(found?.body ?? new Uint8Array());
    checkSize(own);
    return { label, manifest, isBlocked: enabled === undefined, files: own };
  } catch (error) {
    if (error instanceof GatewayError) return { label, reason: error.message };
    throw error;
  }
}

function checkSize(files: readonly ZipFile[]): void {
  const bytes = files.reduce((sum, { body }) => sum + body.byteLength, 0);
  if (files.length <= folderLimits.files && bytes <= folderLimits.bytes) return;
  throw new GatewayError(
    "invalid_definition",
    `The folder has ${files.length} files with ${bytes} bytes; ${folderLimits.files} files with ${folderLimits.bytes} bytes are taken.`,
  );
}
