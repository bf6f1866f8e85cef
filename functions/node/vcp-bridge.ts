/**
 * `npm run node -- --vcp`: VCP's WebSocket paths on this machine, for programs that know no other, and from here
 * connections to the gateway as any client and node has them (docs/nodes.md). Listens on loopback only, and
 * wants a key, since every page in a browser can reach loopback, too.
 */
import { timingSafeEqual } from "node:crypto";
import { createServer, type IncomingMessage, type Server } from "node:http";
import type { Duplex } from "node:stream";
import { hashApiKey } from "@toolyard/core/callers/api-key";
import type { JsonObject } from "@toolyard/core/json";
import { longestFile } from "@toolyard/core/nodes/node";
import type { Clock } from "@toolyard/core/ports/clock";
import type { Egress } from "@toolyard/core/ports/egress";
import type { Log } from "@toolyard/core/ports/log";
import type { PluginRunner } from "@toolyard/core/ports/plugin-runner";
import { ClientSession, type ReplayTiming } from "@toolyard/core/vcp/nodes/client-session";
import { readVcpAddress, vcpPaths, type VcpAddress } from "@toolyard/core/vcp/nodes/client-types";
import type { VcpSession, VcpSocket } from "@toolyard/core/vcp/nodes/session";
import { WebSocket, WebSocketServer } from "ws";
import { readablePath } from "./files.ts";
import { GatewayLink } from "./link.ts";
import { messageOf } from "./message-of.ts";
import { VcpNodeSession } from "./vcp-node.ts";

/** A file in base64, with room for what is around it. */
const longestMessage = longestFile * 2;

export interface VcpBridgeOptions {
  /** Of the gateway. */
  readonly url: string;
  /** For the gateway. */
  readonly key: string;
  /** On loopback; 0: any. */
  readonly port: number;
  /** What programs have as `VCP_Key`. */
  readonly vcpKey: string;
  /** Of which files may be asked for. */
  readonly directories: readonly string[];
  readonly egress: Egress;
  readonly runner: PluginRunner;
  readonly clock: Clock;
  readonly log: Log;
  readonly replay?: ReplayTiming;
}

/** For reading that a connection is refused. */
const lingerMs = 1_000;

export interface VcpBridge {
  readonly port: number;
  stop(): Promise<void>;
}

export async function startVcpBridge(options: VcpBridgeOptions): Promise<VcpBridge> {
  const server = createServer((_request, response) => {
    response.writeHead(426, { "content-type": "text/plain", connection: "close" });
    response.end("This is a bridge for WebSockets of VCP.\n");
  });
  const sockets = new WebSocketServer({ noServer: true, maxPayload: longestMessage, perMessageDeflate: false });
  const open = new Set<Promise<void>>();
  server.on("upgrade", (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    socket.on("error", () => socket.destroy());
    const address = readVcpAddress(request.url ?? "");
    const problem = address === undefined ? "404 Not Found" : refusalOf(request, address, options.vcpKey);
    if (address === undefined || problem !== undefined) {
      socket.end(`HTTP/1.1 ${problem ?? ""}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n`);
      // Whoever keeps the other side open would keep all of it.
      setTimeout(() => socket.destroy(), lingerMs).unref();
      return;
    }
    sockets.handleUpgrade(request, socket, head, (accepted) => {
      const running = serve(accepted, address, options).finally(() => open.delete(running));
      open.add(running);
    });
  });
  const port = await listen(server, options.port);
  return {
    port,
    async stop() {
      for (const socket of sockets.clients) socket.close(1001, "the bridge stops");
      await Promise.all(open);
      server.closeAllConnections();
      await new Promise((done) => server.close(done));
    },
  };
}

/** Pages of a browser say where they come from; extensions are no pages. */
function refusalOf({ headers }: IncomingMessage, { key = "" }: VcpAddress, vcpKey: string): string | undefined {
  const { origin } = headers;
  if (origin !== undefined && !/^(?:chrome|moz|safari-web)-extension:\/\//.test(origin)) return "403 Forbidden";
  const [given, expected] = [key, vcpKey].map((each) => Buffer.from(hashApiKey(each), "hex"));
  const isRight = given !== undefined && expected !== undefined && timingSafeEqual(given, expected);
  return isRight ? undefined : "401 Unauthorized";
}

function listen(server: Server, port: number): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, "127.0.0.1", () => {
      const address = server.address();
      resolve(typeof address === "object" && address !== null ? address.port : port);
    });
  });
}

/** One program, from its connection to its end. */
async function serve(accepted: WebSocket, address: VcpAddress, options: VcpBridgeOptions): Promise<void> {
  const socket: VcpSocket = {
    send(frame) {
      if (accepted.readyState !== WebSocket.OPEN) return false;
      accepted.send(JSON.stringify(frame));
      return true;
    },
    close: (code, reason) => accepted.close(code, reason),
  };
  const closed = new Promise<void>((done) => accepted.once("close", () => done()));
  accepted.on("error", () => undefined);
  const session =
    address.path === "vcp-distributed-server"
      ? createNodeSession(socket, options)
      : createClientSession(socket, address, options);
  accepted.on("message", (data: Buffer) => session.receive(data.toString("utf8")));
  await session.open();
  await closed;
  await session.end();
}

function createNodeSession(socket: VcpSocket, options: VcpBridgeOptions): VcpSession {
  const { directories } = options;
  const session = new VcpNodeSession({
    ...options,
    socket,
    directories: () => Promise.resolve(directories),
    mayRead: async (url) => (await readablePath(url, directories)) !== undefined,
    createLink: (handlers) =>
      new GatewayLink({
        ...options,
        ...handlers,
        clientType: vcpPaths["vcp-distributed-server"].clientType,
        onFrame: (frame) => session.hear(frame),
      }),
  });
  return session;
}

/** The program is told that it is connected when the gateway is. */
function createClientSession(socket: VcpSocket, address: VcpAddress, options: VcpBridgeOptions): VcpSession {
  const { log } = options;
  const link = new GatewayLink({
    ...options,
    clientType: vcpPaths[address.path].clientType,
    onOpen: () => session.open(),
    onEvent: () => undefined,
    onFrame: (frame) => session.hear(frame),
  });
  const session = new ClientSession({
    ...options,
    path: address.path,
    device: address.deviceName ?? "bridge",
    socket,
    gateway: { ask: (message) => link.askNow(message, asObject) },
  });
  return {
    open: async () => {
      void link.run().catch((thrown: unknown) => {
        const reason = messageOf(thrown);
        log.log("error", "the gateway refuses a client of VCP", { reason });
        socket.close(1008, reason.slice(0, 100));
      });
      return Promise.resolve();
    },
    receive: (text) => session.receive(text),
    hear: (frame) => session.hear(frame),
    async end() {
      await session.end();
      link.close();
    },
  };
}

const asObject = (answer: JsonObject): JsonObject => answer;
