/**
 * What a client says as it connects, in either home: a key in a header as with any request, or a ticket in
 * the query or among the subprotocols, since that is all that a browser lets a page send along.
 */
import type { HeaderReader } from "@toolyard/core/callers/authenticate";

export const socketPath = "/ws";
/** Named back where a client offers it, which browsers insist on once they offer anything. */
export const subprotocol = "toolyard.v1";
const ticketPrefix = "ticket.";

export interface Handshake {
  readonly header: HeaderReader;
  readonly ticket: string | undefined;
  readonly clientType: string | undefined;
  /** The client has offered our subprotocol. */
  readonly offersProtocol: boolean;
}

/** @param query reads a query parameter by its name */
export function readHandshake(header: HeaderReader, query: (name: string) => string | undefined): Handshake {
  const protocols = (header("sec-websocket-protocol") ?? "").split(",").map((part) => part.trim());
  const offered = protocols.find((protocol) => protocol.startsWith(ticketPrefix));
  return {
    header,
    ticket: query("ticket") ?? offered?.slice(ticketPrefix.length),
    // As VCP's own clients spell it, too.
    clientType: query("client_type") ?? query("clientType"),
    offersProtocol: protocols.includes(subprotocol),
  };
}
