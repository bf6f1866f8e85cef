/** Persistence of calls that are no longer rows. Rules and contract as in repos.ts. */
import type { Call } from "../calls/call.ts";
import type { Page, PageRequest } from "./page.ts";

/** Calls of one tenant and one UTC day that are no longer rows. */
export interface CallArchive {
  /** `arc_…` */
  readonly id: string;
  /** Start of the day on which the calls were made. */
  readonly day: number;
  readonly calls: number;
  readonly bytes: number;
  readonly writtenAt: number;
}

export interface ClaimedArchive {
  readonly tenant: string;
  readonly id: string;
  readonly day: number;
  /** False: the tenant keeps no archive of this day. */
  readonly kept: boolean;
  /** All that belong to it, in the order of their creation; the same ones however often it is claimed. */
  readonly calls: readonly ArchivedCall[];
}

export interface ArchivedCall {
  readonly id: string;
  /** Undefined where the row cannot be read. */
  readonly call: Call | undefined;
  /** Of its result. */
  readonly blobKey: string | undefined;
}

/**
 * Calls past `calls_retention_days` that have ended. Each is given to one archive for good before that is
 * written, and goes with all others of it once it is; so an archive may be written twice, a call may not.
 */
export interface ArchiveRepo {
  /**
   * From each shard one archive that nobody holds: one that somebody began and did not end, else a new one of
   * at most `limit` calls and about `bytes` bytes. Empty: nothing is due.
   */
  claim(options: {
    readonly limit: number;
    readonly bytes: number;
    readonly leaseMs: number;
  }): Promise<readonly ClaimedArchive[]>;
  /** It is durably written: its calls go. `false`: the archive is gone, as its tenant is. */
  finish(tenant: string, id: string, written: { readonly bytes: number; readonly calls: number }): Promise<boolean>;
  /** Its calls go, and so does it. */
  discard(tenant: string, id: string): Promise<void>;
  get(tenant: string, id: string): Promise<CallArchive | undefined>;
  /** @throws GatewayError `invalid_request` (param `after`) where there is no such archive */
  list(tenant: string, page: PageRequest): Promise<Page<CallArchive>>;
  /** Of all tenants: archives past `calls_archive_days`; claimed, so that two instances share the work. */
  takeExpired(
    limit: number,
  ): Promise<readonly { readonly tenant: string; readonly id: string; readonly day: number }[]>;
}
