/** Ports in memory for unit tests of the core, which may not import their adapters itself. */
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { Page, PageRequest } from "@toolyard/core/ports/page";
import type { Session, SessionRepo, WorkspaceFile } from "@toolyard/core/ports/sessions";

export { createMemoryBlobStore } from "@toolyard/platform/memory/memory-blob-store";

interface HeldSession {
  readonly tenant: string;
  session: Session;
  readonly files: Map<string, WorkspaceFile>;
  claimed: boolean;
}

export interface MemorySessions extends SessionRepo {
  /** Lets a session be idle for too long. */
  expire(tenant: string, id: string): void;
}

/** Sessions as the repository's contract has them; ids are unique over all tenants. */
export function createMemorySessions(now: () => number = Date.now): MemorySessions {
  const held = new Map<string, HeldSession>();

  const find = (tenant: string, id: string): HeldSession | undefined => {
    const found = held.get(id);
    return found?.tenant === tenant ? found : undefined;
  };
  const used = (files: ReadonlyMap<string, WorkspaceFile>): number =>
    [...files.values()].reduce((sum, file) => sum + file.bytes, 0);

  return {
    async get(tenant, id) {
      return find(tenant, id)?.session;
    },
    async list(tenant, page, callerId) {
      const mine = [...held.values()]
        .filter((each) => each.tenant === tenant)
        .map((each) => each.session)
        .filter((session) => callerId === undefined || session.callerId === callerId);
      return cutPage(mine, (session) => session.id, page);
    },
    async touch(tenant, id, callerId, idleMs) {
      const known = find(tenant, id);
      if (known !== undefined) {
        const expired = known.session.expired || known.session.lastUsedAt + idleMs < now();
        known.session = { ...known.session, expired, ...(expired ? {} : { lastUsedAt: now() }) };
        return known.session;
      }
      const session = { id, callerId, bytes: 0, createdAt: now(), lastUsedAt: now(), expired: false };
      held.set(id, { tenant, session, files: new Map(), claimed: false });
      return session;
    },
    async listFiles(tenant, session, prefix) {
      const files = [...(find(tenant, session)?.files.values() ?? [])];
      return files.filter((file) => file.path.startsWith(prefix)).sort((a, b) => (a.path < b.path ? -1 : 1));
    },
    async pageFiles(tenant, session, page) {
      return cutPage([...(find(tenant, session)?.files.values() ?? [])], (file) => file.path, page);
    },
    async getFile(tenant, session, path) {
      return find(tenant, session)?.files.get(path);
    },
    // Its parameters are the port's.
    // oxlint-disable-next-line max-params
    async putFile(tenant, session, file, limit) {
      const found = find(tenant, session);
      if (found === undefined) throw new GatewayError("session_not_found", `There is no session '${session}'.`);
      if (found.session.expired)
        throw new GatewayError("session_expired", `Session '${session}' was idle for too long.`);
      const { files } = found;
      const replaced = files.get(file.path);
      const others = used(files) - (replaced?.bytes ?? 0);
      if (others + file.bytes > limit) return { kind: "full", bytes: used(files), files: files.size };
      files.set(file.path, { ...file, updatedAt: now() });
      return { kind: "stored", replaced: replaced?.blobKey };
    },
    async deleteFile(tenant, session, path) {
      const files = find(tenant, session)?.files;
      const blobKey = files?.get(path)?.blobKey;
      files?.delete(path);
      return blobKey;
    },
    async deleteFiles(tenant, session, blobKeys) {
      const files = find(tenant, session)?.files;
      for (const { path, blobKey } of files?.values() ?? []) if (blobKeys.includes(blobKey)) files?.delete(path);
    },
    async delete(tenant, id) {
      const found = find(tenant, id);
      if (found === undefined) return undefined;
      held.delete(id);
      return [...found.files.values()].map((file) => file.blobKey);
    },
    async takeExpired(limit) {
      const due = [...held.values()].filter((each) => each.session.expired && !each.claimed).slice(0, limit);
      for (const each of due) each.claimed = true;
      return due.map((each) => ({ tenant: each.tenant, id: each.session.id }));
    },
    expire(tenant, id) {
      const found = find(tenant, id);
      if (found !== undefined) found.session = { ...found.session, expired: true };
    },
  };
}

function cutPage<T>(all: readonly T[], idOf: (item: T) => string, page: PageRequest): Page<T> {
  const order = page.order === "asc" ? 1 : -1;
  const sorted = all.toSorted((a, b) => (idOf(a) < idOf(b) ? -order : order));
  const { after } = page;
  const rest =
    after === undefined
      ? sorted
      : sorted.filter((item) => (idOf(item) > after ? 1 : -1) === order && idOf(item) !== after);
  return { data: rest.slice(0, page.limit), hasMore: rest.length > page.limit };
}
