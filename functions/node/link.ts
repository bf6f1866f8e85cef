/**
 * The connection of a node to its gateway: dials, asks and is answered, hears events, and dials again with
 * growing pauses for as long as it is not told to stop.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { isJsonObject, parseJson, type JsonObject } from "@toolyard/core/json";
import type { Log } from "@toolyard/core/ports/log";
import { longestMessage } from "@toolyard/core/realtime/frames";
import { WebSocket } from "ws";
import { AnsweredError, readEvent, type NodeEvent } from "./frames.ts";
import { messageOf } from "./message-of.ts";

const firstPauseMs = 500;
const longestPauseMs = 30_000;
/** What is counted is counted by the minute, so nothing is put off for longer. */
const longestPutOffMs = 60_000;
/** An answer that takes longer will not come: the connection is dead, whatever it says. */
const answerWithinMs = 30_000;
const handshakeMs = 15_000;
/** API Gateway takes frames of 32 KB; longer messages go in parts. */
const partBytes = 30_000;
/** WebSocket close code (RFC 6455, section 7.4.1). */
const messageTooBig = 1009;
/** A gateway closes connections with too many messages that it has not answered. */
const mostUnanswered = 32;

/** The gateway refuses this node, and would again. */
export class NodeRefused extends Error {
  override readonly name = "NodeRefused";
}

/** The connection ended before there was an answer. */
export class LinkLost extends Error {
  override readonly name = "LinkLost";
}

/** What a node has to do when its link says something. */
export interface LinkHandlers {
  /** The connection stands; what it throws ends it. @throws NodeRefused to stop for good */
  readonly onOpen: () => Promise<void>;
  readonly onEvent: (event: NodeEvent) => void;
}

/** A node's connection to its gateway: over the network, or within the process that is the gateway. */
export interface NodeLink {
  /** Runs until it is closed. @throws NodeRefused */
  run(): Promise<void>;
  close(): void;
  /**
   * The answer, over as many connections as it takes. `undefined`: the link was closed, or nobody waits any more.
   * @throws AnsweredError that would come again
   */
  ask<T>(message: JsonObject, read: (answer: JsonObject) => T, unwanted?: AbortSignal): Promise<T | undefined>;
  /** @throws LinkLost, AnsweredError */
  askNow<T>(message: JsonObject, read: (answer: JsonObject) => T): Promise<T>;
  /** Keeps a result that was announced, where that needs no link to the store. */
  readonly store?: (run: string, bytes: Uint8Array, mediaType: string) => Promise<void>;
}

export interface LinkOptions extends LinkHandlers {
  /** Of the gateway, for example `https://tools.example.com`; or of its WebSockets, `wss://sockets.example.com/ws`. */
  readonly url: string;
  readonly key: string;
  readonly log: Log;
  /** As what it connects. */
  readonly clientType?: string;
  /** What is neither an answer nor an event of nodes. */
  readonly onFrame?: (frame: JsonObject) => void;
}

interface Question {
  readonly give: (answer: JsonObject) => void;
  readonly fail: (error: Error) => void;
}

export class GatewayLink implements NodeLink {
  readonly #options: LinkOptions;
  readonly #questions = new Map<string, Question>();
  #waiting: (() => void)[] = [];
  #socket: WebSocket | undefined;
  #isStanding = false;
  /** Resolves when it stands again. */
  #standing = Promise.withResolvers<void>();
  readonly #stopping = new AbortController();
  #asked = 0;

  constructor(options: LinkOptions) {
    this.#options = options;
  }

  /** Runs until it is closed. @throws NodeRefused */
  async run(): Promise<void> {
    let pauseMs = firstPauseMs;
    while (!this.#stopping.signal.aborted) {
      try {
        const reason = await this.#connect();
        pauseMs = firstPauseMs;
        this.#options.log.log("info", "the connection to the gateway has ended", { reason });
      } catch (thrown) {
        if (thrown instanceof NodeRefused) {
          this.#stopping.abort();
          throw thrown;
        }
        this.#options.log.log("warn", "the gateway cannot be reached and will be tried again", {
          reason: messageOf(thrown),
          duration_ms: pauseMs,
        });
        pauseMs = Math.min(longestPauseMs, pauseMs * 2);
      }
      await pause(pauseMs * (0.5 + Math.random()), this.#stopping.signal);
    }
  }

  close(): void {
    this.#stopping.abort();
    this.#socket?.close(1000);
  }

  /**
   * The answer, over as many connections as it takes. `undefined`: the link was closed, or nobody waits any more.
   * @throws AnsweredError that would come again
   */
  async ask<T>(message: JsonObject, read: (answer: JsonObject) => T, unwanted?: AbortSignal): Promise<T | undefined> {
    const stopping = this.#stopping.signal;
    const givenUp = unwanted === undefined ? stopping : AbortSignal.any([stopping, unwanted]);
    while (!givenUp.aborted) {
      if (!this.#isStanding) await this.#untilStanding(givenUp);
      if (givenUp.aborted) return undefined;
      let putOffMs = 0;
      try {
        return await this.askNow(message, read);
      } catch (thrown) {
        const isPassing = thrown instanceof LinkLost || (thrown instanceof AnsweredError && thrown.isPassing);
        if (!isPassing) throw thrown;
        if (thrown instanceof AnsweredError) putOffMs = Math.min(longestPutOffMs, thrown.retryAfterMs);
      }
      await pause(putOffMs + firstPauseMs * (0.5 + Math.random()), givenUp);
    }
    return undefined;
  }

  /** @throws LinkLost, AnsweredError, NodeRefused */
  async askNow<T>(message: JsonObject, read: (answer: JsonObject) => T): Promise<T> {
    this.#asked += 1;
    const id = `q${this.#asked}`;
    const text = JSON.stringify({ ...message, id });
    // The gateway would end the connection, and the next one, too.
    if (Buffer.byteLength(text) > longestMessage) throw this.#isStanding ? messageTooLong() : registrationTooLong();
    while (this.#questions.size >= mostUnanswered) await new Promise<void>((resume) => this.#waiting.push(resume));
    const socket = this.#socket;
    if (socket?.readyState !== WebSocket.OPEN) throw new LinkLost("not connected");
    const timer = setTimeout(() => socket.terminate(), answerWithinMs);
    try {
      const answer = await new Promise<JsonObject>((give, fail) => {
        this.#questions.set(id, { give, fail });
        sendInParts(socket, text);
      });
      return read(answer);
    } finally {
      clearTimeout(timer);
      this.#questions.delete(id);
      this.#waiting.shift()?.();
    }
  }

  /** One connection, from its beginning to its end. @returns why it has ended */
  async #connect(): Promise<string> {
    const { url, key, onOpen, clientType = "node" } = this.#options;
    const socket = new WebSocket(socketUrl(url, clientType), {
      headers: { authorization: `Bearer ${key}` },
      handshakeTimeout: handshakeMs,
      perMessageDeflate: false,
    });
    const ended = new Promise<string>((done) => {
      socket.once("close", (code, reason) => {
        // Until it stands only a registration is said on it, which would be as long again.
        const isTooLong = code === messageTooBig && !this.#isStanding;
        this.#socket = undefined;
        this.#isStanding = false;
        this.#standing.resolve();
        this.#standing = Promise.withResolvers();
        const lost = isTooLong ? registrationTooLong() : new LinkLost("the connection has ended");
        for (const { fail } of this.#questions.values()) fail(lost);
        done(`${code} ${reason.toString("utf8")}`.trim());
      });
    });
    socket.on("message", (data: Buffer) => this.#receive(data.toString("utf8")));
    await opened(socket);
    this.#socket = socket;
    if (this.#stopping.signal.aborted) socket.close(1000);
    try {
      await onOpen();
    } catch (thrown) {
      socket.close(1000);
      throw thrown;
    }
    if (this.#socket === socket) this.#isStanding = true;
    this.#standing.resolve();
    return ended;
  }

  #receive(text: string): void {
    const frame = parseJson(text);
    if (!isJsonObject(frame)) return;
    const { id } = frame;
    const question = typeof id === "string" ? this.#questions.get(id) : undefined;
    const event = question === undefined ? readEvent(frame) : undefined;
    question?.give(frame);
    if (event !== undefined) this.#options.onEvent(event);
    else if (question === undefined) this.#options.onFrame?.(frame);
  }

  async #untilStanding(signal: AbortSignal): Promise<void> {
    const { promise: stopped, resolve } = Promise.withResolvers<void>();
    const stop = (): void => resolve();
    signal.addEventListener("abort", stop, { once: true });
    if (signal.aborted) resolve();
    await Promise.race([this.#standing.promise, stopped]);
    // None is left behind: a node asks for as long as it lives.
    signal.removeEventListener("abort", stop);
  }
}

function registrationTooLong(): NodeRefused {
  return new NodeRefused("The registration is too long for the gateway; offer fewer tools, or shorter ones.");
}

function messageTooLong(): AnsweredError {
  const why = `A message of more than ${longestMessage} bytes is not read by the gateway, and was not sent.`;
  return new AnsweredError("payload_too_large", why, { isPassing: false });
}

async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await sleep(ms, undefined, { signal }).catch(() => undefined);
}

/** A gateway's address, or that of its WebSockets where they have one of their own. */
function socketUrl(url: string, clientType: string): string {
  const base = /^wss?:/.test(url) ? url : `${url.replace(/^http/, "ws").replace(/\/+$/, "")}/ws`;
  return `${base}?client_type=${clientType}`;
}

function sendInParts(socket: WebSocket, text: string): void {
  const bytes = Buffer.from(text, "utf8");
  for (let at = 0; at < bytes.byteLength; at += partBytes) {
    const part = bytes.subarray(at, at + partBytes);
    socket.send(part, { binary: false, fin: at + partBytes >= bytes.byteLength });
  }
}

/** @throws NodeRefused where the gateway says that this node may not connect, Error where it cannot be reached */
function opened(socket: WebSocket): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.once("open", resolve);
    socket.on("error", reject);
    socket.once("unexpected-response", (_request, response) => {
      const parts: Buffer[] = [];
      response.on("data", (part: Buffer) => parts.push(part));
      response.on("error", reject);
      response.on("end", () => {
        const status = response.statusCode ?? 0;
        const body = parseJson(Buffer.concat(parts).toString("utf8"));
        const error = isJsonObject(body) && isJsonObject(body["error"]) ? body["error"]["message"] : undefined;
        const said = `the gateway answered ${status}${typeof error === "string" ? `: ${error}` : ""}`;
        reject(status === 401 || status === 403 ? new NodeRefused(said) : new Error(said));
        socket.terminate();
      });
    });
  });
}
