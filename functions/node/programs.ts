/**
 * Programs of a node's configuration: a process for each call, or a resident one that is asked. Arguments are what
 * the program reads on stdin, never a part of its command line or environment.
 */
import { parseJson } from "@toolyard/core/json";
import type { Log } from "@toolyard/core/ports/log";
import type { PluginExit, PluginRunner } from "@toolyard/core/ports/plugin-runner";
import { startResidentProcess, type ResidentProcess } from "@toolyard/platform/local/resident-process";
import type { NodeConfig, NodeProgram } from "./config.ts";
import { ended, longestMessage, type Executed, type Execution, type Executor } from "./executor.ts";

export interface ProgramDeps {
  readonly runner: PluginRunner;
  /** On which programs are found. */
  readonly path: string;
  readonly log: Log;
}

export function createProgramExecutor(program: NodeProgram, { directory }: NodeConfig, deps: ProgramDeps): Executor {
  if (!program.resident) {
    return { execute: async (execution) => toExecuted(await runOnce(program, execution, deps), program) };
  }
  const resident = startResidentProcess({
    ...deps,
    directory,
    name: program.name,
    command: program.command,
    environment: program.environment,
    maxLineBytes: program.max_output_bytes,
  });
  return { execute: (execution) => askResident(resident, program, execution), stop: () => resident.stop() };
}

function runOnce(
  program: NodeProgram,
  { arguments: args, signal }: Execution,
  { runner }: ProgramDeps,
): Promise<PluginExit> {
  return runner.run({
    tenant: "node",
    command: program.command,
    environment: program.environment,
    stdin: JSON.stringify(args),
    timeoutMs: program.timeout_ms,
    maxOutputBytes: program.max_output_bytes,
    signal,
  });
}

function toExecuted(exit: PluginExit, program: NodeProgram): Executed {
  switch (exit.ended) {
    case "exit":
      if (exit.exitCode === 0) return completed(exit.stdout);
      // What it said last says why.
      return ended("failed", (exit.stderr.trim() || exit.stdout.trim() || endOf(exit)).slice(-longestMessage));
    case "timeout":
      return ended("timed_out", `it ran for ${program.timeout_ms} ms ('timeout_ms')`);
    case "aborted":
      return ended("cancelled", "it was stopped");
    case "output":
      return ended("failed", `It wrote more than ${program.max_output_bytes} bytes ('max_output_bytes').`);
    case "spawn":
      return ended("failed", exit.stderr);
    default:
      return exit.ended satisfies never;
  }
}

function endOf({ exitCode }: PluginExit): string {
  return exitCode === null ? "It was killed." : `It ended with exit code ${exitCode}.`;
}

function completed(output: string): Executed {
  return {
    status: "completed",
    mediaType: parseJson(output) === undefined ? "text/plain" : "application/json",
    output,
  };
}

async function askResident(
  resident: ResidentProcess,
  { timeout_ms: timeoutMs }: NodeProgram,
  { run, arguments: args, signal }: Execution,
): Promise<Executed> {
  const limit = AbortSignal.timeout(timeoutMs);
  const answer = await resident.ask({ id: run, arguments: args }, AbortSignal.any([signal, limit]));
  switch (answer.kind) {
    case "answered":
      return typeof answer.result === "string"
        ? { status: "completed", mediaType: "text/plain", output: answer.result }
        : { status: "completed", mediaType: "application/json", output: JSON.stringify(answer.result) };
    case "refused":
      return ended("failed", answer.message);
    case "lost":
      return ended("lost", answer.message);
    case "not_running":
      return ended("declined", answer.message);
    case "aborted":
      return signal.aborted
        ? ended("cancelled", "it was stopped")
        : ended("timed_out", `it did not answer within ${timeoutMs} ms ('timeout_ms')`);
    default:
      return answer satisfies never;
  }
}
