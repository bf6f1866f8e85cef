/** Request bodies: read whole up to a limit, or passed on as they arrive. */
import { randomUUID } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { listedProblems, toToldName } from "@toolyard/core/errors/schema-problems";
import {
  deepestJson,
  excessOf,
  isJsonObject,
  mayLoseDigits,
  mostJsonNames,
  parseJsonExactly,
  parseWatchingDigits,
  repeatedNames,
  type JsonValue,
} from "@toolyard/core/json";
import { headerOf, hostOf, type AppContext } from "./app-env.ts";

/** @throws GatewayError `payload_too_large` naming the limit */
export function readBody(c: AppContext, limit: number): Buffer | Promise<Buffer> {
  if (Number(headerOf(c, "content-length") ?? 0) > limit) throw tooLarge(limit);
  const { incoming, outgoing, lambda } = hostOf(c);
  if (incoming !== undefined) {
    inviteBody(incoming, outgoing);
    return readIncoming(incoming, limit);
  }
  if (lambda !== undefined) {
    if (lambda.body.length > limit) throw tooLarge(limit);
    return Buffer.from(lambda.body.buffer, lambda.body.byteOffset, lambda.body.length);
  }
  return readWhole(limited(c.req.raw.body ?? [], limit));
}

async function readWhole(body: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  for await (const part of body) parts.push(part);
  return Buffer.concat(parts);
}

const passedOn = new WeakSet<IncomingMessage>();

/** Whether the request's body is passed on as it arrives, however long that takes. */
export const isPassedOn = (incoming: IncomingMessage): boolean => passedOn.has(incoming);

/** The body as it arrives. @throws GatewayError `payload_too_large` while it is read */
export function streamBody(c: AppContext, limit: number): AsyncIterable<Uint8Array> {
  if (Number(headerOf(c, "content-length") ?? 0) > limit) throw tooLarge(limit);
  // Not destroyed when the reader stops early: the error must still reach the client.
  const { incoming, outgoing, lambda } = hostOf(c);
  if (lambda !== undefined) return limited([lambda.body], limit);
  if (incoming === undefined) return limited(c.req.raw.body ?? [], limit);
  passedOn.add(incoming);
  const parts = incoming.iterator({ destroyOnReturn: false });
  return limited(
    {
      [Symbol.asyncIterator]() {
        inviteBody(incoming, outgoing);
        return parts;
      },
    },
    limit,
  );
}

/** Who asked before sending (`Expect: 100-continue`) sends now, and nothing where the request is refused without its body. */
function inviteBody({ headers, httpVersion }: IncomingMessage, outgoing: ServerResponse | undefined): void {
  if (outgoing === undefined || outgoing.headersSent || httpVersion !== "1.1") return;
  if (/(?:^|\W)100-continue(?:$|\W)/i.test(headers.expect ?? "")) outgoing.writeContinue();
}

/** What reading would change without a word. */
export interface Losses {
  /** Absent: whole numbers are read as they are read anywhere. */
  readonly numbers?: WholeNumbers;
  /** Of what is kept: a name that stands twice in an object is refused. Else the last of the two holds, as elsewhere. */
  readonly refusesRepeats?: boolean;
}

/** What is to be done about whole numbers that a double cannot hold, which would be sent on as others. */
export type WholeNumbers =
  | "as text"
  | { readonly refusedIn?: readonly string[] | undefined; readonly asTextIn?: readonly string[] | undefined };

/**
 * Parsed JSON of a body; `undefined` for an empty one.
 * @throws GatewayError `unsupported_media_type`, `invalid_json`; `invalid_request` for what is refused as a loss
 */
export function parseJsonBody(
  c: AppContext,
  bytes: Uint8Array,
  { numbers, refusesRepeats = false }: Losses = {},
): unknown {
  if (bytes.length === 0) return undefined;
  refuseOtherTypes(c);
  const text = decodeText(bytes);
  const body = parse(
    text,
    numbers === "as text" ? (json) => parseWatchingDigits(json, (digits) => digits) : JSON.parse,
  );
  const excess = excessOf(body, bytes);
  if (excess === "levels") {
    throw new GatewayError("invalid_json", `The body is nested deeper than ${deepestJson} levels.`);
  }
  // Checked name by name, and told of, an object takes many times what reading it did.
  if (excess === "names") {
    throw new GatewayError("invalid_json", `An object of the body has more than ${mostJsonNames} names.`);
  }
  if (refusesRepeats) refuseRepeats(text);
  if (typeof numbers !== "object") return body;
  refuseInexact(text, numbers.refusedIn ?? []);
  return withDigits(body, text, numbers.asTextIn ?? []);
}

/** @throws GatewayError `invalid_request` naming the second of two equal names */
function refuseRepeats(text: string): void {
  const told = repeatedNames(text).map((path) => ({
    param: path.map(toToldName).join("."),
    message: "stands twice in its object",
  }));
  const [first] = told;
  if (first === undefined) return;
  throw new GatewayError(
    "invalid_request",
    `Body field '${first.param}' ${first.message}, and one of the two would be lost; leave one of them out.`,
    { param: first.param, ...listedProblems(told) },
  );
}

/** The body with these fields read so that such numbers are the texts of their digits. */
function withDigits(body: unknown, text: string, fields: readonly string[]): unknown {
  if (fields.length === 0 || !mayLoseDigits(text) || !isJsonObject(body)) return body;
  const exact = parseJsonExactly(text);
  if (!isJsonObject(exact)) return body;
  return { ...body, ...Object.fromEntries(Object.entries(exact).filter(([name]) => fields.includes(name))) };
}

/** @throws GatewayError `invalid_request` naming the first whole number in these fields that would become another */
function refuseInexact(text: string, fields: readonly string[]): void {
  if (fields.length === 0 || !mayLoseDigits(text)) return;
  // Nobody can have sent it.
  const mark = randomUUID();
  const body = parseWatchingDigits(text, (digits) => mark + digits);
  if (!isJsonObject(body)) return;
  const find = (value: JsonValue, path: string): void => {
    if (typeof value === "string" && value.startsWith(mark)) {
      throw new GatewayError(
        "invalid_request",
        `Body field '${path}' is ${value.slice(mark.length, mark.length + 40)}, which cannot be carried exactly; send it as a string where its schema takes strings.`,
        { param: path },
      );
    }
    if (typeof value === "object" && value !== null)
      for (const [key, part] of Object.entries(value)) find(part, `${path}.${key}`);
  };
  for (const field of fields) find(body[field] ?? null, field);
}

function parse(text: string, read: (text: string) => unknown): unknown {
  try {
    return read(text);
  } catch (cause) {
    throw new GatewayError("invalid_json", `The body is not valid JSON${placeOf(cause, text)}.`, { cause });
  }
}

const utf8 = new TextDecoder("utf-8", { fatal: true });

function decodeText(bytes: Uint8Array): string {
  try {
    return utf8.decode(bytes);
  } catch (cause) {
    throw new GatewayError("invalid_json", "The body is not valid UTF-8 text.", { cause });
  }
}

function refuseOtherTypes(c: AppContext): void {
  const type = headerOf(c, "content-type")?.split(";", 1)[0]?.trim().toLowerCase() ?? "";
  if (type !== "" && type !== "application/json" && !type.endsWith("+json")) {
    throw new GatewayError("unsupported_media_type", "Send the body as JSON with 'Content-Type: application/json'.", {
      param: "content-type",
    });
  }
  const encoding = headerOf(c, "content-encoding")?.trim().toLowerCase() ?? "identity";
  if (encoding !== "" && encoding !== "identity") {
    throw new GatewayError(
      "unsupported_media_type",
      "Send the body without 'Content-Encoding'; compressed bodies are not read.",
      {
        param: "content-encoding",
      },
    );
  }
}

/** Where the parser stopped, without repeating any of the text, which may hold secrets. */
function placeOf(cause: unknown, text: string): string {
  const position = cause instanceof Error ? /position (\d+)/.exec(cause.message)?.[1] : undefined;
  if (position === undefined) return "";
  const before = text.slice(0, Number(position)).split("\n");
  return `: line ${before.length}, column ${(before.at(-1)?.length ?? 0) + 1}`;
}

/** By events: leaving an async iteration early would close the socket before the error could be sent. */
function readIncoming(incoming: IncomingMessage, limit: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const parts: Buffer[] = [];
    let bytes = 0;
    if (incoming.readableEnded) return resolve(Buffer.alloc(0));
    if (incoming.destroyed) return reject(clientLeft());
    const take = (part: Buffer): void => {
      bytes += part.length;
      if (bytes <= limit) {
        parts.push(part);
        return;
      }
      incoming.off("data", take);
      incoming.pause();
      reject(tooLarge(limit));
    };
    const fail = (cause: Error): void => reject(clientLeft(cause));
    const leave = (): void => {
      if (!incoming.readableEnded) reject(clientLeft());
    };
    incoming.on("data", take);
    incoming.on("error", fail);
    incoming.on("close", leave);
    incoming.once("end", () => {
      resolve(parts.length === 1 ? (parts[0] ?? Buffer.alloc(0)) : Buffer.concat(parts));
      // What listens holds the body, and the request may be answered for minutes.
      incoming.off("data", take).off("error", fail).off("close", leave);
    });
  });
}

async function* limited(
  source: AsyncIterable<Uint8Array> | readonly Uint8Array[],
  limit: number,
): AsyncGenerator<Uint8Array> {
  let bytes = 0;
  try {
    for await (const part of source) {
      bytes += part.length;
      if (bytes > limit) throw tooLarge(limit);
      yield part;
    }
  } catch (cause) {
    throw cause instanceof GatewayError ? cause : clientLeft(cause);
  }
}

function clientLeft(cause?: unknown): GatewayError {
  return new GatewayError("request_cancelled", "The client closed the connection while sending.", { cause });
}

function tooLarge(limit: number): GatewayError {
  return new GatewayError("payload_too_large", `The body is larger than ${limit} bytes, the limit of this route.`, {
    extra: { limit_bytes: limit },
  });
}
