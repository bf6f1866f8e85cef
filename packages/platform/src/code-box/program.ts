/**
 * The program inside a code box on this machine: it takes one confined run from standard input, carries it out as the
 * plugin box does, and answers in the same frames. It is alone with the code, has no secret, and is not believed: who
 * started it holds the limits that count.
 */
import { readFileSync } from "node:fs";
import { argv } from "node:process";
import type { PluginRun } from "@toolyard/core/ports/plugin-runner";
import type { BoxFrame, BoxRequest } from "@toolyard/core/boxes/box-protocol";
import { endOtherProcesses } from "../local/other-processes.ts";
import { createProcessPluginRunner } from "../local/process-plugin-runner.ts";

function send(frame: BoxFrame): void {
  process.stdout.write(`${JSON.stringify(frame)}\n`);
}

/** Not validated: the validators are a third of a megabyte, and it comes from the same release. */
function readRun(): PluginRun {
  const { files = [], ...run } = JSON.parse(readFileSync(0, "utf8")) as BoxRequest;
  const laid = files.map(({ path, body }) => ({ path, body: Buffer.from(body, "base64") }));
  return { ...(run as Omit<PluginRun, "files">), files: laid };
}

async function main([path = "/usr/bin:/bin", memoryBytes = ""]: readonly string[]): Promise<void> {
  const run = readRun();
  const runner = createProcessPluginRunner({
    path,
    memoryBytes: Number(memoryBytes),
    temporaryDirectory: "/tmp",
    endEscaped: endOtherProcesses,
    ...(run.confined === undefined ? {} : { maxProcesses: run.confined.maxProcesses }),
  });
  send({ type: "started" });
  const exit = await runner.run({ ...run, onStdout: (data) => send({ type: "stdout", data }) });
  send({ type: "stderr", data: exit.stderr });
  for (const { path: file, body } of exit.left?.files ?? []) {
    send({ type: "file", path: file, body: Buffer.from(body).toString("base64") });
  }
  for (const passed of exit.left?.passedOver ?? []) send({ type: "passed_over", ...passed });
  send({ type: "exit", exitCode: exit.exitCode, ended: exit.ended, durationMs: exit.durationMs });
}

// The code can close our output; that costs its own answer only.
process.stdout.on("error", () => undefined);
void main(argv.slice(2));
