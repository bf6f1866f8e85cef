/**
 * How a client gets in: with its key or token in a header, or with a ticket. What it may hear is decided by
 * who it is then; that its key still counts is asked each time that something is sent.
 */
import { admit } from "../calls/admit.ts";
import type { Authenticator, HeaderReader } from "../callers/authenticate.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { ConnectionAt } from "../ports/connections.ts";
import { hashTicket, tenantOfTicket } from "./ticket.ts";

export interface ConnectRequest {
  /** As the host names the connection. */
  readonly id: string;
  readonly holder: string | null;
  /** How long it counts as alive without a sign of life. */
  readonly lifetimeMs: number;
  readonly header: HeaderReader;
  readonly ticket: string | undefined;
  readonly clientType: string | undefined;
}

/**
 * @throws GatewayError what authentication and admission throw, `invalid_ticket`, `invalid_request`,
 * `concurrency_limited` where the tenant has as many connections as it may
 */
export async function connectClient(
  deps: CoreDeps,
  authenticator: Authenticator,
  request: ConnectRequest,
): Promise<ConnectionAt> {
  const { id, holder, lifetimeMs, clientType, ticket } = request;
  if (clientType !== undefined && !/^[A-Za-z0-9][\w.:-]{0,63}$/.test(clientType)) {
    throw new GatewayError(
      "invalid_request",
      "'client_type' must have 1 to 64 letters, digits, '_', '-', '.' or ':', and begin with a letter or digit.",
      { param: "client_type" },
    );
  }
  const opening = { id, holder, lifetimeMs, clientType: clientType ?? null };
  if (ticket !== undefined) return withTicket(deps, ticket, opening);
  const { tenant, principal, until } = await authenticator.presentCaller(request.header);
  const { caller } = await admit(deps, { tenant, principal, limits: { countRequest: true } }, { scope: null });
  const connected = await deps.repos.connections.connect(tenant, { ...opening, caller, until: until ?? null });
  if (connected === undefined) throw new GatewayError("invalid_token", "The credentials have run out.");
  return requireRoom(connected);
}

async function withTicket(
  { repos }: CoreDeps,
  ticket: string,
  opening: Parameters<CoreDeps["repos"]["connections"]["connectWithTicket"]>[2],
): Promise<ConnectionAt> {
  const tenant = tenantOfTicket(ticket);
  const connected =
    tenant === undefined ? undefined : await repos.connections.connectWithTicket(tenant, hashTicket(ticket), opening);
  if (connected === undefined) {
    throw new GatewayError(
      "invalid_ticket",
      "The ticket is unknown, has run out or was used; get a new one with POST /v1/realtime/tickets.",
      { param: "ticket" },
    );
  }
  return requireRoom(connected);
}

function requireRoom(connected: ConnectionAt | "full"): ConnectionAt {
  if (connected !== "full") return connected;
  throw new GatewayError("concurrency_limited", "This tenant has as many connections as it may; close some first.", {
    retryAfterMs: 60_000,
  });
}
