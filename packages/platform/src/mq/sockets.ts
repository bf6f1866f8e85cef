/** Connections to brokers: through the guarded door, and encrypted where the account says so. */
import { isIP, type Socket } from "node:net";
import { connect as startTls, getCACertificates } from "node:tls";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { whyNotConnected } from "@toolyard/core/blind/egress-errors";
import type { Egress, EgressTls } from "@toolyard/core/ports/egress";
import type { BrokerAccount, BrokerServer } from "@toolyard/core/ports/message-broker";
import { withDelivery } from "@toolyard/core/errors/delivery";

export interface BrokerDeps {
  readonly egress: Pick<Egress, "connect" | "connectHttp2">;
}

/** A broker that takes longer to be connected to is not there. */
export const setUpMs = 15_000;

/** A broker that sends more than it may at once: the connection ends before it has taken memory. */
export class TooMuchSaid extends Error {
  override readonly name = "TooMuchSaid";
}

/** @throws GatewayError `egress_denied`, `tool_unreachable`; `not_sent` */
export async function connectTo(
  { egress }: BrokerDeps,
  { host, port }: BrokerServer,
  tls: EgressTls | undefined,
): Promise<Socket> {
  const socket = await egress.connect({ host, port, signal: AbortSignal.timeout(setUpMs) });
  // Whoever takes it over listens, too; until then an error must not end the process.
  socket.on("error", () => undefined);
  socket.setNoDelay(true);
  socket.setKeepAlive(true, 30_000);
  return tls === undefined ? socket : encrypt(socket, { host, port }, tls);
}

function encrypt(socket: Socket, server: BrokerServer, { ca, cert, key, serverName }: EgressTls): Promise<Socket> {
  const { host } = server;
  const name = serverName ?? (isIP(host) === 0 ? host : undefined);
  return new Promise((resolve, reject) => {
    const secure = startTls({
      socket,
      host,
      ...(name === undefined ? {} : { servername: name }),
      minVersion: "TLSv1.2",
      rejectUnauthorized: true,
      ...(ca === undefined ? {} : { ca: [...getCACertificates("default"), ...ca] }),
      ...(cert === undefined ? {} : { cert }),
      ...(key === undefined ? {} : { key }),
    });
    const fail = (error: Error): void => {
      clearTimeout(timer);
      socket.destroy();
      const what = "code" in error ? `it ${whyNotConnected(error, name ?? host)}` : error.message;
      reject(unreachable(server, what, error));
    };
    const timer = setTimeout(() => secure.destroy(new Error(`no TLS handshake within ${setUpMs} ms`)), setUpMs);
    secure.on("error", fail);
    secure.once("close", () => fail(new Error("it closed the connection in the TLS handshake")));
    secure.once("secureConnect", () => {
      clearTimeout(timer);
      secure.removeListener("error", fail);
      secure.on("error", () => undefined);
      resolve(secure);
    });
  });
}

/** The first server that can be opened; what the last one says where none can. */
export async function openFirst<T>({ servers }: BrokerAccount, open: (server: BrokerServer) => Promise<T>): Promise<T> {
  let last: unknown = new GatewayError("tool_unreachable", "The service names no server.");
  for (const server of servers) {
    try {
      return await open(server);
    } catch (error) {
      // Another server of the same cluster knows the password no better.
      if (!(error instanceof GatewayError) || error.code !== "tool_unreachable") throw error;
      last = error;
    }
  }
  throw last;
}

/** @returns marked `not_sent` */
export function unreachable(server: BrokerServer, what: string, cause?: unknown): GatewayError {
  return withDelivery(
    new GatewayError("tool_unreachable", `The broker at '${nameOf(server)}' could not be reached: ${oneLine(what)}.`, {
      cause,
    }),
    "not_sent",
  );
}

/** @returns marked `not_sent` */
export function loginRefused({ kind, login }: BrokerAccount, server: BrokerServer, what: string): GatewayError {
  const advice =
    login === undefined
      ? `give ${kind === "redis" ? "" : "'config.username' and "}'config.password'`
      : `check 'config.username', or set '${login.credential}' again with PUT /v1/credentials/${encodeURIComponent(login.credential)}`;
  return withDelivery(
    new GatewayError(
      "credential_invalid",
      `The broker at '${nameOf(server)}' refused the login (${oneLine(what)}); ${advice}.`,
      { param: login === undefined ? "config.password" : login.credential },
    ),
    "not_sent",
  );
}

export function nameOf({ host, port }: BrokerServer): string {
  return `${host}:${port}`;
}

/** What a broker or a library says, cut short and without control characters. */
export function oneLine(text: string): string {
  // oxlint-disable-next-line no-control-regex
  const line = text.replaceAll(/[\u0000-\u001f\u007f\s]+/g, " ").trim();
  return line.length > 300 ? `${line.slice(0, 300)}…` : line.replace(/\.$/, "");
}

/** The broker's confirmation, or what is known of the message when the call is given up before it came. */
export async function untilGivenUp<T>(confirmation: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>();
  const giveUp = (): void =>
    reject(
      withDelivery(
        new GatewayError("call_cancelled", "The call was given up before the broker confirmed the message."),
        "uncertain",
      ),
    );
  if (signal.aborted) giveUp();
  signal.addEventListener("abort", giveUp, { once: true });
  try {
    return await Promise.race([confirmation, promise]);
  } finally {
    signal.removeEventListener("abort", giveUp);
    confirmation.catch(() => undefined);
  }
}

/** Waits for it, but not for longer; whatever comes of it. */
export async function atMost(ms: number, work: Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const over = new Promise<void>((done) => {
    timer = setTimeout(done, ms);
  });
  await Promise.race([work.catch(() => undefined), over]);
  clearTimeout(timer);
}

/** @returns marked `not_sent` */
export function givenUp(): GatewayError {
  return withDelivery(
    new GatewayError("call_cancelled", "The call was given up before the message was sent."),
    "not_sent",
  );
}

export function lostConnection(server: BrokerServer, what: string, cause: unknown): GatewayError {
  return withDelivery(
    new GatewayError(
      "tool_unreachable",
      `The connection to the broker at '${nameOf(server)}' broke before it confirmed the message (${oneLine(what)}).`,
      { cause },
    ),
    "uncertain",
  );
}

/** A connection over which messages were taken: what was in hand is the broker's again. */
export function lostConsumer(server: BrokerServer, what: string, cause: unknown): GatewayError {
  return new GatewayError(
    "tool_unreachable",
    `The connection to the broker at '${nameOf(server)}' over which messages were taken is gone: ${oneLine(what)}.`,
    { cause },
  );
}
