/** Server-sent events of an answer, as they come, and the messages in them. */
import { SseScanner } from "../chat/providers/sse-frames.ts";
import type { EgressResponse } from "../ports/egress.ts";
import { decodeMessages, type RpcMessage } from "./json-rpc.ts";

/** A stream that goes on after its answer is left after so long. */
const tailMs = 1_000;

interface StreamEvent {
  readonly name: string;
  readonly data: string;
}

/** The messages of one stream of events, as they come. */
export class EventStream {
  readonly #scanner: SseScanner;
  readonly #body: AsyncIterator<Uint8Array>;
  #ahead: readonly StreamEvent[] = [];

  constructor(response: EgressResponse, maxBytes: number) {
    this.#scanner = new SseScanner(maxBytes);
    this.#body = response.body[Symbol.asyncIterator]();
  }

  get lastEventId(): string {
    return this.#scanner.lastEventId;
  }

  get retryMs(): number | undefined {
    return this.#scanner.retryMs;
  }

  /** Undefined at the end. @throws GatewayError where the connection breaks, SseEventTooLarge */
  async next(): Promise<readonly RpcMessage[] | undefined> {
    const events = await this.nextEvents();
    return events?.filter(({ name }) => name === "" || name === "message").flatMap(({ data }) => decodeMessages(data));
  }

  async nextEvents(): Promise<readonly StreamEvent[] | undefined> {
    const ahead = this.#ahead;
    this.#ahead = [];
    if (ahead.length > 0) return ahead;
    const read = await this.#body.next();
    if (read.done === true) return undefined;
    try {
      return this.#scanner.feed(read.value);
    } catch (error) {
      await this.#body.return?.();
      throw error;
    }
  }

  /** Events that came and are to be read again. */
  putBack(events: readonly StreamEvent[]): void {
    this.#ahead = events;
  }

  /** Its end is read where it comes at once, so that the connection can be used again. */
  leaveSoon(): void {
    const timer = setTimeout(() => void this.leave().catch(() => undefined), tailMs);
    timer.unref();
    const drain = async (): Promise<void> => {
      while ((await this.#body.next()).done !== true);
    };
    void drain()
      .catch(() => undefined)
      .finally(() => clearTimeout(timer));
  }

  async leave(): Promise<void> {
    await this.#body.return?.();
  }
}
