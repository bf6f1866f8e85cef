/** Persistence of sessions, their files and uploads to these. Rules and contract as in repos.ts. */
import type { Page, PageRequest } from "./page.ts";

export interface Session {
  readonly id: string;
  readonly callerId: string;
  readonly bytes: number;
  readonly createdAt: number;
  readonly lastUsedAt: number;
  readonly expired: boolean;
}

export interface WorkspaceFile {
  /** Normalised, without leading slash. */
  readonly path: string;
  readonly bytes: number;
  readonly mediaType: string;
  readonly blobKey: string;
  readonly updatedAt: number;
}

/** Of a session: each of them is a blob that has to be deleted by itself. */
export const mostWorkspaceFiles = 10_000;

/** What a workspace holds and is announced to hold. */
export interface FullWorkspace {
  readonly kind: "full";
  readonly bytes: number;
  readonly files: number;
}

export interface SessionRepo {
  get(tenant: string, id: string): Promise<Session | undefined>;
  /**
   * Of one caller, or of the whole tenant.
   * @throws GatewayError `invalid_request` (param `after`) where there is no such session
   */
  list(tenant: string, page: PageRequest, callerId?: string): Promise<Page<Session>>;
  /** Creates or touches. `expired` where it was idle too long. */
  touch(tenant: string, id: string, callerId: string, idleMs: number): Promise<Session>;
  listFiles(tenant: string, session: string, prefix: string): Promise<readonly WorkspaceFile[]>;
  pageFiles(tenant: string, session: string, page: PageRequest): Promise<Page<WorkspaceFile>>;
  getFile(tenant: string, session: string, path: string): Promise<WorkspaceFile | undefined>;
  /**
   * Puts or replaces where the workspace stays within `limit` bytes and `mostWorkspaceFiles`. Returns the blob key
   * replaced, for deletion.
   */
  putFile(
    tenant: string,
    session: string,
    file: Omit<WorkspaceFile, "updatedAt">,
    limit: number,
  ): Promise<{ readonly kind: "stored"; readonly replaced: string | undefined } | FullWorkspace>;
  /** Returns the blob key that was the file's, or undefined where there was none. */
  deleteFile(tenant: string, session: string, path: string): Promise<string | undefined>;
  /** Of the files whose blobs these still are. */
  deleteFiles(tenant: string, session: string, blobKeys: readonly string[]): Promise<void>;
  /** Removes the session and its files' rows. Returns their blob keys; undefined: no such session. */
  delete(tenant: string, id: string): Promise<readonly string[] | undefined>;
  /** Sessions of all tenants idle past their tenant's setting; claimed, so that two instances share the work. */
  takeExpired(limit: number): Promise<readonly { readonly tenant: string; readonly id: string }[]>;
}

/** An upload that a client was given a link for. */
export interface WorkspaceUpload {
  /** `upl_…` */
  readonly id: string;
  readonly session: string;
  /** Normalised, without leading slash. */
  readonly path: string;
  readonly bytes: number;
  readonly mediaType: string;
  readonly blobKey: string;
  /** There was a file at the path when it was announced. */
  readonly replaces: boolean;
  readonly expiresAt: number;
  readonly state: "open" | "file" | "over";
}

export type NewWorkspaceUpload = Pick<WorkspaceUpload, "id" | "path" | "bytes" | "mediaType" | "blobKey">;

export interface UploadRepo {
  /**
   * Announces an upload where it fits beside the files and the other open uploads; it holds that room.
   * @throws GatewayError `session_not_found`, `session_expired`
   */
  open(
    tenant: string,
    session: string,
    upload: NewWorkspaceUpload,
    expiresInMs: number,
  ): Promise<{ readonly kind: "open"; readonly upload: WorkspaceUpload } | FullWorkspace>;
  get(tenant: string, session: string, id: string): Promise<WorkspaceUpload | undefined>;
  /**
   * Makes an open upload the file of its path, in one statement with its end. `changed`: what is at the path is
   * not what was there when it was announced, and `replace` is not given. Doing it again finds it done.
   * @throws GatewayError `session_not_found`, `session_expired`
   */
  complete(
    tenant: string,
    session: string,
    id: string,
    options: { readonly replace: boolean },
  ): Promise<
    | { readonly kind: "stored"; readonly file: WorkspaceFile; readonly replaced: string | undefined }
    | FullWorkspace
    | { readonly kind: "changed" }
    | { readonly kind: "over" }
    | { readonly kind: "missing" }
  >;
  /** Ends an open upload without a file. `missing` for one of another session. */
  giveUp(tenant: string, session: string, id: string): Promise<WorkspaceUpload | undefined>;
  /** Of all tenants: links that ran out at least `afterMs` ago; claimed, so that two instances share the work. */
  takeExpired(options: {
    readonly limit: number;
    readonly afterMs: number;
  }): Promise<readonly (WorkspaceUpload & { readonly tenant: string })[]>;
  /** Ends it for good where it is open; the blob key where no file has it. */
  end(tenant: string, id: string): Promise<string | undefined>;
  delete(tenant: string, id: string): Promise<void>;
}
