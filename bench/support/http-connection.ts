/**
 * One keep-alive HTTP/1.1 connection of a load generator: as little work as reading an answer takes, so
 * that the generator does not limit what it measures.
 */
import { connect, type Socket } from "node:net";

export interface Target {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
}

export interface Answer {
  readonly status: number;
  readonly bodyBytes: number;
}

/** A request as bytes, to be sent many times. */
export function requestBytes({ url, headers }: Target, body: string): Buffer {
  const { host, pathname, search } = new URL(url);
  const content = Buffer.from(body);
  const fields = Object.entries({
    host,
    "content-type": "application/json",
    "content-length": String(content.length),
    ...headers,
  });
  const head = fields.map(([name, value]) => `${name}: ${value}\r\n`).join("");
  return Buffer.concat([Buffer.from(`POST ${pathname}${search} HTTP/1.1\r\n${head}\r\n`), content]);
}

type Part = "head" | "sized" | "chunk-size" | "chunk" | "chunk-end" | "trailer";

export class HttpConnection {
  readonly #socket: Socket;
  #onBody: ((part: Buffer) => void) | undefined;
  #waiting: { readonly resolve: (answer: Answer) => void; readonly reject: (error: Error) => void } | undefined;
  #part: Part = "head";
  /** Of a head or a line that has not come whole. */
  #text = "";
  #left = 0;
  #status = 0;
  #bodyBytes = 0;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.setNoDelay(true);
    socket.on("data", (bytes) => this.#read(bytes));
    socket.on("error", (error) => this.#fail(error));
    socket.on("close", () => this.#fail(new Error("the connection was closed")));
  }

  static open(url: string): Promise<HttpConnection> {
    const { hostname, port } = new URL(url);
    if (hostname !== "127.0.0.1") throw new Error(`load goes to this machine only, not to ${hostname}`);
    return new Promise((resolve, reject) => {
      const socket = connect(Number(port), hostname);
      socket.once("connect", () => resolve(new HttpConnection(socket))).once("error", reject);
    });
  }

  /** @param onBody gets the body as it comes, without the framing of chunks */
  send(request: Buffer, onBody?: (part: Buffer) => void): Promise<Answer> {
    this.#onBody = onBody;
    return new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject };
      this.#socket.write(request);
    });
  }

  close(): void {
    this.#waiting = undefined;
    this.#socket.destroy();
  }

  #read(bytes: Buffer): void {
    let at = 0;
    while (at < bytes.length) at = this.#step(bytes, at);
  }

  #step(bytes: Buffer, at: number): number {
    switch (this.#part) {
      case "head":
        return this.#readHead(bytes, at);
      case "sized":
      case "chunk": {
        const end = Math.min(bytes.length, at + this.#left);
        this.#bodyBytes += end - at;
        this.#onBody?.(bytes.subarray(at, end));
        this.#left -= end - at;
        if (this.#left === 0 && this.#part === "sized") this.#finish();
        else if (this.#left === 0) this.#part = "chunk-end";
        return end;
      }
      case "chunk-size":
        return this.#readLine(bytes, at, (line) => {
          this.#left = Number.parseInt(line, 16);
          this.#part = this.#left === 0 ? "trailer" : "chunk";
        });
      case "chunk-end":
        return this.#readLine(bytes, at, () => {
          this.#part = "chunk-size";
        });
      case "trailer":
        return this.#readLine(bytes, at, (line) => {
          if (line === "") this.#finish();
        });
    }
  }

  #readHead(bytes: Buffer, at: number): number {
    const before = this.#text.length;
    const text = this.#text + bytes.toString("latin1", at);
    const end = text.indexOf("\r\n\r\n");
    if (end < 0) {
      this.#text = text;
      return bytes.length;
    }
    const head = text.slice(0, end).toLowerCase();
    this.#text = "";
    this.#status = Number(head.slice(9, 12));
    this.#bodyBytes = 0;
    this.#left = Number(/\r\ncontent-length: *(\d+)/.exec(head)?.[1] ?? 0);
    this.#part = /\r\ntransfer-encoding: *chunked/.test(head) ? "chunk-size" : "sized";
    if (this.#part === "sized" && this.#left === 0) this.#finish();
    return at + end + 4 - before;
  }

  #readLine(bytes: Buffer, at: number, take: (line: string) => void): number {
    const end = bytes.indexOf("\n", at);
    if (end < 0) {
      this.#text += bytes.toString("latin1", at);
      return bytes.length;
    }
    const line = this.#text + bytes.toString("latin1", at, end);
    this.#text = "";
    take(line.trimEnd());
    return end + 1;
  }

  #finish(): void {
    this.#part = "head";
    const waiting = this.#waiting;
    this.#waiting = undefined;
    waiting?.resolve({ status: this.#status, bodyBytes: this.#bodyBytes });
  }

  #fail(error: Error): void {
    this.#waiting?.reject(error);
    this.#waiting = undefined;
  }
}
