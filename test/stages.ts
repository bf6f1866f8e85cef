/** Runs the programs that `npm test` and `npm run check` are made of, and says how long each took. */
import { spawn } from "node:child_process";
import { resolve } from "node:path";

const root = resolve(import.meta.dirname, "..");

export interface Stage {
  readonly name: string;
  /** Program of node_modules/.bin (or on PATH) and its arguments. */
  readonly command: readonly [string, ...string[]];
  readonly environment?: Readonly<Record<string, string>>;
}

export interface StageResult {
  readonly name: string;
  readonly ok: boolean;
  readonly seconds: number;
}

/** Runs one stage; its output goes to ours as it comes (`show`), at its end (`tell`), or only where it fails (`keep`). */
export async function runStage(stage: Stage, output: "show" | "tell" | "keep"): Promise<StageResult> {
  const started = performance.now();
  const [program, ...parameters] = stage.command;
  const child = spawn(program, parameters, {
    cwd: root,
    env: {
      ...process.env,
      ...stage.environment,
      PATH: `${resolve(root, "node_modules/.bin")}:${process.env["PATH"] ?? ""}`,
    },
    stdio: output === "show" ? "inherit" : ["ignore", "pipe", "pipe"],
  });
  const kept: Buffer[] = [];
  child.stdout?.on("data", (part: Buffer) => kept.push(part));
  child.stderr?.on("data", (part: Buffer) => kept.push(part));
  const exitCode = await new Promise<number | null>((done) => {
    child.on("error", (error) => {
      kept.push(Buffer.from(`${error.message}\n`));
      done(null);
    });
    child.on("close", done);
  });
  const ok = exitCode === 0;
  const seconds = (performance.now() - started) / 1000;
  if (!ok || output === "tell") process.stdout.write(Buffer.concat(kept));
  console.log(`${ok ? "ok    " : "FAILED"} ${stage.name.padEnd(10)} ${seconds.toFixed(1)} s`);
  return { name: stage.name, ok, seconds };
}
