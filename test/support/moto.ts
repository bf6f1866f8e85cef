/** moto (PyPI), which knows S3, SQS and KMS: the one that TOOLYARD_MOTO_URL names, or one of our own where it is installed. */
import { spawn } from "node:child_process";
import { findProgram, freePort, stop, untilListening } from "./brokers/programs.ts";

export interface Moto {
  /** Without a path. */
  readonly url: string;
  close(): Promise<void>;
}

/** @returns why there is none, for people */
export async function startMoto(): Promise<Moto | string> {
  const named = process.env["TOOLYARD_MOTO_URL"];
  if (named !== undefined) return { url: new URL(named).origin, close: () => Promise.resolve() };
  const program = findProgram("moto_server");
  if (program === undefined) {
    return "there is no 'moto_server' on the PATH (pip install 'moto[server]'), and TOOLYARD_MOTO_URL names none that runs";
  }
  const port = await freePort();
  const child = spawn(program, ["-H", "127.0.0.1", "-p", String(port)], { stdio: "ignore" });
  await untilListening(port, child);
  return { url: `http://127.0.0.1:${port}`, close: () => stop(child) };
}
