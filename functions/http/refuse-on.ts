/** Answers to what Node has made no answer for: what is no request, and connections that were to become something else. */
import { STATUS_CODES } from "node:http";
import type { Duplex } from "node:stream";
import type { GatewayError } from "@toolyard/core/errors/gateway-error";
import { newId } from "@toolyard/core/ids";
import { toErrorReply } from "./errors.ts";

interface Refusal {
  readonly requestId?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly isHead?: boolean;
}

/** For reading the answer. */
const lingerMs = 1_000;

/** Says it in the one error shape, and ends the connection. */
export function refuseOn(
  socket: Duplex,
  error: GatewayError,
  { requestId = newId("request"), headers: more = {}, isHead = false }: Refusal = {},
): void {
  const { status, headers, body } = toErrorReply(error, requestId);
  const all = {
    ...headers,
    ...more,
    "x-request-id": requestId,
    connection: "close",
    "content-length": Buffer.byteLength(body),
  };
  const head = [
    `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ""}`,
    ...Object.entries(all).map(([name, value]) => `${name}: ${value}`),
  ];
  // No limit of the server holds for it any more: whoever keeps the other side open would keep all of it.
  const leaving = setTimeout(() => socket.destroy(), lingerMs).unref();
  socket.once("close", () => clearTimeout(leaving));
  socket.end(`${head.join("\r\n")}\r\n\r\n${isHead ? "" : body}`);
}
