/**
 * What tools reach, as a process: `node back-ends.ts <HTTP port> <SMTP port> <gRPC port>`. One that costs next to
 * nothing for each protocol, so that the difference between two ways to it is the ways' own: an API, an MCP
 * server, a bucket and an SMS vendor over HTTP, a mail server, a service over gRPC. Brokers are real ones.
 */
import { createServer as createHttpServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer as createTcpServer, type Socket } from "node:net";
import { Server, ServerCredentials } from "@grpc/grpc-js";
import { listReply } from "./grpc-messages.ts";

const [httpPort = "0", smtpPort = "0", grpcPort = "0"] = process.argv.slice(2);

const customers = Buffer.from(JSON.stringify({ customers: [{ id: "C001", name: "Ann", level: "gold" }], total: 1 }));
const sent = Buffer.from(JSON.stringify({ Code: "OK", Message: "OK", RequestId: "1", BizId: "900^0" }));
const document = Buffer.from("hello ".repeat(100));
const json = { "content-type": "application/json" };

function answer(response: ServerResponse, body: Buffer, headers: Readonly<Record<string, string>> = json): void {
  response.writeHead(200, { ...headers, "content-length": body.length });
  response.end(body);
}

const http = createHttpServer({ keepAliveTimeout: 120_000 }, (request, response) => {
  const parts: Buffer[] = [];
  request.on("data", (part: Buffer) => parts.push(part));
  request.on("end", () => serve(request, Buffer.concat(parts).toString("utf8"), response));
});

function serve({ url = "", method }: IncomingMessage, body: string, response: ServerResponse): void {
  if (url.startsWith("/customers")) return answer(response, customers);
  if (url.startsWith("/bucket/")) {
    return answer(response, document, {
      "content-type": "text/plain; charset=utf-8",
      etag: '"5d41402abc4b2a76b9719d911017c592"',
      "last-modified": "Sat, 28 Nov 2026 08:00:00 GMT",
    });
  }
  if (url === "/mcp" && method === "POST") return serveMcp(body, response);
  if (url === "/mcp") {
    response.writeHead(405).end();
    return;
  }
  // Vendors are asked at the root, everything is in the query.
  return answer(response, sent);
}

function serveMcp(body: string, response: ServerResponse): void {
  const { id, method, params } = JSON.parse(body) as {
    readonly id?: number;
    readonly method: string;
    readonly params: { readonly protocolVersion?: string };
  };
  if (id === undefined) {
    response.writeHead(202).end();
    return;
  }
  const known = results(params.protocolVersion)[method];
  const error = { code: -32_601, message: "Method not found" };
  const message = known === undefined ? { jsonrpc: "2.0", id, error } : { jsonrpc: "2.0", id, result: known() };
  answer(response, Buffer.from(JSON.stringify(message)));
}

function results(protocolVersion = ""): Readonly<Record<string, () => object>> {
  return {
    initialize: () => ({ protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "bench", version: "1" } }),
    "tools/list": () => ({
      tools: [
        {
          name: "customer_get",
          description: "One customer.",
          inputSchema: { type: "object", properties: { id: { type: "string" } }, required: ["id"] },
        },
      ],
    }),
    "tools/call": () => ({ content: [{ type: "text", text: "Ann, gold" }] }),
  };
}

/** Takes every mail and forgets it. */
function serveSmtp(socket: Socket): void {
  let rest = "";
  let isMail = false;
  socket.setNoDelay(true);
  socket.on("error", () => undefined);
  socket.on("data", (bytes) => {
    rest += bytes.toString("latin1");
    for (let end = rest.indexOf("\r\n"); end >= 0; end = rest.indexOf("\r\n")) {
      const line = rest.slice(0, end);
      rest = rest.slice(end + 2);
      if (isMail && line !== ".") continue;
      const verb = isMail ? "." : line.slice(0, 4).toUpperCase();
      isMail = verb === "DATA";
      socket.write(smtpReplies[verb] ?? "250 OK\r\n");
      if (verb === "QUIT") socket.end();
    }
  });
  socket.write("220 bench ESMTP\r\n");
}

const smtpReplies: Readonly<Record<string, string>> = {
  EHLO: "250-bench\r\n250 8BITMIME\r\n",
  DATA: "354 Go on\r\n",
  QUIT: "221 Bye\r\n",
};

const bytes = (value: Buffer): Buffer => value;
const reply = Buffer.from(listReply());
const grpc = new Server();
grpc.addService(
  {
    List: {
      path: "/loyalty.v1.Customers/List",
      requestStream: false,
      responseStream: false,
      requestSerialize: bytes,
      requestDeserialize: bytes,
      responseSerialize: bytes,
      responseDeserialize: bytes,
    },
  },
  { List: (_call: unknown, done: (error: null, message: Buffer) => void) => done(null, reply) },
);
grpc.bindAsync(`127.0.0.1:${grpcPort}`, ServerCredentials.createInsecure(), () => {
  createTcpServer(serveSmtp).listen(Number(smtpPort), "127.0.0.1", () => {
    // The last: whoever waits for this port finds all of them.
    http.listen(Number(httpPort), "127.0.0.1", 4_096);
  });
});
