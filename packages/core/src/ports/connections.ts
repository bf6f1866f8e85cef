/**
 * Persistence of connections and of what they are told. Rules as in repos.ts: the tenant comes first,
 * one function is one database round trip, times are epoch milliseconds of the database's clock.
 * Contract: test/contract/connections-repo.ts.
 */
import type { Caller } from "../callers/caller.ts";
import type {
  ClaimedEvent,
  Connection,
  NewConnection,
  NewEvent,
  RealtimeEvent,
  Subscription,
} from "../realtime/connection.ts";

/** A tenant's connection, and the number of the newest event: what comes after it is heard. */
export interface ConnectionAt {
  readonly connection: Connection;
  readonly seq: number;
}

/** What one process has to tell to the connections that it holds, as of one moment. */
export interface HeldEvents {
  readonly events: readonly RealtimeEvent[];
  /** Of the tenants of these events; those whose credentials do not count any more are not among them. */
  readonly connections: readonly Connection[];
}

export interface Speaker {
  readonly connection: Connection;
  /** Of requests a minute, or of messages of the tenant's nodes, `resetMs` before the next one; absent: none. */
  readonly reached?: { readonly scope: "key" | "tenant" | "nodes"; readonly limit: number; readonly resetMs: number };
}

export interface ConnectionRepo {
  /** Returns until when it can be used. `hash`: of the ticket. */
  issueTicket(
    tenant: string,
    ticket: {
      readonly hash: string;
      readonly caller: Caller;
      readonly until: number | null;
      readonly lifetimeMs: number;
    },
  ): Promise<number>;
  /** `full`: the tenant has as many as it may; `undefined`: the credentials count no more. */
  connect(tenant: string, connection: NewConnection): Promise<ConnectionAt | "full" | undefined>;
  /** As the one to whom the ticket was given. `undefined`: it is unknown, too old, or has been used. */
  connectWithTicket(
    tenant: string,
    hash: string,
    connection: Omit<NewConnection, "caller" | "until">,
  ): Promise<ConnectionAt | "full" | undefined>;
  /** For hosts that name nothing but the connection. `undefined`: there is none, or it is allowed no longer. */
  find(id: string): Promise<Connection | undefined>;
  /** The same, for one that says something, with the limit that it has reached. */
  findSpeaker(id: string): Promise<Speaker | undefined>;
  /** Puts or replaces one. `full`: it has as many as it may; `undefined`: there is no such connection. */
  subscribe(
    tenant: string,
    id: string,
    name: string,
    subscription: Subscription,
  ): Promise<ConnectionAt | "full" | undefined>;
  unsubscribe(tenant: string, id: string, name: string): Promise<ConnectionAt | undefined>;
  /** A sign of life. `counts`: and one more request of its key and tenant, or message of the tenant's nodes. `false`: there is no such connection. */
  touch(tenant: string, id: string, sign: { readonly lifetimeMs: number; readonly counts: boolean }): Promise<boolean>;
  /** One with a device stays for a day as a device that is away, for which frames are kept. */
  remove(tenant: string, id: string): Promise<void>;
  /** What was told to clients of the type `VCPLog` while this connection's device was away, once; oldest first. */
  missed(tenant: string, id: string, limit: number): Promise<readonly RealtimeEvent[]>;
  /** Those of a client type, in the order in which they came. */
  ofType(tenant: string, clientType: string): Promise<readonly Connection[]>;
  /** Signs of life of all that a process holds. Returns the ids of those that still are and may be. */
  renew(holder: string, lifetimeMs: number): Promise<readonly string[]>;
  removeHeldBy(holder: string): Promise<void>;
  /** Writes those for which there is somebody. Returns how many that were. */
  publish(tenant: string, events: readonly NewEvent[]): Promise<number>;
  /** Events after the numbers given for each tenant, oldest first. */
  heldEvents(holder: string, after: ReadonlyMap<string, number>, limit: number): Promise<HeldEvents>;
  /** Events of all tenants for connections that no process holds, each given to one claimant for `leaseMs`. */
  claim(options: { readonly limit: number; readonly leaseMs: number }): Promise<readonly ClaimedEvent[]>;
  /** They were told; nothing where a later attempt has begun. */
  settle(tenant: string, told: readonly { readonly seq: number; readonly attempt: number }[]): Promise<void>;
}
