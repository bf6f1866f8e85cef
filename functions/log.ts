/** The log of the server form: lines of JSON, gathered for a moment. */
import type { Log, LogLevel } from "@toolyard/core/ports/log";
import { pino, type DestinationStream } from "pino";
import { choose } from "./log-fields.ts";

export interface FlushableLog extends Log {
  /** Writes what is still in memory; before the process ends, which it does not hold up. */
  flush(): Promise<void>;
}

type LogDestination = DestinationStream & { readonly flush?: (done: () => void) => void };

/** A reader of the log that takes longer for the last lines has lost them. */
const flushWithinMs = 1_000;

export interface LogOptions {
  readonly level: LogLevel;
  /** Default: standard error, so that standard output stays for people. */
  readonly destination?: LogDestination;
}

export function createLog({ level, destination = toStandardError() }: LogOptions): FlushableLog {
  const logger = pino(
    { level, base: null, timestamp: pino.stdTimeFunctions.isoTime, formatters: { level: named } },
    destination,
  );
  return {
    log(at, message, fields = {}) {
      if (logger.isLevelEnabled(at)) logger[at](choose(fields), message);
    },
    flush: () => flushed(destination),
  };
}

/** Not the destination's flush for the end of a process: with nobody at the other end of the pipe it never returns. */
function flushed(destination: LogDestination): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, flushWithinMs);
    const done = (): void => {
      clearTimeout(timer);
      resolve();
    };
    if (destination.flush === undefined) done();
    else destination.flush(done);
  });
}

function toStandardError(): LogDestination {
  return gather(pino.destination({ dest: 2, sync: false, minLength: 1 }));
}

/** What is gathered before it is written, in characters and milliseconds. */
const gathered = { length: 65_536, ms: 100 };

/**
 * A server gathers lines for a moment: a write for each would cost as much as a request. Not left to the
 * destination, which lays all that it has gathered out anew for every line.
 */
function gather(destination: ReturnType<typeof pino.destination>): LogDestination {
  let lines: string[] = [];
  let length = 0;
  let timer: NodeJS.Timeout | undefined;
  const pass = (): void => {
    clearTimeout(timer);
    timer = undefined;
    if (lines.length > 0) destination.write(lines.join(""));
    lines = [];
    length = 0;
  };
  return {
    write(line) {
      lines.push(line);
      length += line.length;
      if (length >= gathered.length) pass();
      else timer ??= setTimeout(pass, gathered.ms).unref();
    },
    flush(done) {
      pass();
      destination.flush(done);
    },
  };
}

function named(label: string): { readonly level: string } {
  return { level: label };
}
