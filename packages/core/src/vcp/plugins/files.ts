/**
 * The folders of plugins: zip files in the blob store under the hash of what they hold, unpacked once for each
 * process. Equal folders of a tenant lie there once; what nothing refers to any more is small and stays until the
 * tenant is erased, since a call under way may still need it.
 */
import { createHash } from "node:crypto";
import { GatewayError } from "../../errors/gateway-error.ts";
import { readAll, tenantKey, type BlobStore } from "../../ports/blob-store.ts";
import type { LinkedFile, PluginRun, PluginRunner } from "../../ports/plugin-runner.ts";
import { withDelivery } from "../../errors/delivery.ts";
import type { PluginFiles } from "./stored-plugin.ts";
import { packZip, unpackZip, type ZipFile } from "../../zip.ts";

export const folderLimits = {
  files: 2_000,
  /** Of one plugin, unpacked. */
  bytes: 52_428_800,
} as const;

export function pluginFilesKey(tenant: string, hash: string): string {
  return tenantKey(tenant, "vcp-plugins", `${hash}.zip`);
}

/** A folder as it is stored. */
export interface PackedFolder {
  readonly archive: Uint8Array;
  readonly described: PluginFiles;
}

/** Null for no files. */
export async function packPluginFiles(files: readonly ZipFile[]): Promise<PackedFolder | null> {
  if (files.length === 0) return null;
  const archive = await packZip(files);
  const hash = createHash("sha256").update(archive).digest("hex");
  return { archive, described: { hash, bytes: archive.byteLength, count: files.length } };
}

/** Unless an equal one is there. */
export async function storePluginFiles(
  { blobs }: { readonly blobs: Pick<BlobStore, "put"> },
  tenant: string,
  { archive, described }: PackedFolder,
): Promise<void> {
  const options = { mediaType: "application/zip", ifAbsent: true };
  await blobs.put(pluginFilesKey(tenant, described.hash), archive, options);
}

/** An environment may have to be made for the box before it follows a link. */
const linkMs = 300_000;

/** Bytes of unpacked folders that a process keeps. */
const keptBytes = 67_108_864;

interface Kept {
  readonly files: Promise<readonly ZipFile[]>;
  bytes: number;
}

/** One for each process; the tenant is part of the key. */
export class PluginFolders {
  readonly #blobs: Pick<BlobStore, "get" | "presign">;
  readonly #kept = new Map<string, Kept>();
  #bytes = 0;

  constructor(blobs: Pick<BlobStore, "get" | "presign">) {
    this.#blobs = blobs;
  }

  /**
   * As a runner wants them: by themselves, or, where they are more than it carries, by a link to what is stored.
   * @throws GatewayError as `get`
   */
  async forRun(
    { carriesBytes = Number.POSITIVE_INFINITY }: Pick<PluginRunner, "carriesBytes">,
    tenant: string,
    files: PluginFiles | null,
  ): Promise<Required<Pick<PluginRun, "files" | "linked">>> {
    if (files !== null && files.bytes > carriesBytes) return { files: [], linked: [await this.#linkTo(tenant, files)] };
    const read = await this.get(tenant, files);
    const bytes = read.reduce((sum, { body }) => sum + body.byteLength, 0);
    if (files === null || bytes <= carriesBytes) return { files: read, linked: [] };
    return { files: [], linked: [await this.#linkTo(tenant, files)] };
  }

  async #linkTo(tenant: string, { hash, bytes }: PluginFiles): Promise<LinkedFile> {
    const link = await this.#blobs.presign(pluginFilesKey(tenant, hash), { method: "GET", expiresInMs: linkMs });
    return { path: "files", isFolder: true, bytes, url: link.url, headers: link.headers };
  }

  /** @throws GatewayError `tool_failed`: not sent, the folder is no longer there */
  get(tenant: string, files: PluginFiles | null): Promise<readonly ZipFile[]> {
    if (files === null) return Promise.resolve([]);
    const key = pluginFilesKey(tenant, files.hash);
    const known = this.#kept.get(key);
    if (known !== undefined) {
      this.#kept.delete(key);
      this.#kept.set(key, known);
      return known.files;
    }
    const kept: Kept = { files: this.#load(key), bytes: 0 };
    this.#kept.set(key, kept);
    kept.files.then(
      (loaded) => this.#count(kept, loaded),
      () => this.#kept.delete(key),
    );
    return kept.files;
  }

  async #load(key: string): Promise<readonly ZipFile[]> {
    const blob = await this.#blobs.get(key);
    if (blob === undefined) {
      const message = "The files of this plugin are no longer in the blob store; import it again.";
      throw withDelivery(new GatewayError("tool_failed", message), "not_sent");
    }
    return unpackZip(await readAll(blob.body), { ...folderLimits, param: "files" });
  }

  #count(kept: Kept, files: readonly ZipFile[]): void {
    kept.bytes = files.reduce((sum, { body }) => sum + body.byteLength, 0);
    this.#bytes += kept.bytes;
    for (const [key, oldest] of this.#kept) {
      if (this.#bytes <= keptBytes || oldest === kept) return;
      this.#kept.delete(key);
      this.#bytes -= oldest.bytes;
    }
  }
}
