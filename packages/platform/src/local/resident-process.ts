/**
 * A held program (held-process.ts) that is asked: one JSON request a line in, one JSON answer a line out, matched by
 * `id`, in any order. Where it dies, who waited learns that there will be no answer. Contract of the lines:
 * docs/nodes.md.
 */
import { isJsonObject, parseJson, type JsonObject, type JsonValue } from "@toolyard/core/json";
import type { Log } from "@toolyard/core/ports/log";
import { startHeldProcess, type HeldProcess } from "./held-process.ts";

export interface ResidentOptions {
  readonly name: string;
  readonly command: readonly [string, ...string[]];
  readonly directory: string;
  /** On which programs are found. */
  readonly path: string;
  /** The whole environment beside PATH and LANG. */
  readonly environment: Readonly<Record<string, string>>;
  readonly maxLineBytes: number;
  readonly log: Log;
}

export type ResidentAnswer =
  | { readonly kind: "answered"; readonly result: JsonValue }
  | { readonly kind: "refused"; readonly message: string }
  /** It ended, or could not be started, before it had answered. */
  | { readonly kind: "lost"; readonly message: string }
  /** Nothing was sent. */
  | { readonly kind: "not_running"; readonly message: string }
  | { readonly kind: "aborted" };

export interface ResidentProcess {
  ask(request: { readonly id: string; readonly arguments: JsonObject }, signal: AbortSignal): Promise<ResidentAnswer>;
  stop(): Promise<void>;
}

export function startResidentProcess(options: ResidentOptions): ResidentProcess {
  return new Resident(options);
}

interface Waiting {
  readonly give: (answer: ResidentAnswer) => void;
}

class Resident implements ResidentProcess {
  readonly #options: ResidentOptions;
  readonly #waiting = new Map<string, Waiting>();
  readonly #process: HeldProcess;

  constructor(options: ResidentOptions) {
    this.#options = options;
    this.#process = startHeldProcess({
      ...options,
      onLine: (line) => this.#receive(line),
      onGone: (message) => {
        for (const { give } of this.#waiting.values()) give({ kind: "lost", message });
      },
    });
  }

  async ask(
    { id, arguments: args }: { readonly id: string; readonly arguments: JsonObject },
    signal: AbortSignal,
  ): Promise<ResidentAnswer> {
    const problem = await this.#process.problem();
    if (problem !== undefined) {
      return { kind: "not_running", message: `'${this.#options.name}' is not running: ${problem}` };
    }
    if (signal.aborted) return { kind: "aborted" };
    return new Promise((resolve) => {
      const give = (answer: ResidentAnswer): void => {
        this.#waiting.delete(id);
        signal.removeEventListener("abort", abort);
        resolve(answer);
      };
      const abort = (): void => {
        this.#write({ cancel: id });
        give({ kind: "aborted" });
      };
      signal.addEventListener("abort", abort);
      this.#waiting.set(id, { give });
      this.#write({ id, arguments: args });
    });
  }

  stop(): Promise<void> {
    return this.#process.stop();
  }

  #write(line: JsonObject): void {
    this.#process.write(JSON.stringify(line));
  }

  #receive(line: string): void {
    const answer = parseJson(line);
    const id = isJsonObject(answer) ? answer["id"] : undefined;
    if (!isJsonObject(answer) || typeof id !== "string") {
      this.#options.log.log("warn", "a resident program wrote a line that is no answer", { tool: this.#options.name });
      return;
    }
    const waiting = this.#waiting.get(id);
    if (waiting === undefined) return;
    const error = answer["error"];
    if (error !== undefined && error !== null) {
      waiting.give({ kind: "refused", message: typeof error === "string" ? error : JSON.stringify(error) });
    } else {
      waiting.give({ kind: "answered", result: answer["result"] ?? null });
    }
  }
}
