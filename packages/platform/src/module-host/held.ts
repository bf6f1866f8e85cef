/**
 * A module that stays (VCP-7): loaded once, asked many things at once, until it is told to close. The process is the
 * module's alone, so that what it does to it is its own matter; whoever holds it starts it again when it ends.
 */
import { createInterface } from "node:readline";
import { Readable } from "node:stream";
import { messageOf, ModuleError, toFault } from "./faults.ts";
import { parseText } from "./plain.ts";
import { PluginModule } from "./plugin-module.ts";
import { keepOutputQuiet } from "./quiet-output.ts";
import type { JsonValue } from "@toolyard/core/json";
import { writeAnswer, type HeldAnswer, type HeldQuestion, type OpenQuestion } from "@toolyard/core/vcp/modules/wire";

type Question = Exclude<HeldQuestion, { kind: "cancel" | "close" | "open" }>;

class HeldModule {
  readonly #write = process.stdout.write.bind(process.stdout);
  readonly #stops = new Map<string, AbortController>();
  #word = "";
  #name = "";
  #module: Promise<PluginModule> | undefined;

  async hear(question: HeldQuestion): Promise<void> {
    switch (question.kind) {
      case "open":
        return this.#open(question);
      case "cancel":
        this.#stops.get(question.id)?.abort(new ModuleError("timeout", "nobody waits for it any more"));
        return undefined;
      case "close":
        await this.#module?.then((module) => module.close()).catch(() => undefined);
        this.#say({ id: question.id, result: null });
        return undefined;
      case "messages":
      case "tool":
      case "http":
        return this.#answer(question);
      default:
        return question satisfies never;
    }
  }

  async #open({ id, word, plugin, directory, maxBytes }: OpenQuestion): Promise<void> {
    this.#word = word;
    this.#name = plugin.name;
    const projectDirectory = process.cwd();
    const tell = (told: Extract<HeldAnswer, { kind: "told" }>["told"]): void => this.#say({ kind: "told", told });
    this.#module = PluginModule.open({ spec: plugin, directory, projectDirectory, maxBytes, tell });
    try {
      await this.#module;
      this.#say({ id, result: null });
    } catch (thrown) {
      this.#say({ id, failed: toFault(thrown) });
    }
  }

  async #answer(question: Question): Promise<void> {
    const { id, timeoutMs } = question;
    const stop = new AbortController();
    this.#stops.set(id, stop);
    const late = new ModuleError("timeout", `Plugin "${this.#name}" direct tool call timed out after ${timeoutMs}ms.`);
    const timer = setTimeout(() => stop.abort(late), timeoutMs);
    const given = Promise.withResolvers<never>();
    // Whoever was asked may know better what kept it.
    const giveUp = (): void => void setImmediate(() => given.reject(stop.signal.reason));
    stop.signal.addEventListener("abort", giveUp, { once: true });
    try {
      const result = await Promise.race([this.#ask(question, stop.signal), given.promise]);
      this.#say({ id, result });
    } catch (thrown) {
      this.#say({ id, failed: toFault(thrown) });
    } finally {
      clearTimeout(timer);
      this.#stops.delete(id);
    }
  }

  async #ask(question: Question, signal: AbortSignal): Promise<JsonValue> {
    const module = await this.#module;
    if (module === undefined) throw new ModuleError("load", "no module has been opened");
    switch (question.kind) {
      case "messages":
        return module.processMessages(question.messages, question.extensions);
      case "tool":
        return module.processToolCall(question.arguments, question.context, signal);
      case "http": {
        const { status, headers, base64 } = await module.answerHttp(question.request, signal);
        return { status, headers: headers.map((header) => [...header]), base64 };
      }
      default:
        return question satisfies never;
    }
  }

  #say(answer: HeldAnswer): void {
    this.#write(writeAnswer(this.#word, answer));
  }
}

export async function runHeld(): Promise<void> {
  const held = new HeldModule();
  // Before anything of the module can get hold of it.
  const input = process.stdin;
  Object.defineProperty(process, "stdin", { value: Readable.from([]), configurable: true });
  keepOutputQuiet({ forward: true });
  // A module that lets an error go by has not ended; the process would otherwise.
  process.on("unhandledRejection", (reason) => process.stderr.write(`unhandled rejection: ${messageOf(reason)}\n`));
  for await (const line of createInterface({ input, crlfDelay: Number.POSITIVE_INFINITY })) {
    if (line === "") continue;
    // Written by whoever holds us.
    void held.hear(parseText(line) as unknown as HeldQuestion);
  }
  process.exit(0);
}
