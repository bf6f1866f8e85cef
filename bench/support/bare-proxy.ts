/**
 * The floor, as a process: `node bare-proxy.ts <port> <back end>`. The least that Node can do and still be
 * an HTTP proxy: node:http in front, undici's dispatcher behind, bytes handed from one to the other. It
 * knows no callers, counts nothing and records nothing.
 */
import { createServer, type ServerResponse } from "node:http";
import { Pool, type Dispatcher } from "undici";

const [port = "0", backEnd = ""] = process.argv.slice(2);
const pool = new Pool(backEnd, { connections: 2_048, pipelining: 1, headersTimeout: 0, bodyTimeout: 0 });
const headers = { "content-type": "application/json", authorization: "Bearer sk-bench" };

class Forwarding implements Dispatcher.DispatchHandler {
  readonly #response: ServerResponse;

  constructor(response: ServerResponse) {
    this.#response = response;
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#response.on("close", () => {
      if (!this.#response.writableFinished) controller.abort(new Error("the client left"));
    });
    this.#response.on("drain", () => controller.resume());
  }

  onResponseStart(
    _controller: Dispatcher.DispatchController,
    status: number,
    {
      connection: _connection,
      "keep-alive": _keepAlive,
      "transfer-encoding": _encoding,
      ...received
    }: NodeJS.Dict<string | string[]>,
  ): void {
    this.#response.writeHead(status, received);
  }

  onResponseData(controller: Dispatcher.DispatchController, part: Buffer): void {
    if (!this.#response.write(part)) controller.pause();
  }

  onResponseEnd(): void {
    this.#response.end();
  }

  onResponseError(): void {
    this.#response.destroy();
  }
}

const server = createServer({ keepAliveTimeout: 120_000 }, (request, response) => {
  const parts: Buffer[] = [];
  request.on("data", (part: Buffer) => parts.push(part));
  request.on("end", () => {
    const [first] = parts;
    const body = parts.length === 1 && first !== undefined ? first : Buffer.concat(parts);
    pool.dispatch({ path: request.url ?? "/", method: "POST", headers, body }, new Forwarding(response));
  });
});
server.listen(Number(port), "127.0.0.1", 4_096);
