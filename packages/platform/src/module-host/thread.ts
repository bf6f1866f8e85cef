/** The thread of one module in a run of several (once.ts): loaded, asked once, and over. */
import { parentPort, workerData } from "node:worker_threads";
import { toFault } from "./faults.ts";
import type { Task, TaskAnswer } from "./once.ts";
import { countIntervals, watchResources } from "./open-resources.ts";
import { toText } from "./plain.ts";
import { PluginModule } from "./plugin-module.ts";
import { keepOutputQuiet } from "./quiet-output.ts";

export async function runInThread(): Promise<void> {
  // Made by once.ts, and nothing else starts this program as a thread.
  const task = workerData as Task;
  const port = parentPort;
  const post = port?.postMessage.bind(port) ?? ((): void => undefined);
  const say = (answer: TaskAnswer): void => post(answer);
  const printed = keepOutputQuiet({ forward: false });
  countIntervals();
  const resources = watchResources();
  let open: readonly string[] = [];
  try {
    const module = await PluginModule.open({
      spec: task.plugin,
      directory: task.directory,
      projectDirectory: task.projectDirectory,
      maxBytes: task.maxBytes,
      tell: (told) => say({ kind: "told", told }),
    });
    open = resources.opened();
    if (open.length > 0 && !task.plugin.mayStayOpen) {
      const message = `it left ${open.join(", ")} open after its initialisation, and so needs to stay loaded`;
      say({ kind: "failed", failed: { fault: "open", message }, open });
      return;
    }
    say({ kind: "done", text: toText(await ask(module, task)), open });
  } catch (thrown) {
    const { fault, message } = toFault(thrown);
    const said = printed.tail();
    const about = said === "" ? "" : `; it printed: ${said}`;
    say({ kind: "failed", failed: { fault, message: `${message}${about}` }, open });
  }
}

async function ask(module: PluginModule, { ask: asked }: Task): Promise<unknown> {
  const given =
    asked.kind === "messages"
      ? await module.processMessages(asked.messages, asked.extensions)
      : await module.processToolCall(asked.arguments, asked.context, new AbortController().signal);
  await module.close().catch(() => undefined);
  return given;
}
