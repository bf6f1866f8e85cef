/**
 * `/ws` of the server form, on the port of everything else: handshakes, pings, messages one after the
 * other, and an end for every socket. What is said on a connection is the hub's business.
 */
import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { hasScope } from "@toolyard/core/callers/caller";
import { GatewayError, toGatewayError } from "@toolyard/core/errors/gateway-error";
import { newId } from "@toolyard/core/ids";
import type { ConnectionAt } from "@toolyard/core/ports/connections";
import { isJsonObject, parseJson } from "@toolyard/core/json";
import { longestFile } from "@toolyard/core/nodes/node";
import { connectClient } from "@toolyard/core/realtime/connect";
import type { Connection } from "@toolyard/core/realtime/connection";
import { longestMessage } from "@toolyard/core/realtime/frames";
import { defaultHubTiming, Hub, type Ending, type HubTiming } from "@toolyard/core/realtime/hub";
import type { ReplayTiming } from "@toolyard/core/vcp/nodes/client-session";
import { readVcpAddress, vcpPaths, type VcpAddress } from "@toolyard/core/vcp/nodes/client-types";
import { WebSocketServer, type WebSocket } from "ws";
import type { AppDeps } from "../http/app-env.ts";
import { authenticatorOf } from "../http/authenticator.ts";
import { describeThrown } from "../describe-thrown.ts";
import { refuseOn } from "../http/refuse-on.ts";
import { readHandshake, socketPath, subprotocol, type Handshake } from "./handshake.ts";
import { allowanceOf, hearSocket } from "./intake.ts";
import type { VcpConnection } from "./vcp-sockets.ts";
import { closeCodes, closeSocket, createSocketPush } from "./socket-push.ts";

/** Of a node: a file in base64, or as much of a result as most tenants keep, with room for what is around it. */
const longestOfNodes = longestFile * 2;
/** Messages of one client that wait for the one before. */
const mostWaiting = 128;
/** Sockets have this long to close when the process ends. */
const goodbyeMs = 1_000;

/** Milliseconds. */
export interface SocketTiming extends HubTiming {
  /** Between two pings; a client that has not answered by the next one is gone. */
  readonly pingMs: number;
}

export interface SocketOptions {
  readonly timing?: SocketTiming | undefined;
  /** Old clients of VCP may have their key in the path, where logs of balancers see it. */
  readonly vcpKeyInPath?: boolean | undefined;
  /** When devices are told what they have missed. */
  readonly replay?: ReplayTiming | undefined;
}

export const defaultSocketTiming: SocketTiming = { ...defaultHubTiming, pingMs: 30_000 };

const endings: Readonly<Record<Ending, readonly [code: number, reason: string]>> = {
  expired: [closeCodes.goingAway, "the connection was open as long as it may; connect again"],
  lost: [closeCodes.goingAway, "the server was away for a while; connect again"],
  not_allowed: [closeCodes.policyViolation, "the key, the tenant or the connection counts no more"],
};

export interface SocketServer {
  readonly upgrade: (request: IncomingMessage, socket: Duplex, head: Buffer) => void;
  /** Something happened in this process that connections may want to hear of. */
  readonly wake: () => void;
  /** Closes every connection. */
  stop(): Promise<void>;
}

/** Is this a request for a WebSocket of ours? Others are answered as requests, whatever they want to become. */
export function wantsSocket({ headers, url = "" }: IncomingMessage): boolean {
  if (headers.upgrade?.toLowerCase() !== "websocket") return false;
  return url.split("?", 1)[0] === socketPath || readVcpAddress(url) !== undefined;
}

interface OpenSocket {
  readonly socket: WebSocket;
  /** It has answered since it was asked last. */
  answers: boolean;
  waiting: number;
  /** Resolves when every message so far has been answered. */
  answered: Promise<void>;
}

function createServer(maxPayload: number): WebSocketServer {
  return new WebSocketServer({
    noServer: true,
    maxPayload,
    perMessageDeflate: false,
    clientTracking: false,
    handleProtocols: (offered) => (offered.has(subprotocol) ? subprotocol : false),
  });
}

export function createSocketServer(app: AppDeps, options: SocketOptions = {}): SocketServer {
  const { timing = defaultSocketTiming } = options;
  const { core, isDraining = () => false } = app;
  const authenticator = authenticatorOf(app);
  const push = createSocketPush();
  const holder = newId("worker");
  const open = new Map<string, OpenSocket>();
  let isStopping = false;
  const hub = new Hub({
    deps: core,
    push,
    ready: () => push.caughtUp(),
    holder,
    timing,
    close: (id, why) => {
      const held = open.get(id);
      if (held !== undefined) closeSocket(held.socket, ...endings[why]);
    },
  });
  const server = createServer(longestMessage);
  // What nodes of VCP answer comes in one piece, pictures too; nobody else has as much to say.
  const nodeServer = createServer(longestOfNodes);
  const ending = new Set<Promise<void>>();

  const connect = async (handshake: Handshake): Promise<ConnectionAt> => {
    if (isDraining()) throw shuttingDown();
    const id = newId("socket");
    const at = await connectClient(core, authenticator, { ...handshake, id, holder, lifetimeMs: timing.lifetimeMs });
    if (!isStopping) return at;
    forget(at.connection);
    throw shuttingDown();
  };

  const forget = (connection: Connection): void => {
    hub.remove(connection).catch((thrown: unknown) => {
      core.log.log("warn", "a connection's row was not removed and will run out", {
        tenant: connection.tenant,
        ...describeThrown(thrown),
      });
    });
  };

  const speechOf = ({ caller }: Connection) => ({ allowance: allowanceOf(caller), now: () => core.clock.now() });

  const accept = (at: ConnectionAt, socket: WebSocket): void => {
    const { connection } = at;
    const held: OpenSocket = { socket, answers: true, waiting: 0, answered: Promise.resolve() };
    const { forget: close } = push.open(connection.id, socket);
    open.set(connection.id, held);
    hub.add(at);
    // A broken frame ends the socket, which is all there is to do about it.
    socket.on("error", () => undefined);
    socket.on("pong", () => (held.answers = true));
    hearSocket(socket, speechOf(connection), (data, isBinary) => {
      held.answers = true;
      if (isBinary) closeSocket(socket, closeCodes.unsupportedData, "messages are JSON text");
      else if (held.waiting >= mostWaiting)
        closeSocket(socket, closeCodes.policyViolation, "too many messages at once");
      else receive(connection, held, textOf(data));
    });
    socket.once("close", () => {
      close();
      open.delete(connection.id);
      // Else the hub forgets all of them at once.
      if (!isStopping) forget(connection);
    });
  };

  /** At a path of VCP's: a session stands between the socket and the hub. */
  const acceptVcp = async (at: ConnectionAt, socket: WebSocket, from: VcpRequest): Promise<void> => {
    const { connection } = at;
    const held: OpenSocket = { socket, answers: true, waiting: 0, answered: Promise.resolve() };
    open.set(connection.id, held);
    socket.on("error", () => undefined);
    socket.on("pong", () => (held.answers = true));
    const closed = Promise.withResolvers<void>();
    socket.once("close", () => closed.resolve());
    // What it says before the session is open is left in the network.
    socket.pause();
    const { createVcpSession } = await import("./vcp-sockets.ts");
    const opened = push.open(connection.id, socket, (frame) => {
      const parsed = parseJson(frame);
      if (isJsonObject(parsed)) session.hear(parsed);
    });
    const session = createVcpSession({
      core,
      connection,
      ...from,
      replay: options.replay,
      answer: (text) => hub.answer(connection, text),
      socket: {
        send(frame) {
          try {
            opened.write(JSON.stringify(frame));
            return true;
          } catch {
            // Who is too slow or gone is cut off by then.
            return false;
          }
        },
        close: (code, reason) => closeSocket(socket, code, reason),
      },
    });
    hearSocket(socket, speechOf(connection), (data, isBinary) => {
      held.answers = true;
      if (isBinary) closeSocket(socket, closeCodes.unsupportedData, "messages are JSON text");
      else session.receive(textOf(data));
    });
    hub.add(at);
    try {
      await session.open();
      socket.resume();
      await closed.promise;
    } finally {
      opened.forget();
      open.delete(connection.id);
      await session.end();
      if (!isStopping) forget(connection);
    }
  };

  const startVcp = (at: ConnectionAt, socket: WebSocket, from: VcpRequest): void => {
    const running = acceptVcp(at, socket, from)
      .catch((thrown: unknown) => {
        core.log.log("warn", "a connection of VCP has failed", {
          tenant: at.connection.tenant,
          ...describeThrown(thrown),
        });
        socket.terminate();
      })
      .finally(() => ending.delete(running));
    ending.add(running);
  };

  /** Messages are answered in their order. */
  const receive = (connection: Connection, held: OpenSocket, text: string): void => {
    held.waiting += 1;
    held.answered = held.answered.then(async () => {
      const frame = await hub.answer(connection, text);
      held.waiting -= 1;
      await push.send(connection.id, frame);
    });
  };

  const upgrade = async (request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> => {
    const leave = (): void => void socket.destroy();
    socket.on("error", leave);
    const requestId = newId("request");
    try {
      const address = readVcpAddress(request.url ?? "");
      const asked = address === undefined ? handshakeOf(request) : vcpHandshakeOf(request, address, options);
      const at = await connect(asked);
      let isOpen = false;
      socket.off("error", leave);
      (isVcpNode(address, at.connection) ? nodeServer : server).handleUpgrade(request, socket, head, (accepted) => {
        isOpen = true;
        if (address === undefined) accept(at, accepted);
        else startVcp(at, accepted, { address, from: request.socket.remoteAddress ?? "" });
      });
      // The handshake was none, or the client has left meanwhile.
      if (!isOpen) forget(at.connection);
      const { tenant, caller } = at.connection;
      core.log.log("info", "a client has connected", { request_id: requestId, tenant, caller: caller.id });
    } catch (thrown) {
      const error = toGatewayError(thrown);
      core.log.log(error.spec.http >= 500 ? "warn" : "info", "a connection was refused", {
        request_id: requestId,
        status: error.spec.http,
        code: error.code,
      });
      refuseOn(socket, error, { requestId });
    }
  };

  const pinging = setInterval(() => {
    for (const held of open.values()) {
      if (!held.answers) held.socket.terminate();
      held.answers = false;
      held.socket.ping();
    }
  }, timing.pingMs).unref();

  return {
    upgrade: (request, socket, head) => void upgrade(request, socket, head),
    wake: () => hub.wake(),
    async stop() {
      isStopping = true;
      clearInterval(pinging);
      const sockets = [...open.values()].map(({ socket }) => socket);
      await Promise.all(sockets.map((socket) => sayGoodbye(socket)));
      await Promise.all(ending);
      await hub.stop();
    },
  };
}

function shuttingDown(): GatewayError {
  return new GatewayError("shutting_down", "This process is shutting down; connect again.");
}

function handshakeOf({ headers, url = "" }: IncomingMessage): Handshake {
  const query = new URLSearchParams(url.slice(socketPath.length));
  return readHandshake(headerOf(headers), (name) => query.get(name) ?? undefined);
}

type VcpRequest = Pick<VcpConnection, "address" | "from">;

/** @throws GatewayError `invalid_api_key` for a key in a path where that is not allowed */
function vcpHandshakeOf(
  { headers }: IncomingMessage,
  { path, key }: VcpAddress,
  { vcpKeyInPath = false }: SocketOptions,
): Handshake {
  const header = headerOf(headers);
  const { clientType } = vcpPaths[path];
  const isInHeader = header("authorization") !== undefined || header("x-api-key") !== undefined;
  if (key !== undefined && !isInHeader && !vcpKeyInPath) {
    throw new GatewayError(
      "invalid_api_key",
      `A key in a path ends up in logs: connect to '/${path}' with 'Authorization: Bearer <key>', use the bridge (npm run node -- --vcp) for programs that cannot, or have the operator set TOOLYARD_VCP_KEY_IN_PATH=true.`,
      { param: "VCP_Key" },
    );
  }
  const handshake = readHandshake(header, () => undefined);
  if (key === undefined || isInHeader) return { ...handshake, clientType };
  const withKey = (name: string): string | undefined => (name === "authorization" ? `Bearer ${key}` : header(name));
  return { ...handshake, header: withKey, clientType };
}

/** Its key says that it may be one. */
function isVcpNode(address: VcpAddress | undefined, { caller }: Connection): boolean {
  return address?.path === "vcp-distributed-server" && hasScope(caller, "node");
}

function headerOf(headers: IncomingMessage["headers"]): (name: string) => string | undefined {
  return (name) => {
    const value = headers[name];
    return Array.isArray(value) ? value[0] : value;
  };
}

function textOf(data: WebSocket.RawData): string {
  return Array.isArray(data) ? Buffer.concat(data).toString("utf8") : Buffer.from(data as Buffer).toString("utf8");
}

function sayGoodbye(socket: WebSocket): Promise<void> {
  return new Promise((closed) => {
    const timer = setTimeout(() => socket.terminate(), goodbyeMs);
    socket.once("close", () => {
      clearTimeout(timer);
      closed();
    });
    closeSocket(socket, closeCodes.goingAway, "the server stops; connect again");
  });
}
