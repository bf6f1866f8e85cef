/**
 * The log of a function: each line is written before anything else happens, since what waits in memory of a
 * frozen process may never be written. In the form of the server's log, without the library behind that,
 * which is a part of a cold start.
 */
import { writeSync } from "node:fs";
import type { Log, LogLevel } from "@toolyard/core/ports/log";
import { choose } from "./log-fields.ts";

const levels: readonly LogLevel[] = ["debug", "info", "warn", "error"];
const standardError = 2;

/** @param write takes one line with its end; default: standard error */
export function createFunctionLog(level: LogLevel, write: (line: string) => void = writeLine): Log {
  const lowest = levels.indexOf(level);
  return {
    log(at, message, fields = {}) {
      if (levels.indexOf(at) < lowest) return;
      const line = { level: at, time: new Date().toISOString(), ...choose(fields), msg: message };
      write(`${JSON.stringify(line)}\n`);
    },
  };
}

function writeLine(line: string): void {
  for (let rest: Uint8Array = Buffer.from(line); rest.length > 0;) {
    try {
      rest = rest.subarray(writeSync(standardError, rest));
    } catch (error) {
      // The pipe is full and its reader will be back; any other trouble leaves nobody to tell.
      if (!(error instanceof Error && "code" in error && error.code === "EAGAIN")) return;
    }
  }
}
