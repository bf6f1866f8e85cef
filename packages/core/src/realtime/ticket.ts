/**
 * Tickets: `tyws_{tenant}_{secret}`. A browser cannot send a header as it connects, and a key has no place
 * in a URL, so it asks for a ticket with its key, which is good for one connection within a minute. As with
 * keys, the tenant is part of it and only a hash is stored.
 */
import { randomBytes } from "node:crypto";
import { hashApiKey } from "../callers/api-key.ts";
import type { Caller } from "../callers/caller.ts";
import type { CoreDeps } from "../core-deps.ts";
import { idPrefixes } from "../ids.ts";

const lifetimeMs = 60_000;
const pattern = /^tyws_([0-9a-z]{1,40})_[A-Za-z0-9_-]{43}$/;

export interface Ticket {
  /** Shown once. */
  readonly ticket: string;
  readonly expiresAt: number;
}

/** @param until when the credentials run out with which it is asked for */
export async function issueTicket(
  { repos }: Pick<CoreDeps, "repos">,
  tenant: string,
  { caller, until }: { readonly caller: Caller; readonly until: number | null },
): Promise<Ticket> {
  const part = tenant.slice(idPrefixes.tenant.length + 1);
  const ticket = `tyws_${part}_${randomBytes(32).toString("base64url")}`;
  const hash = hashTicket(ticket);
  return { ticket, expiresAt: await repos.connections.issueTicket(tenant, { hash, caller, until, lifetimeMs }) };
}

export function hashTicket(ticket: string): string {
  return hashApiKey(ticket);
}

/** The tenant that a ticket names; `undefined` for text that is none of ours. */
export function tenantOfTicket(ticket: string): string | undefined {
  const part = pattern.exec(ticket)?.[1];
  return part === undefined ? undefined : `${idPrefixes.tenant}_${part}`;
}
