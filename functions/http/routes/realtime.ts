/**
 * The HTTP part of `/ws`: tickets for browsers, and what a request gets there that does not ask for a
 * WebSocket. The connection itself is the host's (functions/realtime; docs/realtime.md).
 */
import { admit } from "@toolyard/core/calls/admit";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { issueTicket } from "@toolyard/core/realtime/ticket";
import { toRfc3339 } from "@toolyard/core/time";
import * as z from "zod";
import { defineRoute } from "../define-route.ts";
import { socketPath } from "../../realtime/handshake.ts";
import { setRateLimitHeaders } from "../rate-limit-headers.ts";
import { emptyBody, timeSchema } from "./shared.ts";

const tags = ["realtime"];

export const createTicket = defineRoute({
  method: "post",
  path: "/v1/realtime/tickets",
  summary: "A ticket with which a browser connects to /ws",
  description:
    "Good for one connection within a minute, as the caller of this request. Pass it as '?ticket=' or among the subprotocols, as 'ticket.<ticket>'; a key never belongs into a URL.",
  tags,
  scope: null,
  admission: "own",
  request: { body: emptyBody },
  responses: {
    201: {
      description: "The ticket, shown this once",
      schema: z.strictObject({
        object: z.literal("realtime.ticket"),
        ticket: z.string().meta({ example: "tyws_01jdnhz2v4x8mfkq3w7c5r9gta_…" }),
        url: z.string().meta({ description: "Where to connect.", example: "wss://tools.example.com/ws" }),
        expires_at: timeSchema,
      }),
    },
  },
  isolation: { kind: "nothing-owned", reason: "Makes a ticket for the caller itself." },
  async handler(c, { app, core, presented }) {
    const { tenant, principal, until } = presented;
    const { caller, result } = await admit(
      core,
      { tenant, principal, limits: { countRequest: true } },
      { scope: null },
    );
    const exchange = c.get("exchange");
    exchange.callerId = caller.id;
    setRateLimitHeaders(exchange.headers, result.rate);
    const { ticket, expiresAt } = await issueTicket(core, tenant, { caller, until: until ?? null });
    const url = app.wsUrl ?? `${core.publicUrl.replace(/^http/, "ws")}${socketPath}`;
    return c.json({ object: "realtime.ticket", ticket, url, expires_at: toRfc3339(expiresAt) }, 201);
  },
});

export const webSocket = defineRoute({
  method: "get",
  path: socketPath,
  summary: "Connect a WebSocket: events and logs of calls as they happen",
  description:
    "With 'Authorization: Bearer' or 'x-api-key', or a ticket of POST /v1/realtime/tickets. The messages are described in docs/realtime.md. On AWS it has an address of its own, which comes with a ticket.",
  tags,
  scope: null,
  admission: "none",
  request: {
    query: z.looseObject({
      ticket: z.string().optional().meta({ description: "Of POST /v1/realtime/tickets." }),
      client_type: z
        .string()
        .optional()
        .meta({ description: "What kind of client it is; pushes can be for one kind." }),
    }),
    headers: { "sec-websocket-protocol": "Optional: `toolyard.v1`, and `ticket.<ticket>` beside it." },
  },
  responses: { 101: { description: "Connected" } },
  handler: () => {
    throw new GatewayError("upgrade_required", `${socketPath} is for WebSockets; connect with 'Upgrade: websocket'.`);
  },
});
