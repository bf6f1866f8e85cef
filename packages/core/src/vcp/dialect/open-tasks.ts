/**
 * Results that the model was promised: a plugin that works on names its task by a placeholder in its first answer.
 * Where the result is there by the next round, the model reads it in the placeholder's place (VCP specification
 * s. 4.6; VCP-10). Only what the plugin of a call says of its own task counts; other text is never expanded.
 */
import type { CallContext } from "../../context.ts";
import type { CoreDeps } from "../../core-deps.ts";
import type { JsonObject } from "../../json.ts";
import { pendingText, readAsyncText } from "../async/results.ts";
import { withText, type CallResult } from "./results.ts";

interface Task {
  readonly callId: string;
  readonly plugin: string;
  readonly taskId: string;
  /** As it stands in the result. */
  readonly placeholder: string;
}

interface OpenRound {
  message: JsonObject;
  results: readonly CallResult[];
  tasks: readonly Task[];
  readonly write: (results: readonly CallResult[]) => JsonObject;
}

/** One whose plugin works on. */
export interface WorkingCall {
  readonly callId: string;
  readonly result: CallResult;
}

/** Tasks of one call that are looked for: plugins name one. */
const mostTasks = 8;

/** The tasks that a plugin's answer promises. */
function tasksOf({ callId, result: { name, parts } }: WorkingCall): readonly Task[] {
  const texts = parts.flatMap(({ text }) => (typeof text === "string" ? [text] : [])).join("\n");
  const found = new Map<string, Task>();
  for (const [placeholder, plugin = "", taskId = ""] of texts.matchAll(placeholders)) {
    if (plugin === name && found.size < mostTasks) found.set(placeholder, { callId, plugin, taskId, placeholder });
  }
  return [...found.values()];
}

const placeholders = /\{\{VCP_ASYNC_RESULT::([\p{L}\p{N}_.-]{1,128})::([A-Za-z0-9_.-]{1,128})\}\}/gu;

export class OpenTasks {
  readonly #deps: CoreDeps;
  readonly #context: CallContext;
  readonly #rounds: OpenRound[] = [];

  constructor(deps: CoreDeps, context: CallContext) {
    this.#deps = deps;
    this.#context = context;
  }

  /** @param working those of the calls that came to the results */
  add(round: Pick<OpenRound, "message" | "results" | "write">, working: readonly WorkingCall[]): void {
    const tasks = working.flatMap((call) => tasksOf(call));
    if (tasks.length > 0) this.#rounds.push({ ...round, tasks });
  }

  /** Puts what is known by now into the messages. @returns the calls that it is of */
  async resolve(messages: JsonObject[]): Promise<readonly string[]> {
    const told: string[] = [];
    for (const round of this.#rounds) {
      if (round.tasks.length === 0) continue;
      const texts = await Promise.all(round.tasks.map((task) => this.#read(task)));
      if (texts.every((text) => text === undefined)) continue;
      for (const [at, { callId, placeholder }] of round.tasks.entries()) {
        const text = texts[at];
        if (text === undefined) continue;
        told.push(callId);
        round.results = round.results.map((result) => withText(result, placeholder, text));
      }
      round.tasks = round.tasks.filter((_task, at) => texts[at] === undefined);
      const place = messages.indexOf(round.message);
      round.message = round.write(round.results);
      if (place >= 0) messages[place] = round.message;
    }
    return told;
  }

  /** Undefined: there is none yet. */
  async #read(task: Task): Promise<string | undefined> {
    const text = await readAsyncText(this.#deps, this.#context, task.plugin, task.taskId);
    return text === pendingText(task) ? undefined : text;
  }
}
