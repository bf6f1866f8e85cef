/** `notifications/progress` of one request: what the back end tells, else a sign of life; values only ever grow. */
import type { JsonValue } from "../json.ts";
import { encodeNotice } from "../mcp/json-rpc.ts";
import type { Progress } from "../tools/tool-call.ts";

/** Between signs of life. */
const beatMs = 5_000;
/** Small enough to leave room for what a back end tells later. */
const beatStep = 0.001;

export class ProgressReporter {
  readonly #token: JsonValue;
  readonly #send: (text: string) => void;
  readonly #startedAt = performance.now();
  readonly #timer: NodeJS.Timeout;
  #last = -1;

  constructor(token: JsonValue, send: (text: string) => void) {
    this.#token = token;
    this.#send = send;
    this.#timer = setInterval(() => this.#beat(), beatMs);
  }

  readonly report = ({ progress, total, message }: Progress): void => {
    if (progress <= this.#last) return;
    this.#last = progress;
    const params = {
      progressToken: this.#token,
      progress,
      ...(total === undefined ? {} : { total }),
      ...(message === undefined ? {} : { message }),
    };
    this.#send(encodeNotice({ method: "notifications/progress", params }));
  };

  stop(): void {
    clearInterval(this.#timer);
  }

  #beat(): void {
    const seconds = Math.round((performance.now() - this.#startedAt) / 1_000);
    this.report({ progress: Math.max(0, this.#last) + beatStep, message: `Running for ${seconds} s.` });
  }
}
