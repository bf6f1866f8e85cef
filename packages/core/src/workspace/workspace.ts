/**
 * The files of a session (CHAT-8, CHAT-9, CHAT-19). A file is a row that names a blob: bytes are
 * streamed to a blob of their own first, then one statement makes them the file, so that readers see
 * the old file or the new one, whole, and two writers never mix.
 */
import { randomUUID } from "node:crypto";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { tenantKey } from "../ports/blob-store.ts";
import { mostWorkspaceFiles, type FullWorkspace, type WorkspaceFile } from "../ports/sessions.ts";
import type { Repos } from "../ports/repos.ts";
import { deleteBlobs } from "../delete-blobs.ts";
import { directoryPrefix, filePath } from "./path.ts";

export interface WorkspacePlace {
  readonly tenant: string;
  readonly session: string;
}

export interface FilePlace extends WorkspacePlace {
  /** As given; read by `filePath`. */
  readonly path: string;
}

/** Inclusive of `start`, exclusive of `end`. */
export interface ByteRange {
  readonly start: number;
  readonly end?: number;
}

export interface OpenFile {
  readonly file: WorkspaceFile;
  readonly body: AsyncIterable<Uint8Array>;
}

export interface WriteOptions {
  readonly mediaType?: string;
  /** The tenant's `workspace_bytes`. */
  readonly limit: number;
  readonly signal?: AbortSignal;
}

export interface WrittenFile {
  readonly path: string;
  readonly bytes: number;
  readonly replaced: boolean;
}

export interface Workspace {
  /** @throws GatewayError `file_not_found`, `invalid_arguments` for the path */
  stat(place: FilePlace): Promise<WorkspaceFile>;
  /** @throws GatewayError `file_not_found`, `invalid_arguments` for the path or the range */
  read(place: FilePlace, range?: ByteRange): Promise<OpenFile>;
  /** @throws GatewayError `workspace_full`, `invalid_arguments` for the path; whatever the body throws */
  write(place: FilePlace, body: Uint8Array | AsyncIterable<Uint8Array>, options: WriteOptions): Promise<WrittenFile>;
  /** Files of a directory and below, by path. */
  list(place: FilePlace): Promise<readonly WorkspaceFile[]>;
  /** @throws GatewayError `file_not_found`, `invalid_arguments` for the path */
  delete(place: FilePlace): Promise<void>;
  /** @throws GatewayError `session_not_found` */
  removeSession(place: WorkspacePlace): Promise<void>;
  /** Removes what sessions left that were idle too long. Returns how many it found. */
  expireSessions(limit: number): Promise<number>;
}

export type WorkspaceDeps = Pick<CoreDeps, "blobs" | "clock" | "log"> & { readonly repos: Pick<Repos, "sessions"> };

/** No write takes longer: the longest job ends after 14 minutes. */
const orphanAfterMs = 900_000;
const orphanPage = 1_000;
/** Files of a session that go before their rows do: whoever is stopped half-way has done so much for the next. */
const removedAtOnce = 200;

export function createWorkspace(deps: WorkspaceDeps): Workspace {
  const { blobs, clock, log } = deps;
  const { sessions } = deps.repos;

  async function stat({ tenant, session, path }: FilePlace): Promise<WorkspaceFile> {
    const name = filePath(path);
    const file = await sessions.getFile(tenant, session, name);
    if (file === undefined) throw fileNotFound(name);
    return file;
  }

  async function write(
    { tenant, session, path }: FilePlace,
    body: Uint8Array | AsyncIterable<Uint8Array>,
    options: WriteOptions,
  ): Promise<WrittenFile> {
    const name = filePath(path);
    const mediaType = options.mediaType ?? "application/octet-stream";
    // Never the name of an earlier blob: whoever reads that one reads it to its end.
    const blobKey = tenantKey(tenant, "workspaces", session, randomUUID());
    const counter = new Counter(options);
    // Bytes at hand stay in one piece: object stores take them in one request.
    await blobs.put(blobKey, body instanceof Uint8Array ? counter.take(body) : counter.takeAll(body), { mediaType });
    const file = { path: name, bytes: counter.bytes, mediaType, blobKey };
    const put = await sessions.putFile(tenant, session, file, options.limit).catch(async (error: unknown) => {
      await forgetUnlessStored(tenant, session, file);
      throw error;
    });
    if (put.kind === "full") {
      await drop(blobKey);
      throw workspaceFull(options.limit, put);
    }
    if (put.replaced !== undefined && put.replaced !== blobKey) await drop(put.replaced);
    return { path: name, bytes: file.bytes, replaced: put.replaced !== undefined };
  }

  /** After a failed statement the row may be there all the same; only the answer was lost. */
  async function forgetUnlessStored(
    tenant: string,
    session: string,
    file: { readonly path: string; readonly blobKey: string },
  ): Promise<void> {
    try {
      const stored = await sessions.getFile(tenant, session, file.path);
      if (stored?.blobKey !== file.blobKey) await blobs.delete(file.blobKey);
    } catch {
      // Left as an orphan: it goes with the session.
    }
  }

  /** A blob that no row names any more. Failing to delete it must not fail what has already happened. */
  async function drop(blobKey: string): Promise<void> {
    try {
      await blobs.delete(blobKey);
    } catch (error) {
      log.log("warn", "a workspace blob could not be deleted; it goes with its session", {
        error: error instanceof GatewayError ? error.code : "unknown",
      });
    }
  }

  /**
   * Blobs first, then the rows that name them, some at a time: stopped half-way, this is gone on with by whoever
   * comes next, and two instances at once do no harm.
   */
  async function remove({ tenant, session }: WorkspacePlace): Promise<boolean> {
    for (;;) {
      const { data } = await sessions.pageFiles(tenant, session, { limit: removedAtOnce, order: "asc" });
      if (data.length === 0) break;
      const blobKeys = data.map(({ blobKey }) => blobKey);
      await deleteBlobs(blobs, blobKeys);
      await sessions.deleteFiles(tenant, session, blobKeys);
    }
    const prefix = `${tenantKey(tenant, "workspaces", session)}/`;
    for (let after = ""; ;) {
      const page = await blobs.list(prefix, { limit: orphanPage, ...(after === "" ? {} : { after }) });
      // Blobs of writes that never came to be files. Young ones may belong to a write under way.
      const orphans = page.filter((blob) => blob.modifiedAt < clock.now() - orphanAfterMs);
      await deleteBlobs(
        blobs,
        orphans.map(({ key }) => key),
      );
      after = page.at(-1)?.key ?? "";
      if (page.length < orphanPage) break;
    }
    const left = await sessions.delete(tenant, session);
    await deleteBlobs(blobs, left ?? []);
    return left !== undefined;
  }

  return {
    stat,
    write,
    async read(place, range) {
      const file = await stat(place);
      if (range !== undefined) requireRange(range, file.bytes);
      const blob = await blobs.get(file.blobKey, range);
      if (blob !== undefined) return { file, body: blob.body };
      // Replaced between the two steps: the row names the new blob now.
      const newer = await stat(place);
      const again = newer.blobKey === file.blobKey ? undefined : await blobs.get(newer.blobKey, range);
      if (again === undefined) throw fileNotFound(file.path);
      return { file: newer, body: again.body };
    },
    list: ({ tenant, session, path }) => sessions.listFiles(tenant, session, directoryPrefix(path)),
    async delete({ tenant, session, path }) {
      const name = filePath(path);
      const blobKey = await sessions.deleteFile(tenant, session, name);
      if (blobKey === undefined) throw fileNotFound(name);
      await drop(blobKey);
    },
    async removeSession(place) {
      const known = await sessions.get(place.tenant, place.session);
      if (known === undefined || !(await remove(place))) {
        throw new GatewayError("session_not_found", `There is no session '${place.session}'.`, { param: "session_id" });
      }
    },
    async expireSessions(limit) {
      const expired = await sessions.takeExpired(limit);
      for (const { tenant, id } of expired) {
        try {
          await remove({ tenant, session: id });
        } catch (error) {
          // The claim runs out and another tick tries again; the others must not wait for this one.
          log.log("error", "an expired session could not be removed", {
            tenant,
            session: id,
            error: error instanceof GatewayError ? error.code : "unknown",
          });
        }
      }
      return expired.length;
    },
  };
}

/** Counts what passes, and ends a body that could not fit in any case. */
class Counter {
  readonly #options: WriteOptions;
  bytes = 0;

  constructor(options: WriteOptions) {
    this.#options = options;
  }

  take(part: Uint8Array): Uint8Array {
    const { limit, signal } = this.#options;
    if (signal?.aborted === true) throw new GatewayError("call_cancelled", "The write was given up.");
    this.bytes += part.byteLength;
    if (this.bytes > limit) throw workspaceFull(limit, undefined);
    return part;
  }

  async *takeAll(parts: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void, void> {
    for await (const part of parts) yield this.take(part);
  }
}

function fileNotFound(path: string): GatewayError {
  return new GatewayError(
    "file_not_found",
    `There is no file '${path}' in this workspace; 'list_files' shows what there is.`,
    {
      param: "path",
    },
  );
}

/** @param used what is in use, and announced to come */
export function workspaceFull(limit: number, used: Omit<FullWorkspace, "kind"> | undefined): GatewayError {
  if (used !== undefined && used.files >= mostWorkspaceFiles) {
    return new GatewayError(
      "workspace_full",
      `The file has no place: this workspace holds ${used.files} files, and may hold ${mostWorkspaceFiles}. Delete files or write into those that are there.`,
      { extra: { limit_files: mostWorkspaceFiles, used_files: used.files } },
    );
  }
  const held = used === undefined ? "" : `, of which ${used.bytes} are in use`;
  return new GatewayError(
    "workspace_full",
    `The file does not fit: this workspace may hold ${limit} bytes${held} (setting 'workspace_bytes'). Delete files or write less.`,
    { extra: { limit_bytes: limit, ...(used === undefined ? {} : { used_bytes: used.bytes }) } },
  );
}

function requireRange({ start, end }: ByteRange, bytes: number): void {
  const wrong = !Number.isSafeInteger(start) || start < 0 || start > bytes || (end !== undefined && end < start);
  if (wrong) {
    throw new GatewayError("invalid_arguments", `The range does not lie in the file, which has ${bytes} bytes.`, {
      param: "range",
      extra: { bytes },
    });
  }
}
