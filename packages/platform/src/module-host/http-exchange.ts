/**
 * One HTTP request for a module's routes without a connection: Node's own request and response over a socket in
 * memory, so that whatever modules do with them works.
 */
import { IncomingMessage, ServerResponse, type RequestListener } from "node:http";
import { Socket } from "node:net";
import { messageOf, ModuleError } from "./faults.ts";
import type { HttpAnswered, HttpAsked } from "@toolyard/core/vcp/modules/wire";

interface ExchangeOptions {
  /** Goes before the path. */
  readonly base: string;
  /** Bytes of the answer. */
  readonly maxBytes: number;
  readonly signal: AbortSignal;
}

/** Keeps what is written to it. */
class MemorySocket extends Socket {
  readonly #parts: Buffer[] = [];
  readonly #maxBytes: number;
  #bytes = 0;

  constructor(maxBytes: number, ip: string) {
    super();
    this.#maxBytes = maxBytes;
    Object.defineProperty(this, "remoteAddress", { value: ip });
  }

  get written(): Buffer {
    return Buffer.concat(this.#parts);
  }

  override _read(): void {
    // The request's body is given to the request itself.
  }

  override _write(part: Buffer | string, encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    const bytes = typeof part === "string" ? Buffer.from(part, encoding) : part;
    this.#bytes += bytes.byteLength;
    if (this.#bytes > this.#maxBytes + longestHead) {
      done(new ModuleError("size", `its answer has more than ${this.#maxBytes} bytes`));
      return;
    }
    this.#parts.push(bytes);
    done();
  }

  override _writev(
    parts: readonly { readonly chunk: Buffer | string; readonly encoding: BufferEncoding }[],
    done: (error?: Error | null) => void,
  ): void {
    let failed: Error | null | undefined;
    for (const { chunk, encoding } of parts) this._write(chunk, encoding, (error) => (failed ??= error));
    done(failed);
  }

  override _final(done: (error?: Error | null) => void): void {
    done();
  }

  override setTimeout(): this {
    return this;
  }
}

const longestHead = 65_536;
const endless =
  "its answer began and had no end in its time: answers of routes come whole, so events are told by 'vcpLogFunctions' or 'webSocketPush'";

/** @throws ModuleError `size`, `threw`; what the signal aborts with */
export async function exchange(
  listener: RequestListener,
  asked: HttpAsked,
  { base, maxBytes, signal }: ExchangeOptions,
): Promise<HttpAnswered> {
  const socket = new MemorySocket(maxBytes, asked.ip ?? "");
  const request = toRequest(socket, asked, base);
  const response = new ServerResponse(request);
  // What has no length ends with its connection: nothing is cut into chunks that would have to be joined again.
  response.useChunkedEncodingByDefault = false;
  response.assignSocket(socket);
  const over = Promise.withResolvers<void>();
  const leave = (): void => {
    const reason = signal.reason instanceof Error ? signal.reason : new ModuleError("timeout", "given up");
    const isLate = reason instanceof ModuleError && reason.fault === "timeout";
    over.reject(isLate && response.headersSent ? new ModuleError("stream", endless) : reason);
  };
  signal.addEventListener("abort", leave, { once: true });
  response.once("finish", () => over.resolve());
  socket.once("error", (error) => over.reject(error));
  socket.once("close", () => over.reject(new ModuleError("threw", "it closed the connection without an answer")));
  try {
    listener(request, response);
    await over.promise;
    return toAnswer(socket.written, maxBytes);
  } catch (thrown) {
    if (thrown instanceof ModuleError) throw thrown;
    throw new ModuleError("threw", messageOf(thrown));
  } finally {
    signal.removeEventListener("abort", leave);
    request.destroy();
    socket.destroy();
  }
}

function toRequest(socket: Socket, { method, path, query, headers, base64 }: HttpAsked, base: string): IncomingMessage {
  const request = new IncomingMessage(socket);
  const body = Buffer.from(base64, "base64");
  request.method = method;
  request.url = `${base}${path}${query === "" ? "" : `?${query}`}`;
  request.httpVersion = "1.1";
  request.httpVersionMajor = 1;
  request.httpVersionMinor = 1;
  const all = headers.filter(([name]) => name.toLowerCase() !== "content-length");
  if (body.byteLength > 0) all.push(["content-length", String(body.byteLength)]);
  for (const [name, value] of all) {
    const lower = name.toLowerCase();
    const before = request.headers[lower];
    request.headers[lower] = before === undefined ? value : `${String(before)}, ${value}`;
    request.rawHeaders.push(name, value);
  }
  request.complete = true;
  if (body.byteLength > 0) request.push(body);
  request.push(null);
  return request;
}

/** @throws ModuleError `size` */
function toAnswer(bytes: Buffer, maxBytes: number): HttpAnswered {
  const end = bytes.indexOf("\r\n\r\n");
  const [first = "", ...lines] = bytes.toString("latin1", 0, end < 0 ? 0 : end).split("\r\n");
  const status = Number(/^HTTP\/1\.1 (\d{3})/.exec(first)?.[1] ?? 500);
  const headers = lines.map((line): readonly [string, string] => {
    const at = line.indexOf(":");
    return [line.slice(0, at).toLowerCase(), line.slice(at + 1).trim()];
  });
  const isChunked = headers.some(([name, value]) => name === "transfer-encoding" && /chunked/i.test(value));
  const body = bytes.subarray(end + 4);
  if (body.byteLength > maxBytes) throw new ModuleError("size", `its answer has more than ${maxBytes} bytes`);
  return { status, headers, base64: (isChunked ? joinChunks(body) : body).toString("base64") };
}

/** Where a module has asked for chunks itself. */
function joinChunks(body: Buffer): Buffer {
  const parts: Buffer[] = [];
  for (let at = 0; at < body.byteLength;) {
    const line = body.indexOf("\r\n", at);
    const size = Number.parseInt(body.toString("latin1", at, line), 16);
    if (line < 0 || !(size > 0)) break;
    parts.push(body.subarray(line + 2, line + 2 + size));
    at = line + 2 + size + 2;
  }
  return Buffer.concat(parts);
}
