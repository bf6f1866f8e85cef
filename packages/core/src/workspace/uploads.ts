/**
 * Files that come and go by links of the blob store instead of through the gateway (CHAT-19), whose answers
 * and requests have a size on some hosts. An upload is announced with its path and size, which holds the
 * room for it; its bytes go to a blob of their own; completing it makes them the file, as a write does.
 * What arrived and was never completed becomes the file when its link has run out, unless the path was
 * written meanwhile: then it goes, since it may not overwrite what it has not seen.
 */
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { newId } from "../ids.ts";
import { tenantKey, type PresignedRequest } from "../ports/blob-store.ts";
import type { Repos } from "../ports/repos.ts";
import type { WorkspaceFile, WorkspaceUpload } from "../ports/sessions.ts";
import { filePath } from "./path.ts";
import { createWorkspace, workspaceFull, type FilePlace, type WorkspacePlace } from "./workspace.ts";

export type UploadDeps = Pick<CoreDeps, "blobs" | "clock" | "log"> & {
  readonly repos: Pick<Repos, "sessions" | "uploads">;
};

export interface AnnouncedFile {
  readonly bytes: number;
  readonly mediaType: string;
  readonly expiresInMs: number;
  /** The tenant's `workspace_bytes`, for what is said where it does not fit. */
  readonly limit: number;
}

export interface UploadPlace extends WorkspacePlace {
  readonly id: string;
}

/** Whoever began an upload in time has so long to end it. */
const graceMs = 900_000;

/** @throws GatewayError `workspace_full`, `invalid_arguments` for the path, `session_not_found`, `session_expired` */
export async function announceUpload(
  deps: UploadDeps,
  { tenant, session, path }: FilePlace,
  { bytes, mediaType, expiresInMs, limit }: AnnouncedFile,
): Promise<{ readonly upload: WorkspaceUpload; readonly request: PresignedRequest }> {
  const name = filePath(path);
  if (bytes > limit) throw workspaceFull(limit, undefined);
  const id = newId("upload");
  const blobKey = tenantKey(tenant, "workspaces", session, id);
  const opened = await deps.repos.uploads.open(
    tenant,
    session,
    { id, path: name, bytes, mediaType, blobKey },
    expiresInMs,
  );
  if (opened.kind === "full") throw workspaceFull(limit, opened);
  const request = await deps.blobs.presign(blobKey, { method: "PUT", expiresInMs, bytes, mediaType });
  return { upload: opened.upload, request };
}

export interface CompletedUpload {
  readonly file: WorkspaceFile;
  readonly replaced: boolean;
}

/**
 * @throws GatewayError `not_found`, `upload_incomplete` where the bytes have not arrived, `conflict` where the
 * path was written since, `workspace_full`, `session_not_found`, `session_expired`
 */
export async function completeUpload(
  deps: UploadDeps,
  { tenant, session, id }: UploadPlace,
  options: { readonly replace: boolean; readonly limit: number },
): Promise<CompletedUpload> {
  const upload = await deps.repos.uploads.get(tenant, session, id);
  if (upload === undefined) throw uploadNotFound(id);
  if (upload.state === "open") await requireArrived(deps, upload);
  const done = await deps.repos.uploads.complete(tenant, session, id, options);
  switch (done.kind) {
    case "stored":
      await dropReplaced(deps, done.replaced);
      return { file: done.file, replaced: done.replaced !== undefined };
    case "full":
      throw workspaceFull(options.limit, done);
    case "changed":
      throw new GatewayError(
        "conflict",
        `The file '${upload.path}' was written or deleted since this upload was announced. Send {"replace": true} to put the upload in its place.`,
        { param: "replace" },
      );
    case "over":
    case "missing":
      throw uploadNotFound(id);
  }
}

async function requireArrived({ blobs }: UploadDeps, { blobKey, bytes }: WorkspaceUpload): Promise<void> {
  const blob = await blobs.head(blobKey);
  if (blob?.bytes === bytes) return;
  throw new GatewayError(
    "upload_incomplete",
    `The ${bytes} bytes of this upload have not arrived; send them to its link first.`,
  );
}

/** Readers of the old file read it to its end; failing to delete it must not fail what has happened. */
async function dropReplaced({ blobs, log }: UploadDeps, blobKey: string | undefined): Promise<void> {
  if (blobKey === undefined) return;
  await blobs.delete(blobKey).catch((error: unknown) =>
    log.log("warn", "a workspace blob could not be deleted; it goes with its session", {
      error: error instanceof GatewayError ? error.code : "unknown",
    }),
  );
}

/** The room is free again; what arrives later goes with the tick. @throws GatewayError `not_found` */
export async function giveUpUpload(deps: UploadDeps, { tenant, session, id }: UploadPlace): Promise<void> {
  const upload = await deps.repos.uploads.giveUp(tenant, session, id);
  if (upload === undefined || upload.state === "file") throw uploadNotFound(id);
  await deps.blobs.delete(upload.blobKey);
}

/** @throws GatewayError `file_not_found`, `invalid_arguments` for the path */
export async function presignFile(
  deps: UploadDeps,
  place: FilePlace,
  expiresInMs: number,
): Promise<{ readonly file: WorkspaceFile; readonly request: PresignedRequest }> {
  const file = await createWorkspace(deps).stat(place);
  const fileName = file.path.slice(file.path.lastIndexOf("/") + 1);
  return { file, request: await deps.blobs.presign(file.blobKey, { method: "GET", expiresInMs, fileName }) };
}

/** Ends uploads whose links have run out. Two instances at once, or one that dies half-way, do no harm. */
export async function clearUploads(deps: UploadDeps, limit: number): Promise<number> {
  const expired = await deps.repos.uploads.takeExpired({ limit, afterMs: graceMs });
  for (const { tenant, ...upload } of expired) {
    try {
      if (upload.state === "open") await completeLate(deps, tenant, upload);
      // From here on nobody can complete it, so the blob is a file's, or nobody's.
      const unused = await deps.repos.uploads.end(tenant, upload.id);
      if (unused !== undefined) await deps.blobs.delete(unused);
      await deps.repos.uploads.delete(tenant, upload.id);
    } catch (error) {
      // The claim runs out and another tick tries again; the others must not wait for this one.
      deps.log.log("error", "an upload could not be cleared away", {
        tenant,
        upload: upload.id,
        error: error instanceof GatewayError ? error.code : "unknown",
      });
    }
  }
  return expired.length;
}

async function completeLate(
  deps: UploadDeps,
  tenant: string,
  { session, id, bytes, blobKey }: WorkspaceUpload,
): Promise<void> {
  const blob = await deps.blobs.head(blobKey);
  if (blob?.bytes !== bytes) return;
  try {
    const done = await deps.repos.uploads.complete(tenant, session, id, { replace: false });
    if (done.kind === "stored") await dropReplaced(deps, done.replaced);
  } catch (error) {
    // The session has ended, and its files with it.
    const isOver = error instanceof GatewayError && ["session_not_found", "session_expired"].includes(error.code);
    if (!isOver) throw error;
  }
}

function uploadNotFound(id: string): GatewayError {
  return new GatewayError("not_found", `There is no upload '${id}' under way in this session.`, { param: "upload_id" });
}
