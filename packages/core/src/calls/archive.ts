/**
 * Calls past their retention leave the database for NDJSON objects, one tenant and one UTC day each (design
 * "Retention"; CHAT-13). The order makes it safe to die anywhere: calls are given to an archive in the
 * database, the archive is written under a key of its own, then its calls go. Whoever finds it unfinished
 * writes the same lines to the same key, so a call stands in exactly one archive.
 */
import { deleteBelow } from "../delete-blobs.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { runBlobPrefix, tenantKey, type BlobInfo, type BlobStore } from "../ports/blob-store.ts";
import type { CallArchive, ClaimedArchive } from "../ports/archives.ts";
import { viewArchivedCall } from "./view.ts";

type ArchiveDeps = Pick<CoreDeps, "repos" | "blobs" | "log" | "reach" | "timing">;

/** Of one archive, so that it fits into memory. */
const mostCalls = 500;
const mostBytes = 4_194_304;
/** Calls whose blobs are deleted beside each other. */
const atOnce = 32;

const mediaType = "application/x-ndjson";

/** `{tenant}/archive/calls/{day}/{id}`: readable as they are for who looks into the bucket. */
function archiveKey(tenant: string, { id, day }: Pick<CallArchive, "id" | "day">): string {
  return tenantKey(tenant, "archive", "calls", dayOf(day), id);
}

/** `2026-11-27` */
export function dayOf(day: number): string {
  return new Date(day).toISOString().slice(0, 10);
}

/**
 * Archives a part of what is due; any number of instances may do so at once.
 * @returns whether there may be more; never where an archive cannot be written: another should not even be begun
 */
export async function archiveCalls(deps: ArchiveDeps): Promise<boolean> {
  const claimed = await deps.repos.archives.claim({
    limit: mostCalls,
    bytes: mostBytes,
    leaseMs: deps.timing.leaseMs,
  });
  const done = [];
  for (const archive of claimed) done.push(await finishArchive(deps, archive));
  return done.length > 0 && !done.includes(false);
}

async function finishArchive(deps: ArchiveDeps, archive: ClaimedArchive): Promise<boolean> {
  const { repos, blobs, log, reach } = deps;
  const { tenant, id } = archive;
  reach("archive.claimed");
  try {
    const bytes = archive.kept ? await write(deps, archive) : 0;
    reach("archive.written");
    // Before the rows that name them: else a process that dies in between leaves them for good.
    for (let from = 0; from < archive.calls.length; from += atOnce) {
      await Promise.all(archive.calls.slice(from, from + atOnce).map((call) => deleteResults(blobs, tenant, call)));
    }
    if (!archive.kept || archive.calls.length === 0) await repos.archives.discard(tenant, id);
    else if (!(await repos.archives.finish(tenant, id, { bytes, calls: archive.calls.length }))) {
      // The tenant was erased meanwhile; nothing of it may be left.
      await blobs.delete(archiveKey(tenant, archive));
    }
    reach("archive.finished");
    return true;
  } catch (error) {
    // The claim runs out and another tick tries again.
    log.log("error", "calls could not be archived", {
      tenant,
      archive: id,
      error: error instanceof GatewayError ? error.code : "unknown",
    });
    return false;
  }
}

/** Results, and what steps of a run came to, where that was too long for their rows. */
async function deleteResults(
  blobs: BlobStore,
  tenant: string,
  { id, call, blobKey }: ClaimedArchive["calls"][number],
): Promise<void> {
  if (blobKey !== undefined) await blobs.delete(blobKey);
  if (call?.repeat === "resume") await deleteBelow(blobs, runBlobPrefix(tenant, id));
}

async function write({ repos, blobs, log }: ArchiveDeps, archive: ClaimedArchive): Promise<number> {
  const { tenant, calls } = archive;
  const below = await repos.calls.costsBelow(
    tenant,
    calls.map(({ id }) => id),
  );
  const lines = calls.map(({ id, call }) => {
    if (call !== undefined) return `${JSON.stringify(viewArchivedCall(call, below.get(id) ?? 0))}\n`;
    log.log("error", "a stored row cannot be read", { table: "calls", tenant, row: id });
    return `${JSON.stringify({ id, object: "call", unreadable: true })}\n`;
  });
  const bytes = Buffer.from(lines.join(""), "utf8");
  if (bytes.byteLength > 0) await blobs.put(archiveKey(tenant, archive), bytes, { mediaType });
  return bytes.byteLength;
}

/** Deletes archives past the tenant's `calls_archive_days`; the object first, then the row that names it. Gives how many it tried. */
export async function expireArchives({ repos, blobs, log }: ArchiveDeps, limit: number): Promise<number> {
  const expired = await repos.archives.takeExpired(limit);
  for (const { tenant, ...archive } of expired) {
    try {
      await blobs.delete(archiveKey(tenant, archive));
      await repos.archives.discard(tenant, archive.id);
    } catch (error) {
      log.log("error", "an archive of calls could not be deleted", {
        tenant,
        archive: archive.id,
        error: error instanceof GatewayError ? error.code : "unknown",
      });
    }
  }
  return expired.length;
}

export interface OpenArchive {
  readonly archive: CallArchive;
  readonly blob: BlobInfo;
  readonly key: string;
}

/** @throws GatewayError `not_found` */
export async function findArchive(
  { repos, blobs }: Pick<CoreDeps, "repos" | "blobs">,
  tenant: string,
  id: string,
): Promise<OpenArchive> {
  const archive = await repos.archives.get(tenant, id);
  const key = archive === undefined ? undefined : archiveKey(tenant, archive);
  const blob = key === undefined ? undefined : await blobs.head(key);
  if (archive === undefined || key === undefined || blob === undefined) throw archiveNotFound(id);
  return { archive, blob, key };
}

export function archiveNotFound(id: string): GatewayError {
  return new GatewayError("not_found", `There is no archive of calls '${id}'.`, { param: "id" });
}
